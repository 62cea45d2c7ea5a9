"""A shared map under random changes of several clients whose connections break, against a model in plain Python.

`simulation/actors/structures.py` does the same with stores that die, for all structures but the set."""

import asyncio
import random

from checkers.register import UNKNOWN, Call, check
from checkers.structures import REFUSED, SharedEntries
from sarit.client import aio
from sarit.core.errors import Conflict
from tests.unit.client.nodes import on_node

CALLS = 90


@on_node
async def test_random_changes_of_a_map_have_one_order(made) -> None:
    """Compacted meanwhile: its stream does not grow without a bound, and a late copy has the same."""
    clients = [await aio.connect(made.address) for _ in range(3)]
    copies = [await one.structures.map("s/map") for one in clients]
    calls: list[Call] = []
    loop = asyncio.get_running_loop()

    async def call(number: int, action, work) -> None:
        begun, answer = loop.time(), UNKNOWN
        try:
            answer = await work
        except Conflict:
            answer = REFUSED
        calls.append(Call(f"{number}", "map", action, answer, begun, loop.time()))

    async def items(copy):
        return tuple((entry.key, entry.value, entry.version) for entry in await copy.items())

    async def act(number: int, copy) -> None:
        rng = random.Random(number)
        for step in range(CALLS):
            key, value = rng.choice("abc"), b"%d.%d" % (number, step)
            chance = rng.random()
            if chance < 0.2:
                await call(number, ("remove", key), copy.remove(key))
            elif chance < 0.3:
                await call(number, ("items",), items(copy))
            else:
                known = await copy.get(key, fresh=False)
                expected = rng.choice((None, 0 if known is None else known.version))
                await call(number, ("put", key, value, expected), copy.put(key, value, expected))

    async def cut() -> None:
        while True:
            await asyncio.sleep(0.02)
            for client in clients:
                made.client = client
                made.cut_connections()

    own, cutting = made.client, asyncio.ensure_future(cut())
    await asyncio.gather(*(act(*each) for each in enumerate(copies)))
    cutting.cancel()
    made.client = own
    late = await own.structures.map("s/map")
    await call(9, ("items",), items(late))
    assert check(calls, lambda *_: SharedEntries()) == []
    assert any(one.answer == REFUSED for one in calls), "no condition was refused: the test shows too little"
    entries = await own.coordination.revisioned("s/map")
    for _ in range(1000):  # each compacts with a probability of a twentieth
        if (await entries.oldest()).offset > 0:
            break
        await late.put("a", b"")
    else:
        raise AssertionError("it was never compacted")
    assert await items(await own.structures.map("s/map")) == await items(late)
    for client in clients:
        await client.close()
