"""What is done to a cluster under load: kills, moves, joins, stops; each prints a row, and returns its figures."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import statistics
import time
from typing import TYPE_CHECKING, Any

from sarit.client import aio
from sarit.core.errors import NotFound
from sarit.core.names import SegmentId
from tests.cluster.container_load import RETRY_SECONDS, streams_by_container
from tests.cluster.openings import Openings
from tests.cluster.processes import LEASE_SECONDS
from tests.limits import HANG_SECONDS

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from sarit.cluster.status import ClusterStatus, ClusterView
    from tests.cluster.container_load import ContainerLoad
    from tests.cluster.processes import RunningCluster

    Figures = dict[str, object]

POLL_SECONDS = 0.05
PROBES = "probes"


class Drill:
    """A cluster under load, and what is done to it."""

    def __init__(self, cluster: RunningCluster, view: ClusterView, load: ContainerLoad, rng: random.Random) -> None:
        self.cluster = cluster
        self.view = view
        self.load = load
        self.rng = rng
        self.openings = Openings(cluster)

    async def until(self, holds: Callable[[ClusterStatus], bool]) -> ClusterStatus:
        """Wait until the cluster is so; the load is checked meanwhile."""
        end = time.monotonic() + HANG_SECONDS
        while not holds(status := await self.view.status()):
            self.load.check()
            assert time.monotonic() < end, status
            await asyncio.sleep(POLL_SECONDS)
        return status

    async def settled(self) -> ClusterStatus:
        """Wait until every store is up, each container has one that serves it, and all writers go on."""
        status = await self.until(self._is_settled)
        await self.load.more(3)
        return status

    def _is_settled(self, status: ClusterStatus) -> bool:
        found = status.map
        return (
            found is not None
            and len(status.stores) == len(self.cluster.stores)
            and set(found.stores) == set(status.stores)
            and not found.moving
            and all(owner in status.stores for owner in found.owners)
        )

    def owner(self, status: ClusterStatus) -> tuple[str, list[int]]:
        """A store that has containers, drawn at random, and these."""
        store = self.rng.choice([each for each in sorted(status.stores) if status.containers_of(each)])
        return store, status.containers_of(store)

    async def restart(self, store: str) -> None:
        """Start a store again; it is a member when this returns."""
        await asyncio.to_thread(lambda: self.cluster.stores[store].begin().wait())

    def row(self, what: str, pauses: list[float], since: float) -> None:
        """Print one row."""
        print(
            f"{what}; writers waited p50 {statistics.median(pauses):.2f}, max {max(pauses):.2f} s; "
            f"{self.openings.since(since)}",
            flush=True,
        )


def is_empty(store: str) -> Callable[[ClusterStatus], bool]:
    """Whether a store serves nothing."""
    return lambda status: not status.containers_of(store)


def is_gone(store: str) -> Callable[[ClusterStatus], bool]:
    """Whether the lease of a store has ended."""
    return lambda status: store not in status.stores


def has_part(store: str, containers: int) -> Callable[[ClusterStatus], bool]:
    """Whether a store serves so many containers."""
    return lambda status: len(status.containers_of(store)) >= containers


def figures(what: str, pauses: list[float], goal: tuple[float, float] | None = None) -> Figures:
    """Print the sum of all rows beside its goal (p50, max)."""
    p50, most = statistics.median(pauses), max(pauses)
    text = f"{what}: writers waited p50 {p50:.2f}, max {most:.2f} s ({len(pauses)} waits; lease {LEASE_SECONDS:g} s"
    if goal is not None:
        met = "met" if p50 <= goal[0] and most <= goal[1] else "MISSED"
        text += f", goal p50 <= {goal[0]:g}, max <= {goal[1]:g}: {met}"
    print(text + ")", flush=True)
    return {"waits": len(pauses), "p50": round(p50, 2), "max": round(most, 2)}


async def kills(drill: Drill, times: int) -> Figures:
    """kill -9 of a store that has containers."""
    waits: list[float] = []
    for number in range(1, times + 1):
        status = await drill.settled()
        await asyncio.sleep(drill.rng.uniform(0.2, 2.0))
        store, containers = drill.owner(status)
        killed, killed_at = time.monotonic(), time.time()
        await asyncio.to_thread(drill.cluster.stores[store].kill)
        await drill.load.more(3)
        each = [drill.load.streams[container].wait_since(killed) for container in containers]
        others = [
            stream.pause_since(killed) for stream in drill.load.streams if stream.container not in containers
        ]  # fmt: skip
        beside = f"others paused {max(others, default=0):.2f} s"
        what = f"{number:3} killed {store} with {len(containers)} containers ({beside})"
        drill.row(what, each, killed_at)
        waits += each
        await drill.restart(store)
    return {"kills": times, **figures(f"{times} kills", waits, (LEASE_SECONDS + 2, LEASE_SECONDS + 4))}


async def moves(drill: Drill, times: int) -> Figures:
    """All containers of a store move: it is drained, or stopped with SIGTERM."""
    seconds: list[float] = []
    pauses: list[float] = []
    for number in range(1, times + 1):
        status = await drill.settled()
        source = max(sorted(status.stores), key=lambda store: len(status.containers_of(store)))
        containers = status.containers_of(source)
        began, began_at = time.monotonic(), time.time()
        if number % 2:
            await drill.view.registers.create(f"drained/{source}", b"")
            await drill.until(is_empty(source))
        else:
            assert await asyncio.to_thread(drill.cluster.stores[source].stop) == 0
        took = time.monotonic() - began
        await drill.load.more(3)
        each = [drill.load.streams[container].pause_since(began) for container in containers]
        how = "drained" if number % 2 else "stopped"
        drill.row(f"{number:3} {how} {source}: {len(containers)} containers moved in {took:.2f} s", each, began_at)
        if number % 2:
            await drill.view.undrain(source)
        else:
            await drill.restart(source)
        seconds.append(took)
        pauses += each
    found = figures(f"{times} times all containers moved, in {max(seconds):.2f} s at most", pauses, (0.5, 1.0))
    return {"seconds": round(max(seconds), 2), **found}


async def join(drill: Drill, times: int) -> Figures:
    """One more store: it gets its part, and no other container moves."""
    pauses: list[float] = []
    for _ in range(times):
        before = (await drill.settled()).map
        assert before is not None
        wanted = len(before.owners) // (len(drill.cluster.stores) + 1)
        began, began_at = time.monotonic(), time.time()
        process = await asyncio.to_thread(drill.cluster.add_store)
        await drill.until(has_part(process.name, wanted))
        took = time.monotonic() - began
        after = (await drill.settled()).map
        assert after is not None
        moved = [number for number, owner in enumerate(after.owners) if owner != before.owners[number]]
        assert len(moved) == wanted, (moved, wanted)
        assert all(after.owners[number] == process.name for number in moved)
        each = [drill.load.streams[container].pause_since(began) for container in moved]
        drill.row(f"{process.name} joined and had its {len(moved)} containers after {took:.1f} s", each, began_at)
        pauses += each
    return figures(f"{times} joins", pauses)


async def stops(drill: Drill, times: int) -> Figures:
    """SIGSTOP of an owner for two leases, then SIGCONT: it answers nothing that another store has changed since."""
    assert drill.cluster.bookkeeper is not None, "a stopped store keeps the locks on logs in directories: --services"
    waits: list[float] = []
    probes = streams_by_container(len(drill.load.streams), PROBES)
    controller = drill.cluster.controllers[-1].address
    async with await aio.connect(controller, retry_timeout=RETRY_SECONDS) as before:
        await before.create_scope(PROBES)
        for name in probes:
            await before.create_stream(name)
        # It asks no controller who has the containers, so that its requests wait for the stopped store.
        before.session.connections._on_unanswered = lambda *_: None
        for number in range(1, times + 1):
            status = await drill.settled()
            store, containers = drill.owner(status)
            # Connections to the owner, which outlive its lease.
            for container in containers:
                await length_of(before, probes[container])
            stopped, stopped_at = time.monotonic(), time.time()
            drill.cluster.stores[store].signal(signal.SIGSTOP)
            try:
                await drill.until(is_gone(store))
                lengths = await write_probes(controller, [probes[container] for container in containers])
                await asyncio.sleep(max(0.0, stopped + 2 * LEASE_SECONDS - time.monotonic()))
                # They are in its socket when it goes on.
                asked = [asyncio.create_task(length_of(before, probes[container])) for container in containers]
                await asyncio.sleep(0.2)
                assert not any(task.done() for task in asked)
            finally:
                drill.cluster.stores[store].signal(signal.SIGCONT)
            for task, length in zip(asked, lengths, strict=True):
                found = await task
                assert found >= length, f"a stopped store answered {found} bytes, and {length} were acknowledged"
            await drill.load.more(3)
            each = [drill.load.streams[container].wait_since(stopped) for container in containers]
            drill.row(f"{number:3} stopped {store} with {len(containers)} containers", each, stopped_at)
            waits += each
    return figures(f"{times} stops of {2 * LEASE_SECONDS:g} s", waits)


async def write_probes(controller: str, names: list[Any]) -> list[int]:
    """Write to each stream by a client that knows nothing of earlier owners; their lengths after that."""
    async with await aio.connect(controller, retry_timeout=RETRY_SECONDS) as client:
        found = []
        for name in names:
            async with client.writer(name) as writer:
                writer.write(b"after the lease")
            found.append(await length_of(client, name))
        return found


async def length_of(client: Any, name: Any) -> int:
    """The length of the only segment of a stream."""
    (info,) = (await client.segment_infos(name, [SegmentId(0, 0)])).values()
    return info.end_offset


async def zookeeper(drill: Drill, times: int) -> Figures:
    """ZooKeeper is away for two leases under load: writes go on, and each container stays where it is."""
    pauses: list[float] = []
    for number in range(1, times + 1):
        before = (await drill.settled()).map
        away, away_at = time.monotonic(), time.time()
        await asyncio.to_thread(drill.cluster.zookeeper.kill)
        while time.monotonic() < away + 2 * LEASE_SECONDS:
            await drill.load.more(1)
        await asyncio.to_thread(drill.cluster.zookeeper.start)
        back = time.monotonic()
        after = (await drill.settled()).map
        assert before is not None
        assert after is not None
        assert after.owners == before.owners, (before, after)
        each = [stream.pause_since(away) for stream in drill.load.streams]
        later = time.monotonic() - back
        drill.row(
            f"{number:3} ZooKeeper was away for {back - away:.1f} s, all is as before {later:.1f} s later",
            each,
            away_at,
        )
        pauses += each
    return figures(f"{times} times without ZooKeeper", pauses)


async def controllers(drill: Drill, times: int) -> Figures:
    """kill -9 of a controller in the middle of graceful moves: the other one goes on with them."""
    pauses: list[float] = []
    victim = drill.cluster.controllers[0]
    for number in range(1, times + 1):
        status = await drill.settled()
        source = max(sorted(status.stores), key=lambda store: len(status.containers_of(store)))
        containers = status.containers_of(source)
        began, began_at = time.monotonic(), time.time()
        await drill.view.registers.create(f"drained/{source}", b"")
        await drill.until(lambda status: status.map is not None and bool(status.map.moving))
        await asyncio.to_thread(victim.kill)
        await drill.until(is_empty(source))
        took = time.monotonic() - began
        await drill.load.more(3)
        each = [drill.load.streams[container].pause_since(began) for container in containers]
        what = f"{number:3} killed a controller: {len(containers)} containers moved in {took:.2f} s all the same"
        drill.row(what, each, began_at)
        with contextlib.suppress(NotFound):
            await drill.view.undrain(source)
        await asyncio.to_thread(lambda: victim.begin().wait())
        pauses += each
    return figures(f"{times} kills of a controller in the middle of moves", pauses)


KINDS: dict[str, Callable[[Drill, int], Awaitable[Figures]]] = {
    each.__name__: each for each in (kills, moves, join, stops, zookeeper, controllers)
}
