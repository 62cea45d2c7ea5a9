"""Writes, recovers and reads ledgers on bookies, all on the event loop.

`LedgerWriter` carries out the decisions of `write_decisions.py`, `recover_ledger` those of `recovery_decisions.py`, and
`LedgerReader` reads a closed ledger with many reads ahead.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sarit.core.errors import Conflict, Corrupt, NotFound, SaritError, Unavailable
from sarit.core.repeated_log import RepeatedLog
from sarit.env.standstill import Standstill
from sarit.log.bookkeeper import wire
from sarit.log.bookkeeper.limits import (
    BUSY_BOOKIE_SECONDS,
    LEDGER_CLOCK_STEP_SECONDS,
    LEDGER_READ_TIMEOUT_SECONDS,
    LEDGER_RECOVERY_TIMEOUT_SECONDS,
    MAX_BOOKIE_QUEUE_BYTES,
    METADATA_RETRY_SECONDS,
    REPLAY_READS_AHEAD,
    SECOND_BOOKIE_SECONDS,
)
from sarit.log.bookkeeper.metadata import LedgerMetadata, LedgerState
from sarit.log.bookkeeper.port import Code, EntryReply
from sarit.log.bookkeeper.recovery_decisions import AddAgain, Close, Inconclusive, LedgerRecovering, Read
from sarit.log.bookkeeper.recovery_decisions import Effect as RecoveryEffect
from sarit.log.bookkeeper.write_decisions import AskOwner, Done, Ended, LedgerWriting, Send, State, Store, write_set
from sarit.log.bookkeeper.write_decisions import Effect as WritingEffect
from sarit.log.statistics import LogStatistics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sarit.env.ports import Buffer, Clock
    from sarit.log.bookkeeper.port import AddPacket, Bookies, LedgerStore


_log = logging.getLogger("sarit.log")


@dataclass(frozen=True, slots=True)
class WriterCalls:
    """The callbacks of a ledger's writer.

    `done`: all entries up to this one are durable.  `ended`: no more entries become durable (`LedgerWriter.state`).
    `ask_owner`: find out who owns the log, then call `LedgerWriter.owner_confirmed` or `fence`."""

    done: Callable[[int], None]
    ended: Callable[[str], None]
    ask_owner: Callable[[], object]


class LedgerWriter:
    """The writer of one ledger, from its creation to its end.  `now`: a time at which its owner still owned the log."""

    def __init__(
        self, clock: Clock, bookies: Bookies, store: LedgerStore, ledger: int, metadata: LedgerMetadata, version: int,
        calls: WriterCalls, now: float, statistics: LogStatistics | None = None,
    ) -> None:  # fmt: skip
        self._statistics = statistics or LogStatistics()
        self._statistics.ledgers += 1
        self._sent_at: dict[int, float] = {}
        self._changes_counted = 0
        self.ledger = ledger
        self._clock = clock
        self._bookies = bookies
        self._store = store
        self._version = version
        self._calls = calls
        self._loop = asyncio.get_running_loop()
        self._machine = LedgerWriting(metadata, now)
        self._standstill = Standstill(clock, LEDGER_CLOCK_STEP_SECONDS)
        self._machine.spares(sorted(bookies.writable()))
        # The packets of the entries that are not done, which may have to be sent again, to another bookie.
        self._packets: dict[int, AddPacket] = {}
        self._forgotten = 0  # the first entry whose packet is not forgotten
        self._storing: asyncio.Task[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._abandoned = False
        self._repeated = RepeatedLog(_log, clock.monotonic)

    def __repr__(self) -> str:
        return f"<LedgerWriter of {self.ledger} {self._machine!r}>"

    @property
    def state(self) -> State:
        return self._machine.state

    @property
    def metadata(self) -> LedgerMetadata:
        """The newest metadata that is known to be stored."""
        return self._machine.metadata

    @property
    def size(self) -> int:
        """The bytes of all entries of the ledger."""
        return self._machine.length

    @property
    def confirmed(self) -> tuple[int, int]:
        """The last durable entry, and the bytes of all entries up to it."""
        return self._machine.last_add_confirmed, self._machine.confirmed_length

    @property
    def changes(self) -> int:
        """The number of changes of the ensemble."""
        return self._machine.changes

    def add(self, payload: Sequence[Buffer]) -> int:
        """Send an entry to its bookies.  Returns its number.  `calls.done` is called later, never within this call."""
        size, now = sum(map(len, payload)), self._clock.monotonic()
        entry, effects = self._machine.add(size, now)
        self._sent_at[entry] = now
        self._statistics.entries += 1
        self._statistics.entry_bytes += size
        self._packets[entry] = wire.add_packet(
            self.ledger, entry, self._machine.last_add_confirmed, self._machine.length, payload, recovery=False
        )
        self._execute(effects)
        return entry

    def tick(self) -> None:
        """Find slow bookies and time-outs.  To be called a few times a second."""
        now = self._now()
        self._machine.spares(sorted(self._bookies.writable()))
        effects = self._machine.tick(now)
        for bookie in self._machine.ensemble:
            if self._bookies.queued_bytes(bookie) > MAX_BOOKIE_QUEUE_BYTES:
                effects = [*effects, *self._machine.bookie_failed(bookie, now)]
        self._execute(effects)

    def owner_confirmed(self, asked_at: float) -> None:
        """Record that this owner still owned the log at a moment not before `asked_at`."""
        self._execute(self._machine.owner_confirmed(asked_at, self._now()))

    def fence(self, reason: str) -> None:
        """End the ledger: the log has another owner."""
        self._execute(self._machine.fenced(reason))

    def give_up(self, reason: str) -> None:
        """Fail the ledger: no more entries become durable."""
        self._execute(self._machine.give_up(reason))

    async def close(self) -> None:
        """Close the ledger after its last durable entry.  Afterwards `state` is CLOSED or FENCED."""
        if self.state in (State.OPEN, State.FAILED):
            self._closing = self._loop.create_future()
            self._execute(self._machine.close())
            await self._closing

    def abandon(self) -> None:
        """Stop without a close: call none of the callbacks any more."""
        self._abandoned = True
        self._packets.clear()
        if self._storing is not None:
            self._storing.cancel()

    # -- effects ---------------------------------------------------------------------------------

    def _execute(self, effects: Sequence[WritingEffect]) -> None:
        if self._abandoned:
            return
        self._statistics.bookies_replaced += self._machine.changes - self._changes_counted
        self._changes_counted = self._machine.changes
        for effect in effects:
            match effect:
                case Send(bookie, entry, after):
                    if after:
                        self._loop.call_later(after, self._send, bookie, entry)
                    else:
                        self._send(bookie, entry)
                case Done(entry):
                    self._forget(entry)
                    self._calls.done(entry)
                case Store(metadata):
                    assert self._storing is None, self
                    self._storing = asyncio.ensure_future(self._store_metadata(metadata))
                case AskOwner():
                    self._calls.ask_owner()
                case Ended(reason):
                    self._resolve_closing()
                    self._calls.ended(reason)

    def _forget(self, entry: int) -> None:
        now, seconds = self._clock.monotonic(), self._statistics.entry_seconds
        for done in range(self._forgotten, entry + 1):
            self._packets.pop(done, None)
            if (sent := self._sent_at.pop(done, None)) is not None:
                seconds.observe(now - sent)
        self._forgotten = entry + 1

    def _send(self, bookie: str, entry: int) -> None:
        packet = self._packets.get(entry)
        if packet is not None:  # the entry of a delayed send may be done meanwhile
            self._bookies.add(bookie, self.ledger, entry, packet, lambda code: self._answered(bookie, entry, code))

    def _answered(self, bookie: str, entry: int, code: Code) -> None:
        self._execute(self._machine.answered(bookie, entry, code, self._now()))

    def _now(self) -> float:
        """Return the time now, after a check whether the machine was suspended (`stood_still`)."""
        now = self._standstill.now()
        if self._standstill.ended_at == now:
            self._machine.stood_still(now)
        return now

    async def _store_metadata(self, metadata: LedgerMetadata) -> None:
        """Replace the metadata, in as many attempts as it takes until the outcome is known."""
        before = self._machine.metadata
        while True:
            try:
                refused = await self._try_store(metadata, before)
                break
            except SaritError as error:
                # Retry also errors that a user must fix, such as missing permissions: the outcome must be known.
                if not isinstance(error, Unavailable):
                    self._repeated.error("", f"the metadata of ledger {self.ledger} cannot be stored: {error}")
                await asyncio.sleep(METADATA_RETRY_SECONDS)
        self._storing = None
        if refused:
            self._execute(self._machine.store_refused(refused))
        else:
            self._execute(self._machine.stored(metadata, self._now()))
        if self._closing is not None and self._storing is None:
            if self.state in (State.OPEN, State.FAILED):
                self._execute(self._machine.close())
            else:
                self._resolve_closing()

    async def _try_store(self, metadata: LedgerMetadata, before: LedgerMetadata) -> str:
        """Store the metadata of the ledger once.  Returns why it was refused; empty when it is stored.

        Raises Unavailable."""
        try:
            self._version = await self._store.set(self.ledger, metadata, self._version)
        except NotFound:
            return "its metadata is gone"
        except Conflict:
            try:
                found, version = await self._store.get(self.ledger)
            except NotFound:
                return "its metadata is gone"
            # An earlier attempt, whose answer was lost, has stored it.
            if found == metadata:
                self._version = version
                return ""
            if found == before:
                self._version = version
                raise Unavailable("to be tried again at the new version") from None
            return f"somebody else has changed its metadata: it is {found.state.name}"
        return ""

    def _resolve_closing(self) -> None:
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)


# -- recovery ------------------------------------------------------------------------------------


async def recover_ledger(bookies: Bookies, store: LedgerStore, ledger: int) -> LedgerMetadata:
    """Fence the writer of a ledger, and close the ledger.  Returns the metadata of the closed ledger.

    Raises NotFound, Unavailable (also when too few bookies answer to find its end)."""
    while True:
        metadata, version = await store.get(ledger)
        if metadata.state is LedgerState.CLOSED:
            return metadata
        try:
            if metadata.state is LedgerState.OPEN:
                metadata = replace(metadata, state=LedgerState.IN_RECOVERY)
                version = await store.set(ledger, metadata, version)
            outcome = await _Recovery(bookies, ledger, metadata).run()
            if isinstance(outcome, Inconclusive):
                raise Unavailable(f"ledger {ledger} cannot be recovered now: {outcome.reason}")
            closed = replace(
                metadata, state=LedgerState.CLOSED, last_entry=outcome.last_entry, length=outcome.length
            )  # fmt: skip
            await store.set(ledger, closed, version)
        except Conflict:
            continue  # the writer, or another recovery, has changed the metadata: begin again
        return closed


class _Recovery:
    """A recovery of one ledger, which carries out the decisions of `LedgerRecovering`."""

    def __init__(self, bookies: Bookies, ledger: int, metadata: LedgerMetadata) -> None:
        self._bookies = bookies
        self._ledger = ledger
        self._machine = LedgerRecovering(metadata)
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[Close | Inconclusive] = self._loop.create_future()

    async def run(self) -> Close | Inconclusive:
        """Find the end of the ledger.  Returns it, or why it is not known."""
        self._execute(self._machine.start())
        try:
            async with asyncio.timeout(LEDGER_RECOVERY_TIMEOUT_SECONDS):
                return await self._outcome
        except TimeoutError:
            return Inconclusive(f"bookies did not answer for {LEDGER_RECOVERY_TIMEOUT_SECONDS:.0f} s")

    def _execute(self, effects: Sequence[RecoveryEffect]) -> None:
        for effect in effects:
            match effect:
                case Read():
                    self._read(effect)
                case AddAgain():
                    self._add(effect)
                case _:
                    if not self._outcome.done():
                        self._outcome.set_result(effect)

    def _read(self, read: Read) -> None:
        def done(reply: EntryReply) -> None:
            if reply.code is Code.TOO_MANY_REQUESTS:
                self._again(self._read, read)
            elif not self._outcome.done():
                self._execute(self._machine.read(read.bookie, read.entry, reply))

        self._bookies.read(read.bookie, self._ledger, read.entry, fence=True, done=done)

    def _add(self, add: AddAgain) -> None:
        def done(code: Code) -> None:
            if code is Code.TOO_MANY_REQUESTS:
                self._again(self._add, add)
            elif not self._outcome.done():
                self._execute(self._machine.added(add.bookie, add.entry, code))

        packet = wire.add_packet(
            self._ledger, add.entry, add.last_add_confirmed, add.length, [add.payload], recovery=True
        )  # fmt: skip
        self._bookies.add(add.bookie, self._ledger, add.entry, packet, done)

    def _again(self, call: Callable[..., None], effect: RecoveryEffect) -> None:
        if not self._outcome.done():
            self._loop.call_later(BUSY_BOOKIE_SECONDS, call, effect)


# -- reading -------------------------------------------------------------------------------------


async def read_entry(bookies: Bookies, ledger: int, metadata: LedgerMetadata, entry: int) -> memoryview:
    """Return the payload of an entry that its ledger must have.

    Another bookie is asked after an error, and when a bookie takes long.  Raises Corrupt, Unavailable."""
    answers: asyncio.Queue[tuple[str, EntryReply]] = asyncio.Queue()
    waiting = deque(write_set(metadata, metadata.ensemble_at(entry), entry))
    outstanding: list[str] = []
    refusals: dict[Code, list[str]] = {}

    def ask(bookie: str) -> None:
        bookies.read(
            bookie, ledger, entry, fence=False, done=lambda reply: answers.put_nowait((bookie, reply))
        )  # fmt: skip

    while waiting or outstanding:
        if waiting:
            outstanding.append(waiting.popleft())
            ask(outstanding[-1])
        try:
            async with asyncio.timeout(SECOND_BOOKIE_SECONDS if waiting else LEDGER_READ_TIMEOUT_SECONDS):
                bookie, reply = await answers.get()
        except TimeoutError:
            if not waiting:
                refusals.setdefault(Code.LOST, []).extend(outstanding)
                break
            continue
        outstanding.remove(bookie)
        if reply.code is Code.OK:
            assert reply.payload is not None, reply
            return reply.payload
        if reply.code is Code.TOO_MANY_REQUESTS:
            await asyncio.sleep(BUSY_BOOKIE_SECONDS)
            waiting.append(bookie)
        else:
            refusals.setdefault(reply.code, []).append(bookie)
    said = "; ".join(f"{', '.join(bookies)}: {code.value}" for code, bookies in refusals.items())
    if refusals.keys() <= {Code.NO_ENTRY, Code.NO_LEDGER, Code.FAILED}:
        raise Corrupt(f"entry {entry} of ledger {ledger} is lost: {said}")
    raise Unavailable(f"entry {entry} of ledger {ledger} cannot be read now: {said}")


class LedgerReader:
    """A reader of the entries of a closed ledger.

    BookKeeper's own recovery moves copies to other bookies.  So before an entry counts as lost, the metadata is read
    again: it may name other bookies that have the entry."""

    def __init__(self, bookies: Bookies, store: LedgerStore, ledger: int, metadata: LedgerMetadata) -> None:
        assert metadata.state is LedgerState.CLOSED, metadata
        self.ledger = ledger
        self.metadata = metadata
        self._bookies = bookies
        self._store = store

    def __repr__(self) -> str:
        return f"<LedgerReader of {self.ledger}>"

    async def entry(self, entry: int) -> memoryview:
        """Return the payload of an entry.  Raises Corrupt, Unavailable (also when the ledger was deleted meanwhile)."""
        while True:
            asked = self.metadata
            try:
                return await read_entry(self._bookies, self.ledger, asked, entry)
            except Corrupt:
                await self._read_metadata()
                if self.metadata.ensembles == asked.ensembles:
                    raise

    async def entries(self, first: int) -> AsyncIterator[memoryview]:
        """Yield the payloads from entry `first` on, in order.  Raises as `entry`."""
        coming: deque[asyncio.Task[memoryview]] = deque()
        following = first
        try:
            while True:
                while following <= self.metadata.last_entry and len(coming) < REPLAY_READS_AHEAD:
                    coming.append(asyncio.ensure_future(self.entry(following)))
                    following += 1
                if not coming:
                    return
                payload = await coming[0]
                coming.popleft()
                yield payload
        finally:
            for task in coming:
                task.cancel()
            for task in coming:
                with suppress(asyncio.CancelledError, Corrupt, Unavailable):
                    await task

    async def _read_metadata(self) -> None:
        try:
            self.metadata, _ = await self._store.get(self.ledger)
        except NotFound as error:
            # Most likely a newer owner of the log deleted the ledger; otherwise the next claim reports the loss.
            raise Unavailable(f"ledger {self.ledger} was deleted while it was read") from error


__all__ = ["LedgerReader", "LedgerWriter", "WriterCalls", "read_entry", "recover_ledger"]
