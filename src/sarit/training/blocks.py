"""Reads the work of one shard in blocks, and goes on where a position says.

Theory of operation.  A block takes its events from a few pieces, an equal share of each, up to its number of events or
of bytes.  Which events a block has is a function of the stream's content alone, whatever pieces the network delivers.
Its events are then ordered by a hash of where they are stored.

A position has the ranges of the block under way.  To go on, all events of these ranges are read again, and those that
were handed out are left out.  If some were truncated meanwhile, and the caller chose to go on without them, the hash of
the last event that was handed out divides what remains: nothing comes twice, and nothing else is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Conflict, Truncated
from sarit.training.limits import TRAINING_BLOCK_BYTES, TRAINING_BLOCK_ROWS
from sarit.training.order import row_hashes
from sarit.training.state import EDGE, Block, Cursor, ShardState

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from sarit.training.plan import Piece, Plan
    from sarit.training.source import Source


class PieceReader:
    """Reads one piece from its first event, or from an offset, to its end or to another offset.

    `skip`: what was truncated is passed over, and `skipped_bytes` counts it; else Truncated is raised."""

    def __init__(self, source: Source, piece: Piece, start: int, end: int, *, skip: bool) -> None:
        self._source = source
        self._piece = piece
        self._skip = skip
        self.skipped_bytes = 0
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None
        self._end = self._edge(piece.high) if end == EDGE else end
        self.position = min(self._edge(piece.low, piece.high) if start == EDGE else start, self._end)
        self._open()

    def __repr__(self) -> str:
        return f"PieceReader({self._piece}, at {self.position})"

    @property
    def ended(self) -> bool:
        """Whether everything was taken."""
        return self.position >= self._end

    def _edge(self, target: int, high: int = 0) -> int:
        """Return where the first event begins that begins at an offset or after it; of those that are left.

        What is gone between it and `high` is counted."""
        part = self._piece.part
        known = part.start
        while known < target < part.end:
            try:
                return self._source.boundary(part, known, target)
            except Truncated as error:
                # Data below the piece is another piece's, and no loss to this one.
                if not known < error.start_offset <= target and not self._skip:
                    raise
                known = part.end if error.start_offset <= known else error.start_offset
                self.skipped_bytes += max(min(known, high) - target, 0)
        return min(max(known, target), part.end)

    def _open(self) -> None:
        part = self._piece.part
        self._batches = iter(()) if self.ended else self._source.read(part, self.position, self._end)

    def _next(self) -> pa.RecordBatch | None:
        while not self.ended:
            try:
                return next(self._batches, None)
            except Truncated as error:
                if not self._skip:
                    raise
                begin = self._end if error.start_offset < 0 else min(error.start_offset, self._end)
                self.skipped_bytes += max(min(begin, self._piece.high) - self.position, 0)
                self.position = max(begin, self.position)
                self._open()
        return None

    def take(self, rows: int, most_bytes: int) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield up to `rows` events in batches, each with its bytes, until about `most_bytes` came: one event at
        least."""
        import numpy as np

        while rows > 0 and most_bytes > 0:
            batch = self._rest if self._rest is not None else self._next()
            self._rest = None
            if batch is None:
                self.position = self._end
                return
            if not batch.num_rows:
                continue
            offsets = batch.column(2).to_numpy()
            count = min(rows, batch.num_rows)
            # The bytes of each event: up to where the next one begins.
            over = int(np.searchsorted(offsets[:count], offsets[0] + most_bytes))
            count = max(min(count, over), 1)
            taken = batch
            if count < batch.num_rows:
                taken, self._rest = batch.slice(0, count), batch.slice(count)
                self.position = int(offsets[count])
            else:
                last = batch.column(0)[batch.num_rows - 1].as_buffer().size
                self.position = int(offsets[-1]) + int(last) + self._source.header_bytes
            size = self.position - int(offsets[0])
            rows -= count
            most_bytes -= size
            yield taken, size

    def close(self) -> None:
        """Stop reading."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()


@dataclass(slots=True)
class Rows:
    """Events of a block that are not handed out yet, in their order.

    `block` is the block as a position names it; `hashes`: by which its events are ordered; None: as they are stored."""

    block: Block
    batches: list[pa.RecordBatch]
    hashes: Any = None

    @property
    def count(self) -> int:
        """How many events there are."""
        return sum(batch.num_rows for batch in self.batches)

    def rest(self, done: int, plan: Plan) -> Block | None:
        """Return the block as a position names it when `done` of these events are handed out; None: it is done."""
        count = self.count
        if done == count:
            return None
        if self.hashes is None:
            return self._behind(done, count, plan) if done else self.block
        mark = int(self.hashes[done - 1]) if done else self.block.mark
        return replace(self.block, emitted=self.block.rows - count + done, mark=mark)

    def _behind(self, done: int, count: int, plan: Plan) -> Block:
        """Return the block from an event on: the ranges that begin with it."""
        at, left = 0, done
        while left >= self.batches[at].num_rows:
            left -= self.batches[at].num_rows
            at += 1
        batch = self.batches[at]
        segment, offset = int(batch.column(1)[left].as_py()), int(batch.column(2)[left].as_py())
        for number, (piece, _, end) in enumerate(self.block.ranges):
            found = plan.piece(piece)
            if found.part.segment == segment and found.low <= offset < found.high:
                ranges = ((piece, offset, end), *self.block.ranges[number + 1 :])
                return replace(self.block, ranges=ranges, rows=count - done)
        raise AssertionError(f"an event at {offset} of segment {segment} is in no range of its block")


class ShardReader:
    """Reads what is left of one shard's work.  `state` is the position behind the last block that `blocks` made."""

    def __init__(self, source: Source, state: ShardState, *, skip: bool = False) -> None:
        self.state = state
        self.skipped_bytes = 0
        self._source = source
        self._skip = skip
        self._work = state.own_work()
        self._readers: dict[int, PieceReader] = {}

    def __repr__(self) -> str:
        return f"ShardReader({self.state.plan.stream}, shard {self.state.shard} of {self.state.shards})"

    def fetch(self) -> tuple[Rows | None, ShardState]:
        """Return the next events, None at the end, and the position behind them.

        A call that fails may be repeated.  Raises Truncated, NotFound, Conflict."""
        before = self.state
        try:
            return self._next_rows(), self.state
        except BaseException:
            # What the readers have taken is lost: the next call reads it again.
            self.state = before
            self.close()
            raise

    def _next_rows(self) -> Rows | None:
        state = self.state
        if state.block is not None:
            # Taken once: the position without it stands behind the block.
            found = self._again(state.block)
            self.state = replace(state, block=None)
            if found.count:
                return found
            return self._next_rows()
        if state.cursor.block < len(self._work.blocks):
            block = self._work.blocks[state.cursor.block]
            cursor = replace(state.cursor, block=state.cursor.block + 1)
            self.state = replace(state, cursor=cursor, block=block)
            return self._next_rows()
        return self._fill()

    def close(self) -> None:
        """Stop reading."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    # -- a new block ------------------------------------------------------------------------------

    def _fill(self) -> Rows | None:
        state = self.state
        order = state.order
        places = list(state.cursor.begun) if order.shuffle_rows else [*state.cursor.begun[:1]]
        left = order.shuffle_rows or TRAINING_BLOCK_ROWS
        share = -(-left // len(places))
        share_bytes = max(TRAINING_BLOCK_BYTES // len(places), 1)
        item = state.cursor.item
        batches: list[pa.RecordBatch] = []
        ranges: list[tuple[int, int, int]] = []
        for number in range(len(places)):
            wanted, most = min(share, left), share_bytes
            while wanted > 0 and most > 0:
                place = places[number]
                if place is None:
                    if item == len(self._work.items):
                        break
                    place, item = (item, self._work.items[item][1]), item + 1
                reader = self._reader(*place)
                for batch, size in reader.take(wanted, most):
                    batches.append(batch)
                    wanted, most, left = wanted - batch.num_rows, most - size, left - batch.num_rows
                places[number] = None if reader.ended else (place[0], reader.position)
                ranges.append((self._work.items[place[0]][0], place[1], EDGE if reader.ended else reader.position))
                if reader.ended:
                    self._drop(place[0])
        places += [None] * (order.interleave - len(places))
        cursor = Cursor(tuple(places), item, state.cursor.block, state.cursor.number + 1)
        rows = sum(batch.num_rows for batch in batches)
        self.state = replace(state, cursor=cursor)
        if not rows:
            return None
        key = order.block_key(state.epoch, state.shard, state.shards, state.cursor.number)
        return _ordered(Block(tuple(ranges), key, rows), batches)

    def _reader(self, item: int, offset: int) -> PieceReader:
        if item not in self._readers:
            piece = self.state.plan.piece(self._work.items[item][0])
            self._readers[item] = PieceReader(self._source, piece, offset, EDGE, skip=self._skip)
        return self._readers[item]

    def _drop(self, item: int) -> None:
        reader = self._readers.pop(item)
        self.skipped_bytes += reader.skipped_bytes
        reader.close()

    # -- a block that somebody began ----------------------------------------------------------------

    def _again(self, block: Block) -> Rows:
        """Read a block again, and leave out what was handed out.  Raises Conflict: the stream has changed."""
        batches: list[pa.RecordBatch] = []
        for number, start, end in block.ranges:
            reader = PieceReader(self._source, self.state.plan.piece(number), start, end, skip=self._skip)
            batches += [batch for batch, _ in reader.take(block.rows + 1, 1 << 62)]
            self.skipped_bytes += reader.skipped_bytes
            reader.close()
        found = sum(batch.num_rows for batch in batches)
        if found == block.rows:
            return _without_first(_ordered(block, batches), block.emitted)
        if not found and self._skip:
            return Rows(block, [])
        if not self._skip or found > block.rows:
            raise Conflict(
                f"{self.state.plan.stream} has {found} events where the position has {block.rows}: it is not the "
                "stream that the position is of"
            )
        rows = _ordered(replace(block, rows=found), batches)
        if block.key is None:
            return rows  # what was handed out is before the first of the ranges
        done = _above(rows.hashes, block.mark) if block.emitted else 0
        return _without_first(rows, done)


def _above(hashes: Any, mark: int) -> int:
    """Return how many hashes are at most `mark`."""
    import numpy as np

    return int(np.searchsorted(hashes, np.uint64(mark), side="right"))


def _ordered(block: Block, batches: list[pa.RecordBatch]) -> Rows:
    if block.key is None or not batches:
        return Rows(block, batches)
    import numpy as np
    import pyarrow as pa

    whole = one_batch(batches)
    drawn = row_hashes(block.key, whole.column(1).to_numpy(), whole.column(2).to_numpy())
    order = np.argsort(drawn, kind="stable")
    # Without `pa.array`, which would load pandas first, if there is one.
    indices = pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)])
    return Rows(block, [whole.take(indices)], drawn[order])


def one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return several batches of one schema as one."""
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _without_first(rows: Rows, done: int) -> Rows:
    """Return the events behind the first `done`."""
    batches: list[pa.RecordBatch] = []
    left = done
    for batch in rows.batches:
        if left < batch.num_rows:
            batches.append(batch.slice(left) if left else batch)
        left = max(left - batch.num_rows, 0)
    hashes = None if rows.hashes is None else rows.hashes[done:]
    return Rows(rows.block, batches, hashes)
