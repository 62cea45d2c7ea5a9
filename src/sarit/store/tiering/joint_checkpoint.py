"""A checkpoint of all containers of a store at one moment, for a backup.

Theory of operation.  Each flusher takes part after its current cycle, so that no checkpoint and no compaction is in
progress.  When the last one has arrived, the snapshots of all containers are taken *in one turn of the event loop*.
So they show the applied state of one moment, with every operation that was acknowledged before.  If a snapshot has an
operation, the snapshots also have everything that its client had seen before: that was applied earlier, in whichever
container.  So after these checkpoints, the indexes are what a kill of the node at that moment would have left, with
empty logs, and the recovery from a kill also recovers from a copy of them.

Stores in several processes have no common turn.  Each of them waits for its flushers (`arrived`), and takes its
snapshots by `begin` while all of them are held (`store/backup_session.py`).

After its commit a flusher waits for `release`: until then its index holds exactly that state, because nobody else
makes checkpoints, compacts or collects garbage.

Warnings.  (1) A container without changes needs no checkpoint: its index shows that moment already.  It must not make
one later either, which would show a later moment.  (2) A flusher that waits flushes nothing, so every wait here has a
bound.  A caller that gives up calls `abandon`, and the flushers resume.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from sarit.core.errors import Unavailable
from sarit.env.background import shielded

if TYPE_CHECKING:
    from collections.abc import Mapping


class Participant(Protocol):
    """A flusher, as a joint checkpoint needs it."""

    joint: JointCheckpoint | None

    @property
    def checkpoint_frame(self) -> int:
        """The frame of the container's last checkpoint."""

    def wake(self) -> None:
        """Wake the flusher, so that it looks at `joint`."""

    def begin(self) -> bool:
        """Take the snapshot of the next `checkpoint`.  Returns false when there is nothing to do."""

    async def checkpoint(self) -> bool:
        """Commit the checkpoint whose snapshot `begin` took."""


class JointCheckpoint:
    """The joint checkpoint of one backup.  `flushers`: the flushers of all containers, by container number.

    `waits`: take the snapshots at a call of `begin`, not as soon as all flushers have arrived."""

    def __init__(self, flushers: Mapping[int, Participant], *, waits: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self._waits = waits
        self._all_arrived = asyncio.Event()
        self._flushers = dict(flushers)
        self._numbers = {id(flusher): number for number, flusher in flushers.items()}
        self._arrived: set[int] = set()
        self._with_changes: set[int] = set()
        self._begun: asyncio.Future[None] = loop.create_future()
        self._committed: dict[int, asyncio.Future[int]] = {number: loop.create_future() for number in flushers}
        self._released = {number: asyncio.Event() for number in flushers}

    def __repr__(self) -> str:
        state = "begun" if self._begun.done() else f"{len(self._arrived)} of {len(self._flushers)} have arrived"
        return f"<JointCheckpoint, {state}>"

    def ask(self) -> None:
        """Ask all flushers to take part."""
        for flusher in self._flushers.values():
            flusher.joint = self
            flusher.wake()
        if not self._flushers:
            self._complete()

    async def arrived(self, timeout_seconds: float) -> None:
        """Wait until all flushers are between two cycles.  Raises Unavailable (one did not arrive in time)."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._all_arrived.wait()
        except TimeoutError:
            raise self._missing(timeout_seconds) from None

    def begin(self) -> None:
        """Take all snapshots now, without an await.  Raises Unavailable (abandoned, or a flusher has not arrived)."""
        if not self._all_arrived.is_set():
            raise self._missing(0)
        if not self._begun.done():
            self._begin()
        self._begun.result()

    async def begun(self, timeout_seconds: float) -> None:
        """Wait until all snapshots are taken.  Raises Unavailable (a flusher did not arrive in time)."""
        await asyncio.wait([self._begun], timeout=timeout_seconds)
        if not self._begun.done():
            raise self._missing(timeout_seconds)
        self._begun.result()

    def _missing(self, timeout_seconds: float) -> Unavailable:
        missing = sorted(set(self._flushers) - self._arrived)
        return Unavailable(
            f"container {missing[0]} did not finish its flush within {timeout_seconds:.0f} s: is long-term storage "
            "slow or away? try again later"
        )

    async def committed(self, number: int, timeout_seconds: float) -> int:
        """Wait for a container's commit.  Returns the frame of its checkpoint.  Raises Unavailable."""
        future = self._committed[number]
        await asyncio.wait([future], timeout=timeout_seconds)
        if not future.done():
            raise Unavailable(f"the checkpoint of container {number} took longer than {timeout_seconds:.0f} s")
        return future.result()

    def release(self, number: int) -> None:
        """Resume the flusher of a container, whose index was read."""
        self._released[number].set()

    def abandon(self) -> None:
        """Resume all flushers: the backup was given up, or has read all indexes."""
        if not self._begun.done():
            self._begun.set_exception(Unavailable("the backup was given up"))
            self._begun.exception()  # marks the exception as retrieved: perhaps nobody waits for it
        for event in self._released.values():
            event.set()

    # -- for the flushers ---------------------------------------------------------------------

    async def take_part(self, flusher: Participant) -> None:
        """Take part with a flusher that is between two cycles.  Returns when its next cycle may begin.

        Raises what the flusher's checkpoint raises."""
        number = self._numbers[id(flusher)]
        if self._begun.done():
            return  # the joint checkpoint was abandoned
        self._arrived.add(number)
        if len(self._arrived) == len(self._flushers):
            self._complete()
        try:
            await shielded(self._begun)
        except Unavailable:
            return
        except asyncio.CancelledError:  # the store stops, or the container failed
            self.abandon()
            raise
        future = self._committed[number]
        try:
            # A container without changes makes no checkpoint (warning 1).
            if number in self._with_changes:
                await flusher.checkpoint()
            if not future.done():
                future.set_result(flusher.checkpoint_frame)
            await self._released[number].wait()
        finally:
            if not future.done():
                future.set_exception(Unavailable(f"the checkpoint of container {number} failed"))
                future.exception()

    def _complete(self) -> None:
        self._all_arrived.set()
        if not self._waits:
            self._begin()

    def _begin(self) -> None:
        """Take all snapshots without an await, so that they are of one moment."""
        for number, flusher in self._flushers.items():
            if flusher.begin():
                self._with_changes.add(number)
        self._begun.set_result(None)
