"""Appends of one writer to one segment (pure): numbers, blocks, acknowledgements, flush barriers.

Theory of operation.

*Exactly once.*  An appender has its own writer id and numbers its events 1, 2, 3 ...  Chunks wait in `_pending`.  They
get their numbers when they are made into a block.  A block stays in `_sent` until the store acknowledges a number at or
above the block's last.  The store retains the last number of each writer id *with* the data.  After any loss of the
connection the appender therefore asks for it (SetupAppend), drops the blocks up to the answer, and sends the rest again
with the same numbers: no event is lost and none is stored twice.  Blocks are atomic on the store.  An answer inside a
block, or below what was acknowledged already, raises Corrupt.

*Batching* is self-clocked; there is no timer.  While fewer than `EAGER_BLOCKS` are in flight, a block is sent at once
with whatever is pending.  After that, chunks are batched until an acknowledgement comes or the block reaches its target
size.  The target size grows with the bytes in flight: a fast writer sends large blocks, and a slow one does not wait.
Where one appender gets all that is written (`only`), the second block, too, is batched until it is as large as the
first, or the first is acknowledged: it would hold very little, and each block costs the store a sync
(docs/decisions/0401).

*Large events* (longer than an append may be) travel in a transient segment that is merged.  `large_due` returns such
an event once everything before it is acknowledged; nothing is sent after it until `large_done`.  The merge is
conditional on the writer's number and raises it, so it happens once, too.

*Sealed segments.*  When the segment is sealed, `take_unacknowledged` returns what is not acknowledged, in
order, for the successors.

*Flush barriers.*  A barrier notes how many events were accepted when it was placed.  It passes when that many are
acknowledged.

Frames are AppendBlockEnd alone, holding the whole block (wire.md 4.2, as the Rust client does).

`TRANSITIONS` lists every legal step; `check` states the invariants and runs after every step in the tests.

    DISCONNECTED --CONNECT--> SETTING_UP --SET_UP--> OPEN --SEAL--> SEALED
         ^                        |                   |
         '------ DISCONNECT ------'-------------------'  (from OPEN also MERGE_LARGE)
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from sarit.client.limits import APPENDER_WINDOW_BYTES, EAGER_BLOCKS, SMALL_BLOCK_BYTES, WRITE_CHUNK_BYTES
from sarit.core.errors import Corrupt
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.wire.commands import SetupAppend, encode
from sarit.wire.frames import append_block_end_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sarit.client.core.framing import Chunk
    from sarit.env.ports import Buffer

# States.
DISCONNECTED: Final = "disconnected"
SETTING_UP: Final = "setting up"
OPEN: Final = "open"
SEALED: Final = "sealed"

# Events.
CONNECT: Final = "connect"  # SetupAppend is to be sent on a new connection
SET_UP: Final = "set up"  # AppendSetup came
DISCONNECT: Final = "disconnect"  # the connection ended, or the store refused
MERGE_LARGE: Final = "merge large"  # a large event was merged: the next SetupAppend confirms the number
SEAL: Final = "seal"  # the segment is sealed or deleted

TRANSITIONS: Final = {
    (DISCONNECTED, CONNECT): SETTING_UP,
    (DISCONNECTED, DISCONNECT): DISCONNECTED,
    (DISCONNECTED, MERGE_LARGE): DISCONNECTED,  # the reply came, then the connection ended, in one turn of the loop
    (DISCONNECTED, SEAL): SEALED,
    (SETTING_UP, SET_UP): OPEN,
    (SETTING_UP, DISCONNECT): DISCONNECTED,
    (SETTING_UP, SEAL): SEALED,
    (OPEN, SET_UP): OPEN,  # a second answer is checked as the first was: it may not go back
    (OPEN, MERGE_LARGE): DISCONNECTED,
    (OPEN, DISCONNECT): DISCONNECTED,
    (OPEN, SEAL): SEALED,
    (SEALED, DISCONNECT): SEALED,
    (SEALED, SEAL): SEALED,  # sealed by a reply, then again when what it holds is taken
}


class FlushBarrier:
    """Calls `done` when `appenders` have acknowledged everything they hold now; at once if that is nothing."""

    __slots__ = ("_done", "_waiting")

    def __init__(self, done: Callable[[], object], appenders: Iterable[SegmentAppender]) -> None:
        self._done = done
        self._waiting = 1  # for its own placing
        self.place_on(appenders)

    def place_on(self, appenders: Iterable[SegmentAppender]) -> None:
        """Wait for these events, too.  Ends one wait: that for the placing, or that for an appender that gave up its
        place."""
        for appender in appenders:
            if appender.unacked_bytes:
                self._waiting += 1
                # Store a count of events, not an event number, because pending chunks have no numbers yet.
                appender.barriers.append((appender.accepted_events, self))
        self.end_wait()

    def end_wait(self) -> None:
        """End one wait: for an appender that has passed the barrier, or for the end of `place_on`."""
        self._waiting -= 1
        if not self._waiting:
            self._done()


class Block:
    """Chunks that are appended at once; `number` is that of the last event."""

    __slots__ = ("chunks", "events", "length", "number")

    def __init__(self, chunks: list[Chunk], length: int, events: int, number: int) -> None:
        self.chunks = chunks
        self.length = length
        self.events = events
        self.number = number

    @property
    def large(self) -> bool:
        """Whether this is one event too long for an append."""
        return self.chunks[0].large


class SegmentAppender:
    """The appender of one segment, as a state machine (see the head of the module).  Times, connections and tasks are
    the caller's."""

    __slots__ = (
        "_numbered",
        "_pending",
        "_pending_bytes",
        "_sent",
        "_unsent",
        "accepted_events",
        "acked_events",
        "acked_number",
        "barriers",
        "blocks_in_flight",
        "bytes_in_flight",
        "forgotten",
        "request_id",
        "segment",
        "state",
        "token",
        "unacked_bytes",
        "writer_id",
    )

    def __init__(self, segment: str, writer_id: bytes) -> None:
        self.segment = segment
        self.writer_id = writer_id
        self.token = ""
        self.request_id = 0
        self.state: str = DISCONNECTED
        # Plain attributes, not properties: the writer reads them for every flush and every acknowledgement.
        self.unacked_bytes = 0
        self.bytes_in_flight = 0
        self.blocks_in_flight = 0
        self.accepted_events = 0
        self.acked_events = 0
        self.acked_number = 0
        self.forgotten = False
        self.barriers: deque[tuple[int, FlushBarrier]] = deque()
        # Pending chunks -> numbered blocks not sent -> blocks in flight; a lost connection moves the last ones back.
        self._numbered = 0
        self._pending: deque[Chunk] = deque()
        self._pending_bytes = 0
        self._unsent: deque[Block] = deque()
        self._sent: deque[Block] = deque()

    def __repr__(self) -> str:
        return (
            f"SegmentAppender({self.segment}, {self.state}, acked {self.acked_number} of {self._numbered}, "
            f"{len(self._sent)} blocks in flight, {self.unacked_bytes} bytes not acknowledged)"
        )

    def _step(self, event: str) -> None:
        following = TRANSITIONS.get((self.state, event))
        assert following is not None, f"{self.segment}: {event} is not legal while {self.state}"
        self.state = following

    def check(self) -> None:
        """Raises AssertionError when an invariant does not hold.  For tests: it visits every chunk."""
        blocks = [*self._sent, *self._unsent]
        assert self.blocks_in_flight == len(self._sent)
        assert self.bytes_in_flight == sum(block.length for block in self._sent)
        assert self._pending_bytes == sum(chunk.length for chunk in self._pending)
        assert self.unacked_bytes == sum(block.length for block in blocks) + self._pending_bytes
        held_events = sum(block.events for block in blocks) + sum(chunk.events for chunk in self._pending)
        assert self.accepted_events - self.acked_events == held_events
        # Only an open appender has blocks in flight; a sealed one retains them until they are taken.
        assert not self._sent or self.state in (OPEN, SEALED)
        # Blocks are numbered without a hole, in order, and none is retained that was acknowledged.
        assert all(before.number == after.number - after.events for before, after in pairwise(blocks))
        assert not blocks or (self.acked_number < blocks[0].number and blocks[-1].number == self._numbered)
        # A barrier waits only for events that were accepted before it and are not acknowledged.
        counts = [count for count, _ in self.barriers]
        assert counts == sorted(counts)
        assert not counts or self.acked_events < counts[0] <= counts[-1] <= self.accepted_events

    # -- filling ------------------------------------------------------------------------------

    def add(self, chunk: Chunk) -> None:
        """Take a chunk; `blocks` will send it."""
        self._pending.append(chunk)
        self._pending_bytes += chunk.length
        self.unacked_bytes += chunk.length
        self.accepted_events += chunk.events

    # -- connecting ---------------------------------------------------------------------------

    def connecting(self, request_id: int) -> bytes:
        """Note a new connection, and return the SetupAppend to send on it.  All replies carry `request_id`."""
        self._step(CONNECT)
        self.request_id = request_id
        return encode(SetupAppend(request_id, self.writer_id, self.segment, self.token))

    def opened_at(self, last: int) -> None:
        """AppendSetup came: `last` is the last number stored.  Raises Corrupt."""
        self._step(SET_UP)
        # The store cannot have what was never numbered.
        if last > self._numbered:
            raise Corrupt(f"{self.segment}: the store has event {last}, {self._numbered} were sent")
        if last < 0:
            self.forgotten = self.acked_number > 0  # a deleted segment says so, too; see `acked`
        elif last < self.acked_number:
            raise Corrupt(
                f"{self.segment}: the store acknowledged event {self.acked_number}, now it reports only {last}"
            )
        else:
            self.acked(last)
        # Stored, but the acknowledgement was lost with the connection.
        while self._unsent and self._unsent[0].number <= self.acked_number:
            self._drop(self._unsent.popleft())
        # Blocks are atomic on the store: the next one must begin right after `last`.
        head = self._unsent[0] if self._unsent else None
        if head and head.number - head.events < last:
            raise Corrupt(f"{self.segment}: the store has half a block: {last} of {head.number}")

    def disconnected(self) -> None:
        """Prepare to send again what was sent on a lost connection, unless `opened_at` finds it stored."""
        self._step(DISCONNECT)
        # Put the sent blocks in front of the unsent ones, so that the numbers stay in order.
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()
        self.bytes_in_flight = self.blocks_in_flight = 0

    # -- sending ------------------------------------------------------------------------------

    def blocks(self, urgent: bool = False, only: bool = False) -> list[Buffer]:
        """Return the frames to send now, in parts, in order.

        `urgent`: do not wait for a block to reach its target size.  `only`: no other appender gets what is written
        next."""
        parts: list[Buffer] = []
        if self.state != OPEN:
            return parts
        # 8 MiB to one segment; the last block may exceed it.
        while self.bytes_in_flight < APPENDER_WINDOW_BYTES:
            if not self._unsent and not self._number_next(urgent, only):
                break
            block = self._unsent[0]
            # Everything behind it waits: it is appended by a merge (`large_due`), not as a block.
            if block.large:
                break
            self._unsent.popleft()
            self._sent.append(block)
            self.blocks_in_flight += 1
            self.bytes_in_flight += block.length
            # One AppendBlockEnd per block; the chunks go out as they are.
            prefix, suffix = append_block_end_header(
                self.writer_id, block.length, block.events, block.number, self.request_id
            )
            parts.append(prefix)
            parts.extend(chunk.data for chunk in block.chunks)
            parts.append(suffix)
        return parts

    def blocks_sent_after(self, count: int) -> list[Block]:
        """Return the blocks in flight but for the `count` oldest ones, in order."""
        return list(self._sent)[count:]

    def _good_block_bytes(self) -> int:
        """Return the target size of a block, in bytes, given what is in flight."""
        # A quarter of what is in flight, 32 KiB to 1 MiB.
        return min(max(self.bytes_in_flight >> 2, SMALL_BLOCK_BYTES), WRITE_CHUNK_BYTES)

    def due(self, urgent: bool, only: bool, more: int = 0) -> bool:
        """Return whether it is time to make what is pending, and `more` bytes, into a block; see `blocks`."""
        waiting = self._pending_bytes + more
        if not waiting:
            return False
        sent = self.blocks_in_flight
        # With nothing in flight no acknowledgement would come to send it later.
        if urgent or not sent:
            return True
        # `only`: the second block waits to be as large as the first, 32 KiB at most.
        # At 50 MB/s that makes 750 syncs a second instead of 1,500 (docs/decisions/0401).
        if sent < EAGER_BLOCKS and (not only or waiting >= min(self.bytes_in_flight, SMALL_BLOCK_BYTES)):
            return True
        return waiting >= SMALL_BLOCK_BYTES and waiting >= self._good_block_bytes()

    def _number_next(self, urgent: bool, only: bool) -> bool:
        """Make the next pending chunks into a block, if it is time."""
        if not self.due(urgent, only):
            return False
        # A block is never divided or joined later: sent again, it has the same events and numbers.
        chunks = [self._pending.popleft()]
        length = chunks[0].length
        events = chunks[0].events
        # A large event is a block by itself.
        if not chunks[0].large:
            while self._pending:
                chunk = self._pending[0]
                if chunk.large or length + chunk.length > WRITE_CHUNK_BYTES:
                    break
                chunks.append(self._pending.popleft())
                length += chunk.length
                events += chunk.events
        self._pending_bytes -= length
        self._numbered += events
        self._unsent.append(Block(chunks, length, events, self._numbered))
        return True

    # -- acknowledgements ---------------------------------------------------------------------

    def acked(self, number: int) -> None:
        """Everything up to `number` is durable.  Raises Corrupt when that cannot be."""
        # A deleted segment stores no block: this one lives, though it had reported no event of this writer.
        if self.forgotten and number > self.acked_number:
            raise Corrupt(f"{self.segment}: the store lost events up to {self.acked_number} that it had acknowledged")
        sent = self._sent
        while sent and sent[0].number <= number:
            block = sent.popleft()
            self.blocks_in_flight -= 1
            self.bytes_in_flight -= block.length
            self._drop(block)
        # A repeated or older acknowledgement changes nothing.
        self.acked_number = max(self.acked_number, number)

    def _drop(self, block: Block) -> None:
        self.unacked_bytes -= block.length
        self.acked_events += block.events
        barriers = self.barriers
        # Barriers are in the order of their counts.
        while barriers and barriers[0][0] <= self.acked_events:
            barriers.popleft()[1].end_wait()

    # -- large events -------------------------------------------------------------------------

    def large_due(self) -> Block | None:
        """Return the next large event, once everything before it is acknowledged."""
        if self.state == OPEN and not self._sent and self._unsent and self._unsent[0].large:
            return self._unsent[0]
        return None

    def stored_number(self) -> int:
        """Return the number that the store has for this writer when nothing is in flight."""
        # Before the first event the store has no number for this writer.
        return self.acked_number or NULL_ATTRIBUTE_VALUE

    def large_done(self) -> None:
        """Record that the event of `large_due` was merged.  The appender must be set up again before it goes on."""
        self._step(MERGE_LARGE)
        block = self._unsent.popleft()
        # The merge has set this number on the store.
        self.acked_number = block.number
        self._drop(block)

    # -- the end ------------------------------------------------------------------------------

    def seal(self) -> None:
        """Stop sending, because the segment is sealed; once its successors are known, call `take_unacknowledged`."""
        self._step(SEAL)

    def take_unacknowledged(self) -> list[Chunk]:
        """Remove and return everything not acknowledged, in order, for the successors.  Drops the barriers."""
        self._step(SEAL)
        # Chunks in flight were written before numbered ones, and those before pending ones.
        chunks = [chunk for block in (*self._sent, *self._unsent) for chunk in block.chunks]
        chunks.extend(self._pending)
        self._sent.clear()
        self._unsent.clear()
        self._pending.clear()
        self.barriers.clear()
        self.blocks_in_flight = self.bytes_in_flight = self._pending_bytes = self.unacked_bytes = 0
        # The successors count these events as theirs.
        self.accepted_events = self.acked_events
        return chunks
