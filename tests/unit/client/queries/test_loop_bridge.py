"""From the event loop to a thread: items in order, a bound on those ahead, failures, and both ways of ending early."""

from __future__ import annotations

import asyncio

import pytest

from sarit.client.limits import QUERY_BATCHES_AHEAD
from sarit.client.queries.loop_bridge import LoopBridge
from sarit.core.errors import Truncated, Unavailable
from sarit.env.real import real_env


class Numbers:
    """Numbers as they are asked for; `failure`: raised after the last one."""

    def __init__(self, count, failure=None):
        self.made = 0
        self.closed = False
        self._count = count
        self._failure = failure

    async def items(self):
        try:
            while self.made < self._count:
                self.made += 1
                await asyncio.sleep(0)
                yield self.made
            if self._failure is not None:
                raise self._failure
        finally:
            self.closed = True


def run(work):
    """Run `work(bridge, on_thread)` on a loop; `on_thread` awaits a call on another thread."""

    async def main():
        worker = real_env().threads.worker("query")
        bridge = LoopBridge()
        try:
            return await work(bridge, worker.run)
        finally:
            bridge.close()
            await worker.close()

    return asyncio.run(main())


def test_items_come_in_order_and_the_iterator_is_closed():
    numbers = Numbers(500)

    async def work(bridge, on_thread):
        assert await on_thread(lambda: list(bridge.iterate(numbers.items()))) == list(range(1, 501))

    run(work)
    assert numbers.closed


def test_no_more_items_are_made_than_are_ahead():
    numbers = Numbers(1000)

    async def work(bridge, on_thread):
        items = bridge.iterate(numbers.items())
        assert await on_thread(lambda: next(items)) == 1
        for _ in range(1000):
            await asyncio.sleep(0)
        assert 1 < numbers.made <= 2 * QUERY_BATCHES_AHEAD + 1
        assert await on_thread(lambda: sum(1 for _ in items)) == 999

    run(work)


def test_failure_comes_after_the_items_before_it():
    async def work(bridge, on_thread):
        items = bridge.iterate(Numbers(3, Truncated("gone", 7)).items())
        assert [await on_thread(lambda: next(items)) for _ in range(3)] == [1, 2, 3]
        with pytest.raises(Truncated) as raised:
            await on_thread(lambda: next(items))
        assert raised.value.start_offset == 7

    run(work)


def test_iterator_that_is_closed_early_closes_its_source():
    numbers = Numbers(1000)

    async def work(bridge, on_thread):
        items = bridge.iterate(numbers.items())
        await on_thread(lambda: next(items))
        await on_thread(items.close)
        while not numbers.closed:
            await asyncio.sleep(0)

    run(work)
    assert numbers.made < 1000


@pytest.mark.parametrize("iterates", [False, True])
def test_whoever_waits_on_the_thread_is_woken_when_the_bridge_is_closed(iterates):
    async def never():
        await asyncio.Event().wait()
        yield 1

    async def work(bridge, on_thread):
        def call():
            return next(bridge.iterate(never())) if iterates else bridge.run(asyncio.Event().wait())

        waiting = asyncio.ensure_future(on_thread(call))
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not waiting.done()
        bridge.close()
        with pytest.raises(Unavailable, match="the query has ended"):
            await waiting

    run(work)


def test_closed_bridge_runs_nothing():
    async def work(bridge, on_thread):
        bridge.close()
        ran = []

        async def note():
            ran.append(1)

        for call in (lambda: bridge.run(note()), lambda: next(bridge.iterate(Numbers(3).items()))):
            with pytest.raises(Unavailable):
                await on_thread(call)
        assert ran == []

    run(work)


def test_source_of_an_iterator_is_closed_with_the_bridge():
    numbers = Numbers(10**9)

    async def work(bridge, on_thread):
        items = bridge.iterate(numbers.items())
        await on_thread(lambda: next(items))
        bridge.close()
        while not numbers.closed:
            await asyncio.sleep(0)

    run(work)
