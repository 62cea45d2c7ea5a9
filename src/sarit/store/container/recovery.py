"""Recovers a container: reads its checkpoint from the index, and replays the log after it.

Recovery is a function of log and index: it decides nothing.  Opening the log has fenced the owner before.  Replay
loads what each operation refers to, applies it, and yields to the event loop between frames, so that other
containers go on serving.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core.errors import Corrupt, NotFound
from sarit.core.names import is_transient
from sarit.index import keys
from sarit.store.container.operations import Append, Create, Merge, SetAttributes, decode_frame, operation_charge

if TYPE_CHECKING:
    from sarit.index.port import Index
    from sarit.store.container.container import Container

_SCAN_ROWS = 1000
_FRAMES_PER_TURN = 16


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the index holds about the container as a whole.

    `frame`: the last one it covers.  `chunk_sequence`: the highest chunk number of all epochs.  `resolved_from`: the
    first epoch whose commits recorded which of their chunks they resolved; None when that is not known."""

    frame: int
    next_segment: int
    chunk_sequence: int
    resolved_from: int | None


async def read_checkpoint(index: Index) -> Checkpoint:
    """The last checkpoint that was committed; frame 0 when there was none."""
    # Keys on disk keep their names: `settled-from` is `resolved_from`.
    names = ("frame", "next-segment", "chunk-sequence", "settled-from", "epoch")
    rows = await index.get([keys.meta_key(name) for name in names])
    *values, resolved_from, epoch = (None if row is None else keys.parse_attribute_value(row) for row in rows)
    if epoch is None:  # no epoch has committed anything: each has recorded what it resolved, which is nothing
        resolved_from = 1
    frame, next_segment, sequence = (value or 0 for value in values)
    return Checkpoint(frame, max(next_segment, 1), sequence, resolved_from)


async def replay_log(container: Container, checkpoint: Checkpoint) -> None:
    """Bring the state of a new container to the end of its log.  Raises Corrupt (a frame is missing or damaged)."""
    state, metadata = container.state, container.metadata
    assert not state.segments, "only a new container may be recovered"
    state.next_segment_id = checkpoint.next_segment
    state.applied_frame = checkpoint.frame
    if checkpoint.resolved_from is not None:
        container.resolved_from = checkpoint.resolved_from
    # Frames that the checkpoint covers may still be in the log, as it is truncated after the commit.  `replay` skips
    # them.
    expected = checkpoint.frame + 1
    async for frame in container.log.replay(checkpoint.frame):
        # A frame that is missing would leave a hole in the state: acknowledged operations are lost, which must not pass
        # unseen.
        if frame.number != expected:
            raise Corrupt(f"container {container.number}: the log continues with frame {frame.number}, not {expected}")
        expected += 1
        wall_ms, operations = decode_frame(frame.payload)
        for operation in operations:
            if not isinstance(operation, Append):  # charged as by `GroupCommit.add`
                charge = operation_charge(operation, operation.encode([]))
                state.dirty.add_operation(charge)
                state.dirty.operations_applied(charge)
            if not isinstance(operation, Create):  # load what the operation refers to, as the checks did
                segment = await metadata.by_id(operation.segment)
                if isinstance(operation, Merge):
                    source = await metadata.by_id(operation.source)
                    # As in `begin_merge`: `apply` moves the extents and cannot await.
                    await metadata.chunks(source)
                if isinstance(operation, Append) and operation.writer not in segment.attributes:
                    await metadata.attribute(segment, operation.writer)
                if isinstance(operation, SetAttributes | Merge):
                    for key, _ in operation.attributes:
                        await metadata.attribute(segment, key)
            state.replay(operation, wall_ms)
        # After the last operation: a frame is applied whole or not at all.
        state.applied_frame = frame.number
        # Replay is work of the event loop: without this no other container would serve meanwhile.
        if frame.number % _FRAMES_PER_TURN == 0:
            await asyncio.sleep(0)
    # Replay moves both states together: nothing is in flight before the container serves.
    for segment in state.segments.values():
        assert not segment.in_flight, segment
        assert segment.assigned_length == segment.length, segment


async def delete_transients(container: Container) -> None:
    """Delete all transient segments: they live as long as a connection, and none has survived."""
    # From memory: those that the log created after the checkpoint.  From the index: those of earlier checkpoints.
    names = {segment.name for segment in container.state.segments.values() if is_transient(segment.name)}
    # The end of the range is the first key after all that begin with the prefix.
    prefix = keys.meta_key("transient/")
    at, end = prefix, prefix[:-1] + bytes((prefix[-1] + 1,))
    while True:
        rows = await container.index.scan(at, end, _SCAN_ROWS)
        names.update(keys.parse_meta_key(key).removeprefix("transient/") for key, _ in rows)
        if len(rows) < _SCAN_ROWS:
            break
        at = keys.after(rows[-1][0])
    for name in sorted(names):
        try:
            await container.delete(name)
        # The log has deleted it since the checkpoint whose row was read.
        except NotFound:
            continue
