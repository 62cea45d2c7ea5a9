"""What a store does for a backup: one joint checkpoint with the other stores, and no deletion of chunks.

A backup shows all containers of an installation at one moment.  One store takes its snapshots in one turn of its event
loop.  Several stores have no common turn, so all of them are held for a moment.  The backup command asks each
store, step by step, and goes on to a step when all stores have answered the one before:

    begin     return the containers of this store; from now on no chunk is deleted
    prepare   wait until every flusher is between two cycles
    hold      apply nothing, so that nothing new is acknowledged or readable, and take the snapshots
    release   apply again; refused by a store whose hold has expired
    commit    wait until a container's index shows its snapshot; in a cluster, prove that it was owned at the hold
    read      the backup has read a container's index: resume its flusher
    copying   sent again and again while the backup still needs the chunks
    complete  the backup is complete: this store's metrics count it

*Why the snapshots are of one moment.*  Take an operation whose client had seen another one acknowledged, here or in
another store.  The first store acknowledged that before its hold, or after its release.  Before: its snapshot has it.
After: then every store was held by that time, and had taken its snapshot; what came later is in none.  So if a snapshot
has an operation, the snapshots have everything that its client had seen: what a kill of all stores could have left.

*Nobody waits for a backup that died.*  A store lets go BACKUP_HOLD_SECONDS after its hold, whatever happens, and then
refuses the release, which ends the backup.  A session ends without a message for BACKUP_IDLE_SECONDS, when a container
leaves, fails or comes, when space becomes short, and after MAX_BACKUP_SECONDS.  However a session ends, every flusher
resumes, and a checkpoint in progress completes as an ordinary one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Invalid, SaritError, Unavailable
from sarit.store.container.group_commit import call_each
from sarit.store.limits import (
    BACKUP_ARRIVAL_SECONDS,
    BACKUP_CHECK_SECONDS,
    BACKUP_COMMIT_SECONDS,
    BACKUP_HOLD_SECONDS,
    BACKUP_IDLE_SECONDS,
    MAX_BACKUP_SECONDS,
)
from sarit.store.tiering.chunk_gc import DeletionHold
from sarit.store.tiering.joint_checkpoint import JointCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sarit.store.store import SegmentStore

_log = logging.getLogger("sarit.store")

PROTOCOL: Final = 2
_MS_PER_SECOND: Final = 1000.0


class BackupEnded(Unavailable):
    """The backup session is over.  `again`: whether another attempt may succeed at once."""

    def __init__(self, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.again = again


class Backups:
    """The backups of one store: one at a time."""

    def __init__(self, store: SegmentStore) -> None:
        self.store = store
        self.running: BackupSession | None = None

    def __repr__(self) -> str:
        return f"<Backups, {self.running or 'idle'}>"

    def begin(self, request: dict[str, Any]) -> BackupSession:
        """Return the session of a backup whose first message is `request`.  Raises Invalid, BackupEnded."""
        if "backup" not in request:
            raise BackupEnded("no backup runs on this connection: an earlier one was lost", again=True)
        if request.get("backup") != PROTOCOL:
            raise Invalid("the backup is of another version of Sarit than the node: use the node's")
        if self.running is not None:
            raise BackupEnded("another backup of this node runs: wait for its end", again=False)
        self.running = BackupSession(self.store, self._ended)
        return self.running

    def _ended(self) -> None:
        self.running = None

    def stop(self) -> None:
        """End the backup that runs, since the store stops."""
        if self.running is not None:
            self.running.end("the node stops", again=True)


class BackupSession:
    """The part of one backup that one store has; `on_end` is called once, when the session is over."""

    def __init__(self, store: SegmentStore, on_end: Callable[[], None]) -> None:
        self._store = store
        self._on_end = on_end
        self._clock = store.env.clock
        self._opened = store.opened()
        self._by_number = {each.container.number: each for each in self._opened}
        self._hold = DeletionHold()
        self._joint = JointCheckpoint({number: each.flusher for number, each in self._by_number.items()}, waits=True)
        self._ended: BackupEnded | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # fails with what ended it
        self._held_at: float | None = None  # None: the containers are not held
        self._expiry: asyncio.TimerHandle | None = None
        self._prepared = self._released = self._complete = False
        self._left = set(self._by_number)  # containers whose indexes the backup has not read yet
        self._busy = 0  # number of steps in progress
        self._last_message = began = self._clock.monotonic()
        self._end_at = began + MAX_BACKUP_SECONDS
        self._steps: dict[str, Callable[[Any], Coroutine[Any, Any, dict[str, Any]]]] = {
            "prepare": self._prepare,
            "hold": self._stand_still,
            "release": self._release,
            "commit": self._commit,
            "read": self._read,
            "copying": self._copying,
            "complete": self._note_complete,
        }
        for each in self._opened:
            each.flusher.garbage.hold = self._hold
        self._watching = asyncio.ensure_future(self._watch())

    def __repr__(self) -> str:
        return f"<BackupSession of {sorted(self._by_number)}, {self._ended or 'active'}>"

    def begun(self) -> dict[str, Any]:
        """Return the answer to the first message."""
        return {"containers": sorted(self._by_number), "of": self._store.limits.containers}

    async def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Carry out the step that `message` names.  Raises BackupEnded, Invalid (no such step now)."""
        self._require()
        step, value = next(iter(message.items()), ("", None))
        work = self._steps.get(step)
        if work is None:
            raise Invalid(f"a backup has no step {step!r}")
        self._busy += 1
        try:
            found = await work(value)
        except BackupEnded:
            raise
        except (SaritError, TimeoutError) as error:
            self._require()  # if the session has ended meanwhile, its reason says more than this error
            raise self.end(str(error) or "it took too long", again=not isinstance(error, Invalid)) from error
        finally:
            self._busy -= 1
            self._last_message = self._clock.monotonic()
        self._require()
        return found

    def end(self, reason: str, *, again: bool) -> BackupEnded:
        """End the session: release containers, flushers and chunks.  Only the reason of the first call counts."""
        if self._ended is not None:
            return self._ended
        self._ended = BackupEnded(reason, again=again)
        if not self._complete:
            self._store.statistics.backups_failed += 1
            self._store.statistics.backup_failed_ms = self._clock.wall_ms()
        if not self.over.done():
            self.over.set_exception(self._ended)
            self.over.exception()  # marks the exception as retrieved: nobody has to await `over`
        self._let_go()
        self._joint.abandon()
        self._hold.end(reason)
        for each in self._opened:
            if each.flusher.garbage.hold is self._hold:
                each.flusher.garbage.hold = None
            each.flusher.wake()
        self._watching.cancel()
        self._on_end()
        return self._ended

    # -- steps --------------------------------------------------------------------------------

    async def _prepare(self, _: Any) -> dict[str, Any]:
        if self._prepared:
            raise Invalid("the backup was prepared before")
        self._prepared = True
        self._joint.ask()
        await self._joint.arrived(BACKUP_ARRIVAL_SECONDS)
        return {"prepared": True}

    async def _stand_still(self, _: Any) -> dict[str, Any]:
        if not self._prepared or self._held_at is not None or self._released:
            raise Invalid("a backup holds once, after it was prepared")
        # No await from here on: all snapshots of this store are taken in one turn of the event loop.
        self._check()
        self._held_at = self._clock.monotonic()
        for each in self._opened:
            each.container.group_commit.hold()
        self._expiry = asyncio.get_running_loop().call_later(BACKUP_HOLD_SECONDS, self._expire)
        self._joint.begin()
        return {"held": True}

    async def _release(self, _: Any) -> dict[str, Any]:
        if self._held_at is None:
            raise Invalid("the backup does not hold this store")
        milliseconds = (self._clock.monotonic() - self._held_at) * _MS_PER_SECOND
        self._released = True
        self._let_go()
        _log.info("a backup was taken: acknowledgements waited for %.1f ms", milliseconds)
        return {"released": True, "held_ms": round(milliseconds, 3)}

    async def _commit(self, number: Any) -> dict[str, Any]:
        if not self._released or number not in self._by_number:
            raise Invalid(f"container {number} has no snapshot here")
        frame = await self._joint.committed(number, BACKUP_COMMIT_SECONDS)
        if self._store.placement is not None:
            # A frame that becomes durable now proves that no other store owned the container at the hold.
            async with asyncio.timeout(BACKUP_COMMIT_SECONDS):
                await self._by_number[number].container.group_commit.prove_ownership()
        return {"committed": number, "frame": frame}

    async def _read(self, number: Any) -> dict[str, Any]:
        if number not in self._by_number:
            raise Invalid(f"container {number} has no snapshot here")
        self._joint.release(number)
        self._left.discard(number)
        if not self._left:
            _log.info("a backup copies: until it ends, no chunk is deleted")
        return {"read": number}

    async def _copying(self, _: Any) -> dict[str, Any]:
        self._check()
        return {"copying": True}

    async def _note_complete(self, _: Any) -> dict[str, Any]:
        self._complete = True
        self._store.statistics.backup_completed_ms = self._clock.wall_ms()
        return {"complete": True}

    # -- what ends it -------------------------------------------------------------------------

    def _require(self) -> None:
        """Check that the session has not ended.  Raises BackupEnded (a new object, as each gets its own traceback)."""
        if self._ended is not None:
            raise BackupEnded(str(self._ended), again=self._ended.again)

    def _let_go(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self._held_at is None:
            return
        self._held_at = None
        bug = call_each(each.container.group_commit.let_go for each in self._opened)
        if bug is not None:
            raise bug

    def _expire(self) -> None:
        coverage_probe("backup_hold_expired")
        text = f"the stores did not stand still together within {BACKUP_HOLD_SECONDS:g} s"
        _log.warning("a backup ended before it was complete: %s", text)
        self.end(text, again=True)

    def _check(self) -> None:
        """End the session if the backup cannot go on.  Raises BackupEnded."""
        reason, again = self._hold.ended, True  # long-term storage that refuses chunks may accept them later
        if self._store.budget.disk_full:
            reason = "the disk of the node is nearly full"
        elif self._clock.monotonic() > self._end_at:
            reason = f"it took longer than {MAX_BACKUP_SECONDS / 3600:.0f} hours"
        elif self._store.opened() != self._opened or any(
            each.container.departure is not None or each.container.failure is not None for each in self._opened
        ):
            reason, again = "a container of the node recovered or moved meanwhile", True
        elif not self._busy and self._clock.monotonic() - self._last_message > BACKUP_IDLE_SECONDS:
            reason = "the backup was silent for too long"
        if reason and self._ended is None:
            _log.warning("a backup ended before it was complete: %s", reason)
            self.end(reason, again=again)
        self._require()

    async def _watch(self) -> None:
        while self._ended is None:
            await asyncio.sleep(BACKUP_CHECK_SECONDS)
            try:
                self._check()
            except BackupEnded:
                return
