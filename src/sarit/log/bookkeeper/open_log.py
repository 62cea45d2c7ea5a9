"""An open log on BookKeeper: one owner, one epoch, one ledger at a time.

Theory of operation.  A frame becomes entries of the current ledger and is durable when all of them are.  At most
LEDGER_FRAMES_IN_FLIGHT frames are in flight; others wait.  *Roll-over*: when a ledger is nearly full, the next one is
created and added to the chain, empty.  Its first entry is sent only when the last frame of the ledger before is
durable.  So there is no gap between two ledgers: if a recovery finds frames in the second one, the first is complete.

When too few bookies answer, the ledger is closed after its last durable entry.  Then the frames that are not durable
are sent again, to the next ledger, under the same numbers: nobody can read the first copies.

All changes of the chain go through `chain_register.py`.  If somebody else has changed the chain, the log ends with
Fenced.

Another owner fences a ledger, and so does BookKeeper's own recovery, when a bookie of the ledger is away.  After the
latter the chain is unchanged: the log ends with Unavailable, and its owner opens it again (`BookKeeperLogs.claim`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Corrupt, Fenced, SaritError, Unavailable
from sarit.env.background import Background, shielded
from sarit.log.bookkeeper import chain as chains
from sarit.log.bookkeeper.chain_register import ChainRegister
from sarit.log.bookkeeper.entries import FrameJoiner, parse, split, without_frame
from sarit.log.bookkeeper.ledgers import LedgerReader, LedgerWriter, WriterCalls
from sarit.log.bookkeeper.limits import (
    LEDGER_BYTES_IN_FLIGHT,
    LEDGER_CLOSE_TIMEOUT_SECONDS,
    LEDGER_ENSEMBLE_CHANGES,
    LEDGER_FRAMES_IN_FLIGHT,
    LEDGER_IDLE_SECONDS,
    LEDGER_LAST_FRAMES_SECONDS,
    LEDGER_PROOF_INTERVAL_SECONDS,
    LEDGER_TICK_SECONDS,
    METADATA_RETRY_SECONDS,
)
from sarit.log.bookkeeper.write_decisions import State
from sarit.log.port import Frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from sarit.coordination.port import Registers
    from sarit.env.ports import Buffer, Env
    from sarit.log.bookkeeper.chain import Chain
    from sarit.log.bookkeeper.metadata import LedgerMetadata
    from sarit.log.bookkeeper.port import Bookies, LedgerSettings, LedgerStore
    from sarit.log.port import FrameDone
    from sarit.log.statistics import LogStatistics

_log = logging.getLogger("sarit.log")


class Ledgers(Protocol):
    """The calls that an open log needs of its provider (`BookKeeperLogs`)."""

    env: Env
    bookies: Bookies
    store: LedgerStore
    registers: Registers
    statistics: LogStatistics

    @property
    def settings(self) -> LedgerSettings:
        """The settings of the log's ledgers."""

    def new_metadata(self, container: int, epoch: int) -> LedgerMetadata:
        """Return the metadata of a new ledger.  Raises Unavailable (too few bookies)."""

    def note_fence(self, container: int, epoch: int, ledger: int) -> None:
        """Record that a ledger of this epoch was fenced while no other owner was known."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A log whose epoch has begun.

    `old`: the closed ledgers of the chain, with their metadata.  `ledger`: the new ledger.  `asked_at`: a moment on the
    monotonic clock after which this owner still owned the log."""

    chain: Chain
    version: int
    old: Mapping[int, LedgerMetadata]
    ledger: int
    metadata: LedgerMetadata
    metadata_version: int
    asked_at: float


@dataclass(slots=True, eq=False)
class _Frame:
    """A frame that is not durable.  `last_entry`: its last entry in the current ledger; -1 while it is not sent."""

    number: int
    payload: Sequence[Buffer]
    size: int
    done: FrameDone
    last_entry: int = -1


