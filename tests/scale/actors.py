"""The actors of the mixed load: each repeats rounds of one kind of work, with its own client.

Streams are truncated now and then, so that retained data does not look like a leak.  An actor checks only what it sees
itself; `proof.py`, the simulation and the chaos runs check the rest.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sarit.client.core.values import TransactionStatus
from sarit.client.tables.changes import Put, Remove
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Truncated

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from sarit.client.aio import Client

SCOPE: Final = "mixed"
EVENTS: Final = f"{SCOPE}/events"
PAYMENTS: Final = f"{SCOPE}/payments"
COUNTER: Final = f"{SCOPE}/counter"
TABLE: Final = f"{SCOPE}/table"
KEYS: Final = 5_000
GROUPS: Final = 3
_ORDER: Final = [f"order-{number}" for number in range(200)]
_LEASE_SECONDS: Final = 10.0
_LEFT_OPEN_ONE_IN: Final = 25
_ABORTED_ONE_IN: Final = 5
_EVENT: Final = b"x" * 300


@dataclass(slots=True)
class Turn:
    """The context of a round; `counts`: what it did."""

    client: Client
    rng: random.Random
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, number: int = 1) -> None:
        """It did something."""
        self.counts[what] = self.counts.get(what, 0) + number


async def prepare(client: Client) -> None:
    """Make what the actors share."""
    await client.create_scope(SCOPE)
    await client.create_stream(EVENTS, segments=2)
    await client.create_stream(PAYMENTS, segments=4)
    await client.tables.create(TABLE, primary_key_bytes=8, partitions=2)
    shared = await _counter(client)
    await shared.initialize(b"0")


async def write_events(turn: Turn) -> None:
    """A writer that lives for a few seconds, at some thousand events per second."""
    async with turn.client.writer(EVENTS) as writer:
        for _ in range(turn.rng.randrange(20, 60)):
            for key in _ORDER:
                writer.write(_EVENT, key=key)
            await writer.drain()
            await asyncio.sleep(0.1)
            turn.count("events written", len(_ORDER))
        await writer.flush()


async def scale(turn: Turn) -> None:
    """Another number of segments."""
    try:
        turn.count("scales", await turn.client.stream(EVENTS).scale(turn.rng.randrange(2, 9)))
    except Conflict:  # another scaled it meanwhile
        turn.count("scales in vain")
    await asyncio.sleep(turn.rng.random() * 3)


async def truncate(turn: Turn) -> None:
    """Truncate what was written until now."""
    for stream in (EVENTS, PAYMENTS):
        try:
            await turn.client.truncate_stream(stream, cut="tail")
            turn.count("truncations")
        except Invalid:  # another actor truncated beyond that meanwhile
            turn.count("truncations overtaken")
    await asyncio.sleep(10)


async def transactions(turn: Turn) -> None:
    """Some transactions at once: committed, aborted, or left to their lease."""
    writer = turn.client.transactional_writer(PAYMENTS, lease_seconds=_LEASE_SECONDS)

    async def one() -> None:
        transaction = await writer.begin()
        for _ in range(turn.rng.randrange(1, 10)):
            transaction.write(_EVENT, key=turn.rng.choice(_ORDER))
        if not turn.rng.randrange(_LEFT_OPEN_ONE_IN):
            await transaction.flush()
            transaction.release()
            turn.count("transactions left")
        elif not turn.rng.randrange(_ABORTED_ONE_IN):
            await transaction.abort()
            turn.count("transactions aborted")
        else:
            await transaction.commit()
            assert await transaction.status() is TransactionStatus.COMMITTED
            turn.count("transactions committed")

    async with writer, asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(one())
    await asyncio.sleep(turn.rng.random())


async def read_events(turn: Turn) -> None:
    """A reader that reads for a while and disappears without closing."""
    reader = turn.client.reader(EVENTS, turn.rng.choice(("head", "tail")), skip_truncated=turn.rng.random() < 0.5)
    end = asyncio.get_running_loop().time() + turn.rng.random() * 5
    try:
        await reader.open()
        while asyncio.get_running_loop().time() < end:
            turn.count("events read", len(await reader.read_events(5000, timeout=1)))
    except Truncated:
        turn.count("readers overtaken by truncation")
    finally:
        reader.close()
    turn.count("readers")


async def read_in_group(turn: Turn) -> None:
    """Two readers join one of a few groups and read; one leaves, the other just goes.  Now and then: deleted."""
    name = f"{SCOPE}/group-{turn.rng.randrange(GROUPS)}"
    try:
        group = await turn.client.reader_groups.create(name, EVENTS, start="tail", automatic_checkpoint=2.0)
        who = f"r{turn.rng.randrange(1 << 40)}"
        leaving, going = [
            await group.reader(f"{who}-{number}", skip_truncated=True, death_timeout=5.0) for number in range(2)
        ]
        for _ in range(turn.rng.randrange(10, 40)):
            for reader in (leaving, going):
                batch = await reader.read_batch(timeout=0.05)
                turn.count("events read in groups", len(getattr(batch, "events", ())))
        await leaving.close()
        turn.count("readers of groups", 2)
        if not turn.rng.randrange(20):
            await turn.client.reader_groups.delete(name)
            turn.count("groups deleted")
    except (Conflict, NotFound, Exists) as error:  # another deleted it, or was declared offline on a busy machine
        turn.count(f"readers of groups that ended with {type(error).__name__}")


async def use_table(turn: Turn) -> None:
    """Puts, conditional changes, removals, scans over a fixed number of keys."""
    table, rng = turn.client.table(TABLE), turn.rng
    keys = [rng.randrange(KEYS).to_bytes(8, "big") for _ in range(100)]
    await table.put_many([(key, _EVENT) for key in keys])
    found = await table.get_many(keys)
    for entry in found[:20]:
        if entry is None:
            continue
        try:
            await table.replace(entry.primary, _EVENT[: rng.randrange(300)], entry.version)
        except Conflict:
            turn.count("table conflicts")
    await table.update([Put(keys[0], b"one")])
    await table.update([Remove(keys[0])])
    async for page in table.scan_pages(first=keys[1], page_entries=100):
        turn.count("entries scanned", len(page))
        break
    turn.count("table changes", len(keys) + 22)
    await asyncio.sleep(0.2)


async def synchronize(turn: Turn) -> None:
    """Conditional updates of a shared counter; it compacts itself."""
    shared = await _counter(turn.client)
    for _ in range(50):
        await shared.update(lambda _: [b"1"])
        await asyncio.sleep(0.02)
    turn.count("synchronizer updates", 50)


async def come_and_go(turn: Turn) -> None:
    """A stream is made, written, read, sealed and deleted."""
    name = f"{SCOPE}/short-{turn.rng.randrange(1000)}-{turn.rng.randrange(1 << 40)}"
    await turn.client.create_stream(name, segments=2, tags=["short"])
    async with turn.client.writer(name) as writer:
        for number in range(100):
            writer.write(str(number), key=str(number))
    read = 0
    async with turn.client.reader(name, end="tail") as reader:
        async for _ in reader:
            read += 1
    assert read == 100, f"{read} of 100 events of a stream were read"
    await turn.client.delete_stream(name, seal=True)
    turn.count("streams made and deleted")
    await asyncio.sleep(0.5)


async def _counter(client: Client):
    return await client.coordination.synchronizer(
        COUNTER, int, lambda state, update, _: state + int(update), snapshot=lambda state: b"%d" % state,
        compact_after_bytes=20_000,
    )  # fmt: skip


ACTORS: Final[dict[str, Callable[[Turn], Awaitable[None]]]] = {
    "write": write_events,
    "scale": scale,
    "truncate": truncate,
    "transactions": transactions,
    "read": read_events,
    "read too": read_events,
    "group": read_in_group,
    "table": use_table,
    "synchronizer": synchronize,
    "synchronizer too": synchronize,
    "streams": come_and_go,
}
