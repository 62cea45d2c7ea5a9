"""Recovers a container: reads its checkpoint from the index, and replays the log after it.

Recovery is a function of log and index: it decides nothing.  Opening the log has fenced the former owner.  Replay takes
a window of frames at a time.  It loads what the operations of the window refer to: one get for all segment records,
then the extents of merged segments, all at once.  Then it applies the operations in order.  It yields to the event
loop every few hundred operations, so that other containers go on serving.

A damaged segment record makes that segment unreadable, and nothing else.  The segment's operations are set aside:
stored in the index as they are, since the log is truncated.  The segment stays unreadable while the index has any.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from sarit.core.errors import Corrupt, NotFound
from sarit.core.names import is_transient
from sarit.env.background import gather
from sarit.index import keys
from sarit.index.port import WriteBatch
from sarit.index.scans import scan_page, scan_readable
from sarit.log.port import LogHistory
from sarit.store.container.operations import Append, Create, Delete, Merge, decode_frame, operation_charge
from sarit.store.container.segment import load_segment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from sarit.env.ports import Buffer
    from sarit.index.port import Index
    from sarit.log.port import DurableLog, Frame
    from sarit.store.container.container import Container
    from sarit.store.container.operations import Operation
    from sarit.store.container.segment import Segment

T = TypeVar("T")

OPERATIONS_PER_TURN: Final = 500

_log = logging.getLogger("sarit.store")

# The keys in the index are `set-aside/<segment, 19 digits>/<frame, 19 digits>/<place in the frame, 10 digits>`.
_SET_ASIDE = "set-aside/"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The values that the last checkpoint stored in the index about the container as a whole.

    `frame`: the last frame that the checkpoint covers.  `chunk_sequence`: the highest chunk number of all epochs.
    `resolved_from`: the first epoch whose commits recorded which of their chunks they resolved; None: not known.
    `history`: the identity and the last owner of the log, to recognize a lost log."""

    history: LogHistory
    frame: int
    next_segment: int
    chunk_sequence: int
    resolved_from: int | None


async def read_checkpoint(index: Index) -> Checkpoint:
    """Return the last committed checkpoint; its frame is 0 when there is none.  Raises Corrupt (a value is lost)."""
    # `settled-from` is the stored name of `resolved_from`: keys on disk keep their names.
    names = ("frame", "next-segment", "chunk-sequence", "settled-from", "epoch")
    log, *rows = await index.get([keys.meta_key(name) for name in ("log", *names)])
    # Refuse a lost value, since each checkpoint writes all of them: with 0 in its place, old frames would be applied
    # again, or the id of a segment given a second time.
    lost = [name for name, row in zip(names, rows, strict=True) if row is None]
    if log is None and len(lost) < len(names):
        raise Corrupt("the index has lost its meta value log")
    if lost and (len(lost) < len(names) or await index.scan(*keys.kind_range(keys.SEGMENT), 1)):
        raise Corrupt(f"the index has lost its meta value {lost[0]}")
    *values, resolved_from, epoch = (None if row is None else keys.parse_attribute_value(row) for row in rows)
    if epoch is None:  # no epoch has committed anything yet: all of them will record what they resolve
        resolved_from = 1
    frame, next_segment, sequence = (value or 0 for value in values)
    identity, owner_epoch = (None, 0) if log is None else keys.parse_log_value(log)
    history = LogHistory(identity, max(owner_epoch, epoch or 0), frame)
    return Checkpoint(history, frame, max(next_segment, 1), sequence, resolved_from)


async def record_log(index: Index, log: DurableLog) -> None:
    """Store the log's identity and the epoch of this owner in the index, before the first operation.

    Without them, a log that is lost later would look like the empty log of a new container."""
    await index.commit(WriteBatch(puts={keys.meta_key("log"): keys.log_value(log.identity, log.epoch)}))


