"""Signals that ask a node to stop."""

import asyncio

import pytest

from sarit.core.limits import REPEATED_SIGNAL_SECONDS
from sarit.node.signals import StopSignals, run_unless


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


@pytest.mark.parametrize(
    ("apart", "again"), [(0.0, False), (REPEATED_SIGNAL_SECONDS / 2, False), (REPEATED_SIGNAL_SECONDS, True)]
)
def test_signals_in_quick_succession_count_once(apart, again):
    signals = StopSignals(Clock())
    signals.on_signal()
    assert signals.first.is_set()
    for _ in range(3):
        signals._clock.now += apart
        signals.on_signal()
    assert signals.again.is_set() == again


def test_work_is_cancelled_once_the_event_is_set():
    async def main():
        event, ended = asyncio.Event(), []

        async def work():
            try:
                await asyncio.sleep(1000)
            finally:
                ended.append(True)

        asyncio.get_running_loop().call_soon(event.set)
        assert not await run_unless(event, work())
        assert ended == [True]

        async def fails():
            raise OSError("port taken")

        with pytest.raises(OSError, match="port taken"):
            await run_unless(asyncio.Event(), fails())
        assert await run_unless(asyncio.Event(), asyncio.sleep(0))

    asyncio.run(main())
