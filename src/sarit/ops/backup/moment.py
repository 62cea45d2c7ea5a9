"""Takes the snapshots of all stores at one moment (`store/backup_session.py` says why they are of one).

All stores are asked for a step at once, and the next step is asked for when all have answered.  Whatever fails ends the
attempt: the connections are closed, by which every store goes on at once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from sarit.core.errors import Corrupt, Unavailable
from sarit.env.background import gather
from sarit.ops.backup.limits import BACKUP_SIGN_SECONDS
from sarit.ops.backup.node_connection import TryAgain
from sarit.store.limits import BACKUP_ARRIVAL_SECONDS, BACKUP_COMMIT_SECONDS, BACKUP_HOLD_SECONDS, BACKUP_IDLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence
    from typing import TypeVar

    T = TypeVar("T")


class StoreConnection(Protocol):
    """A store that takes part."""

    @property
    def containers(self) -> frozenset[int]:
        """Return the containers of the store; when one of them leaves it, the store ends the backup."""

    async def ask(self, timeout_seconds: float, **message: object) -> dict[str, Any]:
        """Return one step and its answer.  Raises TryAgain, Unavailable."""

    async def close(self) -> None:
        """Let the store delete garbage again."""


def check_whole(parts: Iterable[frozenset[int]], containers: int) -> None:
    """Check that each container is in exactly one store.  Raises TryAgain."""
    found = sorted(number for part in parts for number in part)
    twice = sorted({one for one, other in pairwise(found) if one == other})
    missing = sorted(set(range(containers)) - set(found))
    if missing:
        raise TryAgain(
            f"container {missing[0]} does not serve now: a backup would not be whole; see the log of the node"
        )
    if twice:
        raise TryAgain(f"container {twice[0]} moves from store to store now")


class Stores:
    """All stores of an installation, connected for one attempt of a backup."""

    def __init__(self, connections: Sequence[StoreConnection], containers: int) -> None:
        self._connections = list(connections)
        self._containers = containers
        self._owner = {number: each for each in connections for number in each.containers}

    def __repr__(self) -> str:
        return f"<Stores, {len(self._connections)} with {self._containers} containers>"

    async def take(self) -> float:
        """Have all snapshots taken; for how many milliseconds acknowledgements waited.  Raises TryAgain, Unavailable.

        Nothing is held any more when this returns or raises and the connections are closed."""
        check_whole((each.containers for each in self._connections), self._containers)
        await self._all(BACKUP_ARRIVAL_SECONDS + BACKUP_IDLE_SECONDS, prepare=True)
        await self._all(BACKUP_HOLD_SECONDS, hold=True)
        # Every store stands still now.  One that lets go by itself refuses this.
        released = await self._all(BACKUP_IDLE_SECONDS, release=True)
        return max(float(answer["held_ms"]) for answer in released)

    async def committed(self, number: int) -> int:
        """Wait until the index of a container shows its snapshot; return its frame.  Raises TryAgain, Unavailable."""
        answer = await self._owner[number].ask(BACKUP_COMMIT_SECONDS + BACKUP_IDLE_SECONDS, commit=number)
        return int(answer["frame"])

    async def read(self, number: int) -> None:
        """Say that the index of a container was read, or that its moment is kept by other means."""
        await self._owner[number].ask(BACKUP_IDLE_SECONDS, read=number)

    async def completed(self) -> None:
        """Tell all stores that the backup is complete, for their metrics; earlier versions do not know this step."""
        with suppress(Unavailable):
            await self._all(BACKUP_IDLE_SECONDS, complete=True)

    async def while_kept(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` while all stores take part.  Raises Unavailable (one does not any more), and what it raises."""
        task = asyncio.ensure_future(work)
        keeping = [asyncio.ensure_future(self._keep(each)) for each in self._connections]
        try:
            await asyncio.wait((task, *keeping), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                next(each for each in keeping if each.done()).result()
            try:
                return task.result()
            except Corrupt:
                # A chunk that is missing, because its new owner deletes what is garbage, is not lost.
                await self._all(BACKUP_IDLE_SECONDS, copying=True)
                raise
        finally:
            for each in (task, *keeping):
                each.cancel()
            await asyncio.gather(task, *keeping, return_exceptions=True)

    async def close(self) -> None:
        """Close the connections, after which every store deletes garbage again."""
        for each in self._connections:
            with suppress(OSError):
                await each.close()

    async def _keep(self, connection: StoreConnection) -> None:
        while True:
            await connection.ask(BACKUP_IDLE_SECONDS, copying=True)
            await asyncio.sleep(BACKUP_SIGN_SECONDS)

    async def _all(self, timeout_seconds: float, **message: object) -> list[dict[str, Any]]:
        """Return one step of all stores, at once.  Raises the first error, after the others were cancelled."""
        tasks = [asyncio.ensure_future(each.ask(timeout_seconds, **message)) for each in self._connections]
        try:
            return await gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