async def replay_log(container: Container, checkpoint: Checkpoint) -> None:
    """Bring the state of a new container to the end of its log.  Raises Corrupt (a frame is missing or damaged)."""
    state = container.state
    assert not state.segments, "only a new container may be recovered"
    state.next_segment_id = checkpoint.next_segment
    state.applied_frame = checkpoint.frame
    if checkpoint.resolved_from is not None:
        container.resolved_from = checkpoint.resolved_from
    await _find_set_aside(container)
    # `replay` skips frames that the checkpoint covers, as the log is truncated only after the commit.
    expected = checkpoint.frame + 1
    window: list[Frame] = []
    window_bytes = 0
    async for frame in container.log.replay(checkpoint.frame):
        # Refuse a log with a missing frame: it has lost acknowledged operations.
        if frame.number != expected:
            raise Corrupt(f"container {container.number}: the log continues with frame {frame.number}, not {expected}")
        expected += 1
        window.append(frame)
        window_bytes += len(frame.payload)
        if window_bytes >= container.limits.recovery_window_bytes:
            await _replay_window(container, window)
            window, window_bytes = [], 0
    await _replay_window(container, window)
    # Replay moves the assigned and the applied state together, so nothing may be in flight now.
    async for segment in _in_turns(state.segments.values()):
        assert not segment.in_flight, segment
        assert segment.assigned_length == segment.length, segment


async def _replay_window(container: Container, frames: list[Frame]) -> None:
    """Load what the operations of some frames refer to, then apply the operations."""
    state = container.state
    decoded = [each async for each in _in_turns(_decoded(frames))]
    every = [operation for _, _, _, operation in decoded]
    await _load_segments(container, every)
    sources = await _load_merge_sources(container, every)
    aside = WriteBatch()
    async for frame, wall_ms, number, operation in _in_turns(decoded):
        if operation.segment in state.unreadable and isinstance(operation, Delete):
            await container.metadata.stand_in_of(operation.segment)
        elif operation.segment in state.unreadable:
            parts: list[Buffer] = []
            operation.encode(parts)
            aside.puts[_aside_key(operation.segment, frame, number)] = b"".join(parts)
            continue
        if not isinstance(operation, Append):  # charge memory as `GroupCommit.add` does
            charge = operation_charge(operation, operation.encode([]))
            state.dirty.add_operation(charge)
            state.dirty.operations_applied(charge)
        state.replay(operation, wall_ms)
    # Set `applied_frame` after the last operation, since a frame is applied whole or not at all.
    if frames:
        state.applied_frame = frames[-1].number
    for segment in sources:
        segment.pins -= 1
    if aside.puts:
        await _set_aside(container, aside)


def _decoded(frames: list[Frame]) -> Iterator[tuple[int, int, int, Operation]]:
    """Yield (frame number, wall clock, place in the frame, operation) for each operation of some frames."""
    for frame in frames:
        wall_ms, operations = decode_frame(frame.payload)
        for number, operation in enumerate(operations):
            yield frame.number, wall_ms, number, operation


