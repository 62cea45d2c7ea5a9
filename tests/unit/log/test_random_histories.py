"""Random histories of the local log against a list: appends, truncations, restarts, kills and power cuts.

Acknowledged frames are present.  Of the frames queued when the process ended, any first part may be present.
"""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.log.local import LocalLogProvider
from tests.limits import examples
from tests.unit.log.world import FILE_BYTES, Machine, frames, payload_of, simulate, start

SIZES = (0, 20, 3000, 9000, 40_000)
acts = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 6), st.sampled_from(SIZES)),
    st.tuples(st.just("wait"), st.just(0), st.just(0)),
    st.tuples(st.just("truncate"), st.integers(0, 8), st.just(0)),
    st.tuples(st.sampled_from(["close", "kill", "power"]), st.just(0), st.just(0)),
)


class History:
    """A log, and a model of the frames that it must return."""

    def __init__(self, seed: int) -> None:
        self.machine = Machine(seed)
        self.sizes: dict[int, int] = {}
        self.acked = self.last = self.below = 0
        self.epoch = 0

    async def open(self):
        log = await LocalLogProvider(self.machine.env(), "/log", FILE_BYTES).open(1)
        assert log.epoch > self.epoch
        self.epoch = log.epoch
        found = await frames(log, self.below)
        numbers = [number for number, _ in found]
        assert numbers == list(range(self.below + 1, self.below + 1 + len(numbers)))
        end = self.below + len(numbers)
        assert self.acked <= end <= self.last, (self.acked, end, self.last)
        for number, payload in found:
            assert payload == payload_of(number, self.sizes[number]), number
        self.acked = self.last = end
        return log

    def append(self, log, size: int) -> asyncio.Future[None]:
        self.last += 1
        number = self.last
        self.sizes[number] = size
        future = start(log, number, payload_of(number, size))

        def done(ended: asyncio.Future[None]) -> None:
            if not ended.cancelled() and ended.exception() is None:
                self.acked = max(self.acked, number)

        future.add_done_callback(done)
        return future

    async def run(self, history) -> None:
        log, waiting = await self.open(), []
        for what, count, size in history:
            if what == "append":
                waiting += [self.append(log, size) for _ in range(count)]
                await asyncio.sleep(0.0003)
            elif what == "wait":
                await asyncio.gather(*waiting)
            elif what == "truncate":
                self.below = max(self.below, self.acked - count)
                log.truncate(self.below + 1)
            else:
                if what == "close":
                    await asyncio.gather(*waiting)
                    await log.close()
                elif what == "kill":
                    self.machine.kill()
                else:
                    self.machine.crash()
                log, waiting = await self.open(), []
        await asyncio.gather(*waiting)
        assert self.acked == self.last
        await log.close()
        await (await self.open()).close()


@given(st.lists(acts, max_size=30), st.integers(0, 1000))
@settings(max_examples=examples(300))
def test_random_history_recovers_acknowledged_frames(history, seed) -> None:
    runner = History(seed)
    simulate(lambda: runner.run(history))
