"""Processes that share a state through a synchronizer: they update it, compact it, crash and start with a new copy.

The state is a chained hash over its updates (`checkers/synchronizer.py`); every update is unique.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from checkers import register
from checkers.register import UNKNOWN, Call
from checkers.synchronizer import SharedState, after
from simulation.actors.clients import SCOPE, call_and_crash, connect_client, retry_forever
from simulation.actors.readers import within_deadline
from simulation.world import now

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Hashable, Sequence

    from checkers.log import Violation
    from sarit.client.aio import Client
    from sarit.client.sync.revisioned_stream import Revision
    from sarit.client.sync.synchronizer import StateSynchronizer
    from simulation.cluster import Cluster

STREAMS: Final = (f"{SCOPE}/shared-0", f"{SCOPE}/shared-1")
_COMPACT_BYTES: Final = 400
_CALLS: Final = 25


class SynchronizerActors:
    """All processes, and their history."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.calls: list[Call] = []

    def __repr__(self) -> str:
        return f"<SynchronizerActors, {len(self.calls)} calls>"

    def start(self) -> list[asyncio.Task[Any]]:
        """Tasks that end by themselves."""
        synchronizer_users = range(self.cluster.options.synchronizer_users)
        return [
            self.cluster.spawn(SynchronizerActor(self, number).run(), f"sharer {number}")
            for number in synchronizer_users
        ]

    def check(self) -> list[Violation]:
        """Histories that no order explains."""
        return register.check(self.calls, _model)

    async def read_again(self, name: str) -> None:
        """A new copy, from what the stream holds now."""
        if not self.cluster.options.synchronizer_users:
            return
        client = await connect_client(self.cluster)
        for stream in STREAMS:
            begun = now()
            copy = await within_deadline(initialized_copy(client, stream), f"copy of {stream}")
            self.record(f"scan {name}", stream, ("get",), copy.state, begun)
        await client.close()

    def record(self, process: str, on: Hashable, action: tuple[Any, ...], answer: Any, begun: float) -> None:
        """Record a call that ended now, or whose outcome stays unknown."""
        self.calls.append(Call(process, on, action, answer, begun, inf if answer is UNKNOWN else now()))


def _model(on: Hashable, calls: Sequence[Call]) -> register.Model:
    return SharedState()


async def initialized_copy(client: Client, stream: str) -> StateSynchronizer[bytes]:
    """A copy of the state, initialised."""
    copy = await client.coordination.synchronizer(
        stream, bytes, _apply, snapshot=bytes, compact_after_bytes=_COMPACT_BYTES
    )
    await copy.initialize(register.NOTHING)
    return copy


async def initialized_copies(client: Client) -> list[StateSynchronizer[bytes]]:
    """A copy of the state of each stream."""
    return [await retry_forever(partial(initialized_copy, client, stream)) for stream in STREAMS]


def _apply(state: bytes, update: bytes, _: Revision) -> bytes:
    return after(state, [update])


class SynchronizerActor:
    """One process."""

    def __init__(self, shared: SynchronizerActors, number: int) -> None:
        self._shared = shared
        self._cluster = shared.cluster
        self._rng = shared.cluster.rng(f"sharer {number}")
        self._name = f"sharer {number}"
        self._number = number
        self._count = 0

    async def run(self) -> None:
        """A drawn number of calls; after a crash, with a new client."""
        await call_and_crash(self._cluster, self._rng, _CALLS, "synchronizer user", initialized_copies, self._call)

    def _call(self, copies: Sequence[StateSynchronizer[bytes]]) -> Awaitable[None]:
        copy, chance = self._rng.choice(copies), self._rng.random()
        if chance < 0.2:
            return self._fetch(copy)
        if chance < 0.3:
            return self._compact(copy)
        return self._push(copy) if chance < 0.4 else self._update(copy)

    def _updates(self) -> list[bytes]:
        self._count += 1
        return [b"%d.%d.%d" % (self._number, self._count, part) for part in range(self._rng.choice((1, 1, 3)))]

    def _record(self, copy: StateSynchronizer[bytes], action: tuple[Any, ...], answer: Any, begun: float) -> None:
        self._shared.record(self._name, str(copy.stream.stream), action, answer, begun)

    async def _fetch(self, copy: StateSynchronizer[bytes]) -> None:
        begun = now()
        await copy.fetch()
        self._record(copy, ("get",), copy.state, begun)

    async def _compact(self, copy: StateSynchronizer[bytes]) -> None:
        """A compaction counts as a read: it starts from the newest state and does not change it."""
        begun = now()
        await copy.compact(bytes)
        self._record(copy, ("get",), copy.state, begun)
        self._cluster.trace.probe("state_compacted")

    async def _push(self, copy: StateSynchronizer[bytes]) -> None:
        begun, updates = now(), tuple(self._updates())
        answer: Any = UNKNOWN
        try:
            await copy.update_unconditionally(updates)
            answer = SharedState.DONE
        finally:
            self._record(copy, ("push", updates), answer, begun)

    async def _update(self, copy: StateSynchronizer[bytes]) -> None:
        begun, updates = now(), self._updates()
        seen: list[bytes] = []

        def decide(state: bytes) -> list[bytes]:
            seen.append(state)
            return updates

        answer: Any = UNKNOWN
        try:
            await copy.update(decide)
            answer = SharedState.DONE
        finally:
            if seen:
                self._record(copy, ("update", seen[-1], tuple(updates)), answer, begun)
        if len(seen) > 1:
            self._cluster.trace.probe("update_retried")


__all__ = ["STREAMS", "SynchronizerActors"]