async def _in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items, and yield to the event loop every OPERATIONS_PER_TURN, so that other containers can serve."""
    for count, item in enumerate(items, 1):
        yield item
        if count % OPERATIONS_PER_TURN == 0:
            await asyncio.sleep(0)


async def _load_segments(container: Container, operations: list[Operation]) -> None:
    """Load the segments that operations refer to, unless they are in memory or an earlier operation creates them.

    Values of attributes are not loaded: each operation in the log holds the resulting values."""
    state = container.state
    known = state.segments.keys() | state.unreadable.keys()
    created: set[int] = set()
    # A dict as an ordered set.
    missing: dict[int, None] = {}
    async for operation in _in_turns(operations):
        if isinstance(operation, Create):
            created.add(operation.segment)
            continue
        named = (operation.segment, operation.source) if isinstance(operation, Merge) else (operation.segment,)
        missing.update(dict.fromkeys(one for one in named if one not in known and one not in created))
    if not missing:
        return
    records = await _records(container.index, list(missing))
    async for segment_id, record in _in_turns(zip(missing, records, strict=True)):
        if record is None:
            raise Corrupt(
                f"container {container.number}: the log changes segment {segment_id}, and the index has no record of it"
            )
        try:
            if isinstance(record, Corrupt):
                raise record
            state.add(load_segment(segment_id, record))
        except Corrupt as error:
            # Only this segment is unreadable: its readers and writers get the error, the others are served.
            state.unreadable[segment_id] = str(error)


async def _records(index: Index, segments: list[int]) -> list[bytes | Corrupt | None]:
    """Return the records of segments; a damaged one is replaced by its error, which is found by halving the get."""
    try:
        return list(await index.get([keys.segment_key(segment) for segment in segments]))
    except Corrupt as error:
        # An error without a key is not of one record, but of the whole index.
        if getattr(error, "key", None) is None:
            raise
        if len(segments) == 1:
            return [error]
        half = len(segments) // 2
        return [*await _records(index, segments[:half]), *await _records(index, segments[half:])]


async def _load_merge_sources(container: Container, operations: list[Operation]) -> list[Segment]:
    """Load the extents of all merged source segments at once, since `apply` moves extents and cannot await.

    Returns the source segments, pinned.  Raises Corrupt when a segment of a merge is unreadable."""
    state, sources = container.state, {}
    for operation in operations:
        if isinstance(operation, Merge):
            for segment_id in (operation.segment, operation.source):
                if segment_id in state.unreadable:
                    raise Corrupt(
                        f"container {container.number}: the log merges segment {operation.source} into "
                        f"{operation.segment}: {state.unreadable[segment_id]}"
                    )
            if operation.source in state.segments:
                sources[operation.source] = state.segments[operation.source]
    for segment in sources.values():
        segment.pins += 1
    await gather(*(container.metadata.merge_extents(segment) for segment in sources.values()))
    return list(sources.values())


# -- segments whose record is damaged -----------------------------------------------------------


async def _find_set_aside(container: Container) -> None:
    """Mark segments as unreadable whose operations an earlier recovery set aside, even if their record is readable."""
    at, end = _range_of_meta(_SET_ASIDE)
    while True:
        rows, damaged = await scan_page(container.index, at, end, 1)
        if damaged is not None and not rows:
            _log.error("container %d: %s", container.number, damaged)
            at = damaged.resume
            continue
        if not rows:
            return
        segment_id = _segment_of_aside(rows[0][0])
        container.state.unreadable[segment_id] = f"operations of segment {segment_id} were set aside"
        # One row is enough for each segment.
        _, at = aside_range(segment_id)


def aside_range(segment: int) -> tuple[bytes, bytes]:
    """Return the range of keys of the operations of a segment that were set aside."""
    return _aside_key(segment, 0, 0), _aside_key(segment + 1, 0, 0)


async def _set_aside(container: Container, batch: WriteBatch) -> None:
    """Store operations that cannot be applied in the index, because the log is truncated later."""
    await container.index.commit(batch)
    for segment_id in sorted({_segment_of_aside(key) for key in batch.puts}):
        _log.error(
            "container %d: segment %d is unreadable; what the log has of it is set aside in the index: %s",
            container.number, segment_id, container.state.unreadable[segment_id],
        )  # fmt: skip


def _aside_key(segment: int, frame: int, number: int) -> bytes:
    return keys.meta_key(f"{_SET_ASIDE}{segment:019d}/{frame:019d}/{number:010d}")


def _segment_of_aside(key: bytes) -> int:
    return int(keys.parse_meta_key(key).split("/")[1])


def _range_of_meta(prefix: str) -> tuple[bytes, bytes]:
    """Return the range of the meta keys that begin with `prefix`."""
    start = keys.meta_key(prefix)
    # The end is the first key after all keys that begin with the prefix.
    return start, start[:-1] + bytes((start[-1] + 1,))


async def delete_transients(container: Container) -> None:
    """Delete all transient segments: each lives as long as a connection, and no connection survives a recovery."""
    # Memory names those that were created after the checkpoint, the index those of the checkpoint.
    names = {segment.name for segment in container.state.segments.values() if is_transient(segment.name)}
    rows, damaged = await scan_readable(container.index, *_range_of_meta("transient/"))
    names.update(keys.parse_meta_key(key).removeprefix("transient/") for key, _ in rows)
    for error in damaged:
        _log.error("container %d: a transient segment cannot be deleted: %s", container.number, error)
    for name in sorted(names):
        try:
            await container.delete(name)
        # Skip a segment of the checkpoint that the log deleted later.
        except NotFound:
            continue
        except Corrupt as error:
            _log.error("container %d: a transient segment cannot be deleted: %s", container.number, error)