class BookKeeperLog:
    """A durable log on a chain of ledgers (see the head of the module)."""

    frames_in_flight: Final = LEDGER_FRAMES_IN_FLIGHT

    def __init__(self, logs: Ledgers, container: int, opened: Opened) -> None:
        self._logs = logs
        self._container = container
        self._name = f"the log of container {container} on BookKeeper"
        self._loop = asyncio.get_running_loop()
        self._clock = logs.env.clock
        self._opened = opened
        self._chain = ChainRegister(
            f"log/{container}", logs.registers, logs.store, self._clock, opened.chain, opened.version, self._die
        )
        self._queue: deque[_Frame] = deque()
        self._sent: deque[_Frame] = deque()
        self._bytes_in_flight = 0
        self._last = opened.chain.reached  # the last frame that was queued
        self._last_sent = opened.chain.reached
        self._last_done = opened.chain.reached
        self._any_appended = False
        self._below = 0
        self._error: SaritError | None = None
        self._closed = False
        self._closing: asyncio.Future[None] | None = None
        self._progress = asyncio.Event()
        self._background = Background(self._task_failed)
        # `_prepared`: the next ledger, once it is in the chain.  `_preparing`: the task that creates it.
        self._prepared: LedgerWriter | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._rolling_failed = False
        # The last frame and the bytes of each full ledger that is not closed in the chain yet.
        self._leaving: dict[int, tuple[int, int]] = {}
        now = self._clock.monotonic()
        self._writer = self._new_writer(opened.ledger, opened.metadata, opened.metadata_version, opened.asked_at)
        self._began_at = now
        self._last_entry_at = now
        self._reported = True  # whether the bookies know the last confirmed entry
        self._ticking = self._loop.call_later(LEDGER_TICK_SECONDS, self._tick)

    def __repr__(self) -> str:
        waiting = len(self._queue) + len(self._sent)
        return f"<BookKeeperLog {self._container} epoch {self.epoch}, done {self._last_done}, {waiting} under way>"

    @property
    def epoch(self) -> int:
        """The epoch of this owner of the log."""
        return self._opened.chain.epoch

    @property
    def identity(self) -> bytes:
        return self._opened.chain.identity

    # -- reading ---------------------------------------------------------------------------------

    def replay(self, after: int) -> AsyncIterator[Frame]:
        """Yield the durable frames above `after`, in order.  Raises Corrupt, Unavailable."""
        opened, logs = self._opened, self._logs
        return _replay(self._name, self._container, logs.bookies, logs.store, opened.chain, opened.old, after)

    # -- writing ---------------------------------------------------------------------------------

    def append(self, number: int, payload: Sequence[Buffer], done: FrameDone) -> None:
        """Queue a frame.  `done` is called on the event loop once it is durable, in order of number."""
        error = self._error
        if error is None and self._closed:
            error = Unavailable(f"{self._name} is closed")
        if error is not None:
            self._loop.call_soon(done, error)
            return
        if number != self._last + 1:
            # Only the first frame may skip numbers: the log of a restored container continues after the checkpoint.
            assert number > self._last, f"frame {number} after {self._last}"
            assert not self._any_appended, f"frame {number} after {self._last}"
        self._any_appended = True
        self._last = number
        self._queue.append(_Frame(number, payload, sum(map(len, payload)), done))
        self._dispatch()

    def _dispatch(self) -> None:
        """Send queued frames as far as the bounds of frames in flight and of the ledger allow."""
        settings = self._logs.settings
        while self._queue and self._error is None and not self._rolling_failed:
            if self._writer.state is not State.OPEN:
                return
            if self._is_full():
                if self._sent or self._prepared is None:
                    self._prepare()
                    return
                self._switch()
                continue
            frame = self._queue[0]
            full = self._bytes_in_flight + frame.size > LEDGER_BYTES_IN_FLIGHT
            if self._sent and (full or len(self._sent) >= LEDGER_FRAMES_IN_FLIGHT):
                return
            self._queue.popleft()
            self._sent.append(frame)
            self._bytes_in_flight += frame.size
            for part in split(self._container, self.epoch, frame.number, frame.payload, settings.entry_bytes):
                frame.last_entry = self._writer.add(part)
            self._last_sent = frame.number
            self._last_entry_at = self._clock.monotonic()
            self._reported = False
            if self._writer.size * 8 >= settings.ledger_bytes * 7:
                self._prepare()

    def _is_full(self) -> bool:
        settings = self._logs.settings
        old = self._clock.monotonic() - self._began_at >= settings.ledger_seconds
        # A ledger without a frame is never full, so that a frame larger than a ledger gets a ledger for itself.
        return self._writer.size > 0 and (
            old or self._writer.size >= settings.ledger_bytes or self._writer.changes >= LEDGER_ENSEMBLE_CHANGES
        )

    def _done(self, entry: int) -> None:
        """Report the frames that are durable, as all entries of the current ledger up to `entry` are."""
        finished: list[_Frame] = []
        while self._sent and self._sent[0].last_entry <= entry:
            frame = self._sent.popleft()
            self._bytes_in_flight -= frame.size
            self._last_done = frame.number
            finished.append(frame)
        self._logs.statistics.frames += len(finished)
        self._progress.set()
        _report(finished, None)
        self._dispatch()

    # -- the end of a ledger ---------------------------------------------------------------------

    def _new_writer(self, ledger: int, metadata: LedgerMetadata, version: int, now: float) -> LedgerWriter:
        calls = WriterCalls(
            self._done, lambda reason: self._ended(ledger, reason), lambda: self._background.spawn(self._find_owner())
        )  # fmt: skip
        return LedgerWriter(
            self._clock, self._logs.bookies, self._logs.store, ledger, metadata, version, calls, now,
            self._logs.statistics,
        )  # fmt: skip

    def _prepare(self) -> None:
        if self._prepared is None and self._preparing is None and self._error is None:
            self._preparing = self._background.spawn(self._make_next())

    async def _make_next(self) -> None:
        """Create the next ledger and add it to the chain."""
        try:
            await self._chain.wait_for_place()
            asked_at = self._clock.monotonic()
            deadline = asked_at + LEDGER_CLOSE_TIMEOUT_SECONDS
            metadata, ledger = None, -1
            while True:
                try:
                    # Retry with the same metadata and id, by which an earlier attempt's ledger is recognized.
                    metadata = metadata or self._logs.new_metadata(self._container, self.epoch)
                    if ledger < 0:
                        ledger = await self._chain.reserve()
                    _, version = await self._logs.store.create(metadata, ledger)
                    break
                except Unavailable as error:
                    # Give up only if frames wait for the next ledger; otherwise the current one still accepts them.
                    if self._clock.monotonic() >= deadline and (self._is_full() or self._rolling_failed):
                        self._die(Unavailable(f"{self._name} needs a new ledger: {error}"))
                        return
                    await asyncio.sleep(METADATA_RETRY_SECONDS)
            first = self._last_done + 1
            await self._chain.change(lambda chain: chains.roll_over(chain, ledger, first))
        finally:
            self._preparing = None
        self._prepared = self._new_writer(ledger, metadata, version, asked_at)
        self._dispatch()

    def _switch(self) -> None:
        """Switch to the prepared ledger, and close the full one in its metadata and in the chain."""
        assert self._prepared is not None
        assert not self._sent, "the next ledger would get frames before those of this one are done"
        coverage_probe("ledger_rolled")
        full, self._writer, self._prepared = self._writer, self._prepared, None
        self._began_at = self._clock.monotonic()
        self._reported = True
        self._leaving[full.ledger] = (self._last_done, full.size)
        self._background.spawn(self._close_ledger(full, self._last_done))

    async def _close_ledger(self, writer: LedgerWriter, last: int) -> None:
        await writer.close()
        if writer.state is State.CLOSED:
            await self._chain.close_ledger(writer.ledger, last, writer.confirmed[1])
            self._leaving.pop(writer.ledger, None)
            self._chain.tidy()

    def _ended(self, ledger: int, reason: str) -> None:
        """Handle the end of a ledger's writer: end the log after a fence, or leave a ledger without a quorum."""
        writer = self._writer if self._writer.ledger == ledger else None
        if writer is None or writer.state is State.FENCED:
            # A fence of the ledger before or of the next one counts as well.
            if self._error is None:
                self._background.spawn(self._fenced(ledger, reason))
        elif not self._rolling_failed:
            self._rolling_failed = True
            self._background.spawn(self._leave_failed(writer, reason))

    async def _fenced(self, ledger: int, reason: str) -> None:
        """End the log after a fence: with Fenced when the chain has another owner, else with Unavailable."""
        if await self._chain.find_owner() is None:
            self._die(Fenced(f"{self._name} has another owner: {reason}"))
            return
        coverage_probe("ledger_fenced_by_no_owner")
        self._logs.note_fence(self._container, self.epoch, ledger)
        self._die(
            Unavailable(
                f"{self._name} lost ledger {ledger}: {reason}, and no other store has the log yet: BookKeeper's own "
                "recovery, or a store that is about to open it; opening it again finds out"
            )
        )

    async def _leave_failed(self, writer: LedgerWriter, reason: str) -> None:
        """Close a ledger that gets no quorum, and send the frames that are not durable to the next one."""
        coverage_probe("ledger_left_without_quorum")
        _log.warning("%s leaves ledger %d: %s", self._name, writer.ledger, reason)
        try:
            async with asyncio.timeout(LEDGER_CLOSE_TIMEOUT_SECONDS):
                await writer.close()
        except TimeoutError:
            self._die(Unavailable(f"{self._name} cannot close ledger {writer.ledger}: {reason}"))
            return
        if writer.state is not State.CLOSED:
            return  # after a fence `_ended` was called again
        await self._chain.close_ledger(writer.ledger, self._last_done, writer.confirmed[1])
        self._prepare()
        while self._prepared is None and self._preparing is not None:
            await asyncio.wait([self._preparing])
        if self._prepared is None:
            return
        for frame in reversed(self._sent):
            frame.last_entry = -1
            self._queue.appendleft(frame)
        self._sent.clear()
        self._bytes_in_flight = 0
        self._last_sent = self._last_done
        self._writer, self._prepared = self._prepared, None
        self._began_at = self._clock.monotonic()
        self._rolling_failed = False
        self._dispatch()

    # -- space -----------------------------------------------------------------------------------

    def truncate(self, below: int) -> None:
        """Release the frames with a number less than `below`: their ledgers leave the chain."""
        self._below = max(self._below, below)
        self._chain.truncate(below)

    @property
    def short_of_space(self) -> bool:
        """Whether the chain has no place for another ledger."""
        return self._chain.full

    def backlog_bytes(self) -> int:
        """Return the bytes of the ledgers that hold frames not truncated yet."""
        current = self._writer.size if self._last_done >= self._below else 0
        closed = [(each.last, each.size) for each in self._chain.chain.ledgers if each.closed]
        return current + sum(size for last, size in (*closed, *self._leaving.values()) if last >= self._below)

    def release_recycled_files(self) -> None:
        """Do nothing: a log on BookKeeper has no files."""

    # -- time, and the right to acknowledge ------------------------------------------------------

    def _tick(self) -> None:
        self._ticking = self._loop.call_later(LEDGER_TICK_SECONDS, self._tick)
        if self._error is not None:
            return
        self._writer.tick()
        if self._error is None and self._writer.state is State.OPEN and not self._sent and not self._is_full():
            idle = self._clock.monotonic() - self._last_entry_at
            if idle >= (LEDGER_PROOF_INTERVAL_SECONDS if self._reported else LEDGER_IDLE_SECONDS):
                self._reported = True
                self._last_entry_at = self._clock.monotonic()
                self._writer.add(without_frame(self._container, self.epoch, self._last_sent))
        self._chain.tidy()

    async def _find_owner(self) -> None:
        """Read from the chain whether this owner still owns the log, which acknowledgements after a long pause do not
        prove, and notify the writer."""
        coverage_probe("owner_of_log_asked")
        writer = self._writer  # the only one that has entries in flight
        asked_at = await self._chain.find_owner()
        if asked_at is None:
            writer.fence("its chain was changed")
        else:
            writer.owner_confirmed(asked_at)

    # -- the end ---------------------------------------------------------------------------------

    def _die(self, error: SaritError) -> None:
        """Fail all frames in flight and all later ones."""
        if self._error is not None:
            return
        self._error = error
        frames = [*self._sent, *self._queue]
        self._sent.clear()
        self._queue.clear()
        self._writer.abandon()
        if self._prepared is not None:
            self._prepared.abandon()
        # Report the frames in a later turn of the loop, since an append may call this.
        self._progress.set()
        self._loop.call_soon(_report, frames, error)

    def _task_failed(self, task: asyncio.Task[None], error: BaseException) -> None:
        self._die(
            error
            if isinstance(error, SaritError)
            else Unavailable(f"{self._name} failed: {type(error).__name__}: {error}")
        )
        if not isinstance(error, SaritError):
            raise error  # a bug: the event loop reports it

    async def close(self) -> None:
        """Write the queued frames and close the ledger.  May be called again.

        Frames fail with Unavailable when none becomes durable for LEDGER_LAST_FRAMES_SECONDS: the chain may be full, or
        the coordination service unavailable when a next ledger is needed."""
        if self._closing is None:
            self._closed = True
            self._closing = asyncio.ensure_future(self._close())
        # Shield the close, since a cancelled caller must not leave the tasks behind.
        await shielded(self._closing)

    async def _close(self) -> None:
        try:
            while (self._queue or self._sent) and self._error is None:
                self._progress.clear()
                async with asyncio.timeout(LEDGER_LAST_FRAMES_SECONDS):
                    await self._progress.wait()
            if self._error is None:
                # Close the ledger, which saves the next owner a recovery.
                async with asyncio.timeout(LEDGER_CLOSE_TIMEOUT_SECONDS):
                    await self._close_ledger(self._writer, self._last_done)
        except (TimeoutError, SaritError) as error:
            waiting = len(self._queue) + len(self._sent)
            reason = str(error) or (f"{waiting} frames did not become durable" if waiting else "no answer in time")
            _log.warning("%s is closed without its end: %s", self._name, reason)
        finally:
            self._die(Unavailable(f"{self._name} is closed"))
            self._ticking.cancel()
            await self._chain.close()
            await self._background.close()


