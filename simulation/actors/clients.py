"""Shared by the actors that use the Python client: connect, retry, discover segments, read rows."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from sarit.client.aio import Client, open_client
from sarit.core.errors import Conflict, Invalid, Unavailable
from sarit.core.names import SegmentId, StreamName
from simulation.world import now

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Iterator

    from checkers.graph import Graph
    from sarit.client.reader.reader import EventReader
    from sarit.core.cuts import StreamCut
    from simulation.cluster import Cluster

T = TypeVar("T")

SCOPE: Final = "app"
FRAME_BYTES: Final = 8


async def connect_client(cluster: Cluster) -> Client:
    """A new client, connected as soon as a controller answers; the scope exists."""
    rng = cluster.rng("stream clients")
    while True:
        try:
            client = await open_client(cluster.controller_address(), env=cluster.clients.env)
            break
        except Unavailable:
            await asyncio.sleep(0.1 + rng.random())
    await client.create_scope(SCOPE)
    return client


async def scale_now_and_then(
    cluster: Cluster, client: Client, stream: StreamName, who: str,
    *, times: tuple[int, ...], pause: float, segments: tuple[int, int],
) -> None:  # fmt: skip
    """Scale a stream one of so many `times`, to between `segments`, at random within `pause` seconds each.

    The least may not exceed the segments of the options.  `who` names the draws (rng) and the notes."""
    rng = cluster.rng(f"{who} scaler")
    low, high = segments
    for _ in range(rng.choice(times)):
        await asyncio.sleep(rng.random() * pause)
        try:
            await client.stream(stream).scale(rng.randint(min(low, cluster.options.segments), high))
        except (Unavailable, Conflict, Invalid) as error:
            cluster.trace.note(f"{who} scale", repr(error))


async def retry_forever(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call while it raises Unavailable: faults may last longer than its own timeout."""
    while True:
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(0.2)


async def call_and_crash(
    cluster: Cluster, rng: random.Random, calls: int, who: str,
    opened: Callable[[Client], Awaitable[T]], call: Callable[[T], Awaitable[None]],
) -> None:  # fmt: skip
    """Make so many calls on what is `opened` with a client; after a crash of the client, with a new one.

    `who`: names the notes of calls that fail, and the probe of crashes."""
    while calls:
        client = await connect_client(cluster)
        copies = await retry_forever(partial(opened, client))
        crashed = False
        while calls and not crashed:
            calls -= 1
            await asyncio.sleep(rng.random() * 4 * cluster.options.think_seconds)
            work = call(copies)
            crash = cluster.options.client_crashes and not cluster.quiet and rng.random() < 0.1
            try:
                async with asyncio.timeout(rng.random() * 0.1 if crash else None):
                    await work
            except Unavailable as error:  # first: one of its kinds is a TimeoutError
                cluster.trace.note(who, repr(error))
            except TimeoutError:
                cluster.trace.probe(f"{who.replace(' ', '_')}_crashed")
                crashed = True
        await client.close()


async def discover_segments(client: Client, stream: StreamName, graph: Graph, ended: set[SegmentId]) -> list[SegmentId]:
    """All segments from the stream's head on; `ended` caches those whose successors are known already."""
    session = client.session
    found = dict.fromkeys(sorted(await retry_forever(lambda: session.controller.head_segments(stream))))
    waiting = [segment for segment in found if segment not in ended]
    following = {segment: [*_followers(graph, segment)] for segment in found if segment in ended}
    waiting += [later for each in following.values() for later in each if later not in found]
    while waiting:
        segment = waiting.pop()
        found[segment] = None
        if segment in ended:
            waiting += [later for later in _followers(graph, segment) if later not in found]
            continue
        for successor in await retry_forever(partial(client.successors, stream, segment)):
            ended.add(segment)
            graph.follows(successor.segment.packed, sorted(before.packed for before in successor.predecessors))
            if successor.segment not in found:
                waiting.append(successor.segment)
    return list(found)


def _followers(graph: Graph, segment: SegmentId) -> Iterator[SegmentId]:
    for later, before in graph.predecessors.items():
        if segment.packed in before:
            yield SegmentId.unpack(later)


def packed(cut: StreamCut) -> dict[int, int]:
    """The offsets of a cut by packed segments, as checkers know them."""
    return {segment.packed: offset for segment, offset in cut.positions.items()}


async def next_rows(reader: EventReader, timeout: float) -> list[tuple[int, int, bytes, float]] | None:
    """The next (packed segment, offset, event, time of asking) of a reader; None at the end of what it reads."""
    begun = now()
    try:
        async with asyncio.timeout(timeout):
            events = await reader.next_events()
    except Unavailable:
        raise
    except TimeoutError:
        return []
    if events is None:
        return None
    rows, offset = [], events.position()
    for event in events.left:
        rows.append((events.segment.packed, offset, event, begun))
        offset += FRAME_BYTES + len(event)
    return rows
