"""What the client iterates over goes on after a call for the next item was cancelled, or failed."""

from __future__ import annotations

import asyncio
import gc
import inspect
from contextlib import aclosing

import pytest

from sarit.client.core.iteration import Items, Mapped, Pulled, Resumed
from tests.limits import HANG_SECONDS
from tests.unit.client.nodes import on_node
from tests.unit.client.surface import FACES


class Source:
    """Numbers up to `end`; each is waited for for some turns of the loop, and comes only to whom the call returns."""

    def __init__(self, end: int = 20) -> None:
        self.next = 0
        self.end = end
        self.failing = 0
        self.closed = False

    async def pull(self) -> int | None:
        for _ in range(3):
            await asyncio.sleep(0)
        if self.failing:
            self.failing -= 1
            raise OSError("not now")
        if self.next == self.end:
            return None
        self.next += 1
        return self.next - 1

    async def pull_list(self) -> list[int] | None:
        first = await self.pull()
        return None if first is None else [10 * first, 10 * first + 1]

    async def generate(self):
        try:
            while (found := await self.pull()) is not None:
                yield found
        finally:
            self.closed = True


async def impatient(items, turns: int) -> list:
    """All items; each call for one is cancelled after so many turns, and made again with one more."""
    found, waited_turns = [], turns
    while True:
        call = asyncio.ensure_future(_outcome(items))
        for _ in range(waited_turns):
            await asyncio.sleep(0)
        if not call.done():
            call.cancel()
            await asyncio.wait([call])
        if call.cancelled():
            waited_turns += 1
            continue
        if call.result() == "end":
            return found
        found.append(call.result())
        waited_turns = turns


async def _outcome(items):
    return await anext(items, "end")


def kinds(source: Source):
    return {
        "pulled": Pulled(source.pull),
        "mapped": Mapped(Pulled(source.pull), lambda number: number),
        "resumed": Resumed(source.generate()),
    }


@pytest.mark.parametrize("kind", ["pulled", "mapped", "resumed"])
@pytest.mark.parametrize("turns", range(6))
def test_cancelled_call_loses_nothing_and_ends_nothing(kind, turns):
    assert asyncio.run(impatient(kinds(Source())[kind], turns)) == list(range(20))


@pytest.mark.parametrize("turns", range(6))
def test_items_of_lists_survive_cancelled_calls(turns):
    found = asyncio.run(impatient(Items(Pulled(Source(5).pull_list)), turns))
    assert found == [0, 1, 10, 11, 20, 21, 30, 31, 40, 41]


@pytest.mark.parametrize("kind", ["pulled", "mapped", "resumed"])
def test_failure_is_not_taken_for_the_end(kind):
    async def main():
        source = Source()
        items = kinds(source)[kind]
        assert await anext(items) == 0
        source.failing = 1
        with pytest.raises(OSError, match="not now"):
            await anext(items)
        if kind == "resumed":  # the generator has ended; its error remains
            with pytest.raises(OSError, match="not now"):
                await anext(items)
        else:
            assert await anext(items) == 1

    asyncio.run(main())


@pytest.mark.parametrize("waiting", [False, True])
@pytest.mark.parametrize("dropped", [False, True])
def test_generator_is_closed_with_its_iterator(waiting, dropped):
    async def main():
        source = Source()
        items = Resumed(source.generate())
        assert await anext(items) == 0
        if waiting:
            call = asyncio.ensure_future(_outcome(items))
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            del call
        if dropped:
            del items
            gc.collect()
            for _ in range(5):
                await asyncio.sleep(0)
        else:
            async with aclosing(items):
                pass
            assert await anext(items, None) is None
        assert source.closed

    asyncio.run(main())


def test_no_public_method_is_an_asynchronous_generator():
    """It would end with the first call that is cancelled."""
    found = []
    for name, kind in FACES["asyncio"].items():
        for method, function in inspect.getmembers(kind, inspect.isfunction):
            if inspect.isasyncgenfunction(inspect.unwrap(function)) and (method == "__aiter__" or method[0] != "_"):
                found.append(f"{name}.{method}")
    assert not found, "return an object of sarit.client.core.iteration"


@on_node
async def test_readers_go_on_after_calls_with_a_time_limit(made) -> None:
    """`wait_for(anext(events), 0.01)` in a loop is the usual way to read with a time limit."""
    client = made.client
    await client.create_stream("s/t")
    group = await client.reader_groups.create("s/g", "s/t")
    async with client.reader("s/t") as reader, await group.reader("r") as member:
        iterators = [aiter(reader), client.reader("s/t").batches(), aiter(member)]

        async def read(items):
            deadline = asyncio.get_running_loop().time() + HANG_SECONDS
            while asyncio.get_running_loop().time() < deadline:
                try:
                    return await asyncio.wait_for(anext(items), 0.01)
                except TimeoutError:
                    continue
            raise AssertionError("nothing came")

        for items in iterators:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(items), 0.05)
        async with client.writer("s/t") as writer:
            writer.write_many([b"one", b"two"])
        assert [await read(iterators[0]) for _ in range(2)] == [b"one", b"two"]
        assert await read(iterators[1]) in ([b"one", b"two"], [b"one"])
        assert [(await read(iterators[2])).event for _ in range(2)] == [b"one", b"two"]