def _report(frames: list[_Frame], error: SaritError | None) -> None:
    """Call the callbacks of some frames, also after one that raises."""
    bug: Exception | None = None
    for frame in frames:
        try:
            frame.done(error)
        except Exception as failure:  # a bug in one callback must not prevent the other callbacks
            bug = bug or failure
    if bug is not None:
        raise bug


__all__ = ["BookKeeperLog", "Ledgers", "Opened"]


async def _replay(
    name: str, container: int, bookies: Bookies, store: LedgerStore, chain: Chain,
    metadata: Mapping[int, LedgerMetadata], after: int,
) -> AsyncIterator[Frame]:  # fmt: skip
    """Yield the durable frames above `after`, in order.  Raises Corrupt, Unavailable.

    `name`: the log's name, for error messages.  `metadata`: the metadata of the closed ledgers of the chain, by ledger
    id; ledgers that it lacks are skipped."""
    reached = after
    any_seen = False
    for each in chain.ledgers:
        if each.ledger not in metadata or each.last <= after:
            continue
        ledger = LedgerReader(bookies, store, each.ledger, metadata[each.ledger])
        begin = 0 if after < each.first else await _entry_after(ledger, container, after)
        joiner = FrameJoiner()
        async for payload in ledger.entries(begin):
            entry = parse(payload, container)
            frame = joiner.add(entry)
            # Skip a frame that an earlier ledger also has: its owner sent it twice, with the same bytes.
            if frame is None or entry.frame <= reached:
                continue
            if any_seen and entry.frame != reached + 1:
                raise Corrupt(f"{name} continues with frame {entry.frame}, not {reached + 1}")
            any_seen, reached = True, entry.frame
            yield Frame(entry.frame, entry.epoch, frame)
        if reached < each.last:
            raise Corrupt(f"{name} lacks frames {reached + 1} to {each.last} of ledger {each.ledger}")


async def _entry_after(ledger: LedgerReader, container: int, after: int) -> int:
    """Return the first entry of a frame above `after`, by a binary search, as frame numbers rise within a ledger."""
    low, high = 0, ledger.metadata.last_entry + 1
    while low < high:
        middle = (low + high) // 2
        entry = parse(await ledger.entry(middle), container)
        if entry.frame > after:
            high = middle
        else:
            low = middle + 1
    return low
