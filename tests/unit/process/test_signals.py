"""Signals that ask a node to stop."""

import asyncio

import pytest

from sarit.process.limits import REPEATED_SIGNAL_SECONDS
from sarit.process.signals import StopSignals, run_unless, serve_until_stopped
from tests.limits import HANG_SECONDS


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


class Node:
    """Flushes until it may skip that."""

    def __init__(self):
        self.calls = []
        self.skipped = asyncio.Event()

    def skip_flush(self):
        self.calls.append("skip")
        self.skipped.set()

    async def stop(self):
        self.calls.append("stop")
        await self.skipped.wait()


def test_second_signal_skips_the_flush_of_a_node_that_stops(caplog):
    caplog.set_level("INFO")
    node = Node()

    async def main():
        clock = Clock()
        stops = StopSignals(clock)
        serving = asyncio.ensure_future(serve_until_stopped(node, asyncio.sleep(0), stops))
        stops.on_signal()
        while node.calls != ["stop"]:
            await asyncio.sleep(0)
        clock.now += REPEATED_SIGNAL_SECONDS
        stops.on_signal()
        async with asyncio.timeout(HANG_SECONDS):
            await serving

    asyncio.run(main())
    assert node.calls == ["stop", "skip"]
    assert "flushing to long-term storage (a second signal skips that)" in caplog.text


def test_node_that_is_stopped_while_it_starts_does_not_flush(caplog):
    caplog.set_level("INFO")
    node = Node()

    async def main():
        stops = StopSignals(Clock())
        stops.first.set()
        async with asyncio.timeout(HANG_SECONDS):
            await serve_until_stopped(node, asyncio.sleep(1000), stops)

    asyncio.run(main())
    assert node.calls == ["skip", "stop"]
    assert "stopping before it was ready" in caplog.text


def test_node_that_cannot_start_is_stopped_and_says_why():
    node = Node()

    async def fails():
        raise OSError("port taken")

    async def main():
        async with asyncio.timeout(HANG_SECONDS):
            await serve_until_stopped(node, fails(), StopSignals(Clock()))

    with pytest.raises(OSError, match="port taken"):
        asyncio.run(main())
    assert node.calls == ["skip", "stop"]
