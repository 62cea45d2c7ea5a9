"""Random histories of transactions, plain writes, scales and broken connections against a simple model.

The model: a list of events for each key, to which a plain write adds its event, and a commit all of its transaction's.
"""

import asyncio
import random

import pytest

from tests.limits import HANG_SECONDS
from tests.unit.client.nodes import create_shrinkable, local_node

KEYS = [f"k{n}" for n in range(8)]
STEPS = 120


class Model:
    """What must be read, and what the transactions hold until then."""

    def __init__(self) -> None:
        self.stored: dict[str, list[bytes]] = {key: [] for key in KEYS}
        self.open: dict[object, list[tuple[str, bytes]]] = {}

    def commit(self, transaction: object) -> None:
        for key, event in self.open.pop(transaction):
            self.stored[key].append(event)


async def history(made, rng: random.Random) -> Model:
    await create_shrinkable(made.client, "s/t", rng.randint(1, 4))
    stream, plain = made.client.stream("s/t"), made.client.writer("s/t")
    writer = made.client.transactional_writer("s/t")
    model, number, names = Model(), 0, {}

    async def write(to, take) -> None:
        nonlocal number
        for _ in range(rng.randint(1, 30)):
            key, number = rng.choice(KEYS), number + 1
            event = f"{names.get(to, 'p')}:{key}:{number}".encode()
            to.write(event, key=key)
            take(key, event)
        if to is plain or rng.random() < 0.3:
            await to.flush()

    async def end(transaction) -> None:
        if rng.random() < 0.7:
            # Several decided at once are executed together; plain writes continue after them.
            await transaction.commit(wait=True)
            model.commit(transaction)
        else:
            await transaction.abort()
            del model.open[transaction]

    for _ in range(STEPS):
        chance = rng.random()
        if chance < 0.2 and len(model.open) < 6:
            transaction = await writer.begin()
            names[transaction] = len(names)
            model.open[transaction] = []
        elif chance < 0.5 and model.open:
            transaction = rng.choice(list(model.open))
            held = model.open[transaction]
            await write(transaction, lambda key, event, held=held: held.append((key, event)))
        elif chance < 0.65 and model.open:
            await end(rng.choice(list(model.open)))
        elif chance < 0.8:
            await write(plain, lambda key, event: model.stored[key].append(event))
        elif chance < 0.9:
            await stream.scale(rng.randint(1, 6))
        else:
            made.cut_connections()
    await plain.close()
    return model


@pytest.mark.parametrize("seed", [0, 1, 101])  # 101: barriers multiplied with every scale, and writers stalled
def test_random_histories_match_the_model(tmp_path, seed: int) -> None:
    async def go() -> None:
        async with asyncio.timeout(HANG_SECONDS), local_node(tmp_path / "node") as made:
            model = await history(made, random.Random(seed))
            found: dict[str, list[bytes]] = {key: [] for key in KEYS}
            for event in await made.read("s/t"):
                found[event.split(b":")[1].decode()].append(event)
            assert found == model.stored
            segments: dict[int, list[tuple[int, bytes]]] = {}
            async for table in (await made.client.stream("s/t").batch()).arrow_batches():
                for event, segment, offset in zip(*table.to_pydict().values(), strict=True):
                    segments.setdefault(segment, []).append((offset, event.split(b":")[0]))
            for rows in segments.values():
                owners = [owner for _, owner in sorted(rows)]
                runs = [owner for at, owner in enumerate(owners) if owner != b"p" and owners[at - 1 : at] != [owner]]
                assert len(runs) == len(set(runs)), "the events of a transaction do not stand together"
            for transaction in list(model.open):
                await transaction.abort()

    asyncio.run(go())
