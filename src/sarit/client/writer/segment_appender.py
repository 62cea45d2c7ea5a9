"""One writer on one segment (pure): numbers, blocks, acknowledgements.

Theory of operation.  A lane has a writer id of its own; its events are numbered 1, 2, 3 ...  Chunks wait in
`_pending`, get their numbers when they are made into a block, and stay in `_sent` until the store acknowledges a
number at or above the block's last.  The store keeps the last number of each writer id *with* the data, so after
any loss of the connection the lane asks (SetupAppend), forgets the blocks up to the answer, and sends the rest
again with the same numbers: nothing is lost and nothing stored twice.  Blocks are atomic on the store, thus an
answer inside a block is a broken store (Corrupt), and so is one below what was acknowledged already.

Batching clocks itself, without a timer: while fewer than `EAGER_BLOCKS` are in flight a block is sent at once with
whatever is there; after that chunks gather until an acknowledgement comes or a good block is full.  What is a good
block grows with the bytes in flight, so a fast writer pays per MiB and a slow one waits for nobody.  Where the lane
gets all that is written (`only`), the second block, too, gathers until it is as large as the first, or that is
acknowledged: it would hold what came within the moment since, and each block costs the store a sync
(docs/decisions/0401).

Frames are AppendBlockEnd alone, holding the whole block (wire.md 4.2, as the Rust client does).

    detached --attached()--> setup --set_up(last)--> open --surrender()--> sealed
       ^--------------------detached()----------------'

A large event (longer than an append may be) travels in a transient segment that is merged; `large_due()` hands it
out once everything before it is acknowledged, and nothing is sent after it until `large_done()`.  The merge is
conditional on the writer's number and raises it, so it too happens once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from sarit.client.core.framing import CHUNK_BYTES, Chunk
from sarit.core.errors import Corrupt
from sarit.core.limits import KIB, MIB, NULL_ATTRIBUTE_VALUE
from sarit.wire.append import append_block_end_header
from sarit.wire.commands import SetupAppend, encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.client.writer.flush_barrier import FlushBarrier
    from sarit.env.ports import Buffer

EAGER_BLOCKS: Final = 2
SMALL_BLOCK_BYTES: Final = 32 * KIB
APPENDER_WINDOW_BYTES: Final = 8 * MIB

DISCONNECTED: Final = "detached"
SETTING_UP: Final = "setup"
OPEN: Final = "open"
SEALED: Final = "sealed"


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
    """See the head of the module.  Times, connections and tasks are the caller's."""

    __slots__ = (
        "_bytes_in_flight",
        "_numbered",
        "_pending",
        "_pending_bytes",
        "_sent",
        "_unsent",
        "accepted_events",
        "acked_events",
        "acked_number",
        "barriers",
        "forgotten",
        "key",
        "request_id",
        "segment",
        "state",
        "tail_offset",
        "token",
        "unacked_bytes",
        "writer_id",
    )

    def __init__(self, segment: str, key: Any, writer_id: bytes) -> None:
        self.segment = segment
        self.key = key
        self.writer_id = writer_id
        self.token = ""
        self.request_id = 0
        self.state: str = DISCONNECTED
        self.unacked_bytes = 0
        self.accepted_events = 0
        self.acked_events = 0
        self.acked_number = 0
        self.forgotten = False
        self.tail_offset = -1
        self.barriers: deque[tuple[int, FlushBarrier]] = deque()
        self._numbered = 0
        self._pending: deque[Chunk] = deque()
        self._pending_bytes = 0
        self._unsent: deque[Block] = deque()
        self._sent: deque[Block] = deque()
        self._bytes_in_flight = 0

    def __repr__(self) -> str:
        return (
            f"SegmentAppender({self.segment}, {self.state}, acked {self.acked_number} of {self._numbered}, "
            f"{len(self._sent)} blocks in flight, {self.unacked_bytes} bytes not acknowledged)"
        )

    # -- filling ------------------------------------------------------------------------------

    def add(self, chunk: Chunk) -> None:
        """Take a chunk; `blocks` will send it."""
        self._pending.append(chunk)
        self._pending_bytes += chunk.length
        self.unacked_bytes += chunk.length
        self.accepted_events += chunk.events

    @property
    def busy(self) -> bool:
        """Whether anything is not acknowledged yet."""
        return bool(self._sent or self._unsent or self._pending)

    @property
    def bytes_in_flight(self) -> int:
        """Bytes in flight."""
        return self._bytes_in_flight

    @property
    def blocks_in_flight(self) -> int:
        """Blocks in flight."""
        return len(self._sent)

    # -- connecting ---------------------------------------------------------------------------

    def connecting(self, request_id: int) -> bytes:
        """A connection is there: the SetupAppend to send on it.  All replies carry `request_id`."""
        self.request_id = request_id
        self.state = SETTING_UP
        return encode(SetupAppend(request_id, self.writer_id, self.segment, self.token))

    def opened_at(self, last: int) -> None:
        """AppendSetup came: `last` is the last number stored.  Raises Corrupt."""
        self.state = OPEN
        if last > self._numbered:
            raise Corrupt(f"{self.segment}: the store has event {last}, {self._numbered} were sent")
        if last < 0:
            self.forgotten = self.acked_number > 0  # a deleted segment says so, too; see `acked`
        elif last < self.acked_number:
            raise Corrupt(f"{self.segment}: the store acknowledged event {self.acked_number}, now it knows only {last}")
        else:
            self.acked(last)
        while self._unsent and self._unsent[0].number <= self.acked_number:
            self._drop(self._unsent.popleft())
        head = self._unsent[0] if self._unsent else None
        if head and head.number - head.events < last:
            raise Corrupt(f"{self.segment}: the store has half a block: {last} of {head.number}")

    def disconnected(self) -> None:
        """The connection is gone: what was sent is to be sent again, unless `opened_at` says otherwise."""
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()
        self._bytes_in_flight = 0
        if self.state != SEALED:
            self.state = DISCONNECTED

    # -- sending ------------------------------------------------------------------------------

    def blocks(self, urgent: bool = False, only: bool = False) -> list[Buffer]:
        """The frames to send now, in parts, in order.

        `urgent`: do not wait for a good block to fill.  `only`: no other lane gets what is written next."""
        parts: list[Buffer] = []
        if self.state != OPEN:
            return parts
        while self._bytes_in_flight < APPENDER_WINDOW_BYTES:
            if not self._unsent and not self._number_next(urgent, only):
                break
            block = self._unsent[0]
            if block.large:
                break
            self._unsent.popleft()
            self._sent.append(block)
            self._bytes_in_flight += block.length
            prefix, suffix = append_block_end_header(
                self.writer_id, block.length, block.events, block.number, self.request_id
            )
            parts.append(prefix)
            parts.extend(chunk.data for chunk in block.chunks)
            parts.append(suffix)
        return parts

    def good_block_bytes(self) -> int:
        """From how many bytes on a block need not wait, given what is in flight."""
        return min(max(self._bytes_in_flight >> 2, SMALL_BLOCK_BYTES), CHUNK_BYTES)

    def due(self, urgent: bool, only: bool, more: int = 0) -> bool:
        """Whether it is time to make what is pending, and `more` bytes, into a block; see `blocks`."""
        waiting = self._pending_bytes + more
        if not waiting:
            return False
        sent = len(self._sent)
        if urgent or not sent:
            return True
        if sent < EAGER_BLOCKS and (not only or waiting >= min(self._bytes_in_flight, SMALL_BLOCK_BYTES)):
            return True
        return waiting >= SMALL_BLOCK_BYTES and waiting >= self.good_block_bytes()

    def _number_next(self, urgent: bool, only: bool) -> bool:
        """Make the next pending chunks into a block, if it is time."""
        if not self.due(urgent, only):
            return False
        chunks = [self._pending.popleft()]
        length = chunks[0].length
        events = chunks[0].events
        if not chunks[0].large:
            while self._pending and length + self._pending[0].length <= CHUNK_BYTES and not self._pending[0].large:
                chunk = self._pending.popleft()
                chunks.append(chunk)
                length += chunk.length
                events += chunk.events
        self._pending_bytes -= length
        self._numbered += events
        self._unsent.append(Block(chunks, length, events, self._numbered))
        return True

    # -- acknowledgements ---------------------------------------------------------------------

    def acked(self, number: int) -> None:
        """Everything up to `number` is durable.  Raises Corrupt when that cannot be."""
        if self.forgotten and number > self.acked_number:
            raise Corrupt(f"{self.segment}: the store lost events up to {self.acked_number} that it had acknowledged")
        sent = self._sent
        while sent and sent[0].number <= number:
            block = sent.popleft()
            self._bytes_in_flight -= block.length
            self._drop(block)
        self.acked_number = max(self.acked_number, number)

    def _drop(self, block: Block) -> None:
        self.unacked_bytes -= block.length
        self.acked_events += block.events
        barriers = self.barriers
        while barriers and barriers[0][0] <= self.acked_events:
            barriers.popleft()[1].appender_passed()

    # -- large events -------------------------------------------------------------------------

    def large_due(self) -> Block | None:
        """The large event whose turn it is, once everything before it is acknowledged."""
        if self.state == OPEN and not self._sent and self._unsent and self._unsent[0].large:
            return self._unsent[0]
        return None

    def stored_number(self) -> int:
        """What the store has as this writer's number when nothing is in flight."""
        return self.acked_number or NULL_ATTRIBUTE_VALUE

    def large_done(self) -> None:
        """The event of `large_due` was merged; the lane must be set up again before it goes on."""
        block = self._unsent.popleft()
        self.acked_number = block.number
        self._drop(block)
        self.state = DISCONNECTED

    # -- the end ------------------------------------------------------------------------------

    def seal(self) -> None:
        """The segment takes no more: send nothing; `take_unacknowledged` when the successors are known."""
        self.state = SEALED

    def take_unacknowledged(self) -> Iterator[Chunk]:
        """The segment is sealed: everything not acknowledged, in order, to be placed elsewhere."""
        self.state = SEALED
        blocks = (*self._sent, *self._unsent)
        held = [chunk for block in blocks for chunk in block.chunks]
        held.extend(self._pending)
        self._sent.clear()
        self._unsent.clear()
        self._pending.clear()
        self._bytes_in_flight = self._pending_bytes = self.unacked_bytes = 0
        self.accepted_events = self.acked_events
        return iter(held)
