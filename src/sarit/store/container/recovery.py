"""Opens a container: fences the owner before, reads the checkpoint, replays the log after it.

Recovery is a function of log and index.  Replay yields to the event loop between frames, so
that other containers serve on meanwhile.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Corrupt, NotFound, Unavailable
from sarit.core.names import is_transient
from sarit.index import keys
from sarit.index.port import Index, IndexProvider, WriteBatch
from sarit.storage.names import epoch_prefix
from sarit.store.container.container import Container, ContainerLimits
from sarit.store.container.dirty_bytes import operation_bytes
from sarit.store.container.operations import Append, Create, Merge, SetAttributes, decode_frame
from sarit.store.tiering.checkpoint import failed_write_key, resolved_key
from sarit.store.tiering.chunk_gc import delete_chunks, deletion_groups
from sarit.store.tiering.flusher import Flusher, FlushLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.env.ports import Env
    from sarit.log.port import LogProvider
    from sarit.storage.port import ChunkStorage
    from sarit.store.flow_control.memory_budget import MemoryBudget
    from sarit.store.flow_control.write_limiter import RateLimiters

_SCAN_ROWS = 1000
_FRAMES_PER_TURN = 16


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the index says of the container as a whole."""

    frame: int
    next_segment: int
    chunk_sequence: int
    resolved_from: int | None


@dataclass(frozen=True, slots=True)
class Opened:
    """A container that serves, and what its owner must run."""

    container: Container
    flusher: Flusher
    checkpoint: Checkpoint
    # One sweep at a time: what one says is swept another must not judge by what was settled.
    sweeping: asyncio.Lock = field(default_factory=asyncio.Lock)


async def open_container(
    number: int, env: Env, logs: LogProvider, indexes: IndexProvider, storage: ChunkStorage, budget: MemoryBudget,
    rate_limiters: RateLimiters, limits: ContainerLimits, flush: FlushLimits,
    on_failure: Callable[[Container, BaseException], None],
) -> Opened:  # fmt: skip
    """Recover a container and let it serve.  Raises Corrupt, Unavailable, Fenced."""
    log = await logs.open(number)
    index = None
    try:
        index = await indexes.open(number)
        checkpoint = await _read_checkpoint(index)
        container = Container(number, env, log, index, storage, budget, rate_limiters, limits, on_failure)
        container.state.next_segment_id = checkpoint.next_segment
        container.state.applied_frame = checkpoint.frame
        if checkpoint.resolved_from is not None:
            container.resolved_from = checkpoint.resolved_from
        await _replay(container, checkpoint.frame)
        container.serve()
        flusher = Flusher(container, flush, checkpoint.chunk_sequence)
        flusher.checkpoint_frame = checkpoint.frame
        await _delete_transients(container)
        return Opened(container, flusher, checkpoint)
    except BaseException:
        await log.close()
        if index is not None:
            await index.close()
        raise


async def _read_checkpoint(index: Index) -> Checkpoint:
    names = ("frame", "next-segment", "chunk-sequence", "settled-from", "epoch")
    rows = await index.get([keys.meta_key(name) for name in names])
    *values, resolved_from, epoch = (None if row is None else keys.parse_attribute_value(row) for row in rows)
    if epoch is None:  # no epoch ever committed anything, so each has told what it settled: nothing
        resolved_from = 1
    frame, next_segment, sequence = (value or 0 for value in values)
    return Checkpoint(frame, max(next_segment, 1), sequence, resolved_from)


async def _replay(container: Container, after: int) -> None:
    state, metadata = container.state, container.metadata
    expected = after + 1
    async for frame in container.log.replay(after):
        if frame.number != expected:
            raise Corrupt(f"container {container.number}: the log continues with frame {frame.number}, not {expected}")
        expected += 1
        wall_ms, operations = decode_frame(frame.payload)
        for operation in operations:
            if not isinstance(operation, Append):
                held = operation_bytes(operation, operation.encode([]))
                state.dirty.add_operation(held)
                state.dirty.operations_applied(held)
            if not isinstance(operation, Create):
                segment = await metadata.by_id(operation.segment)
                if isinstance(operation, Merge):
                    source = await metadata.by_id(operation.source)
                    await metadata.chunks(source)
                if isinstance(operation, Append) and operation.writer not in segment.attributes:
                    await metadata.attribute(segment, operation.writer)
                if isinstance(operation, SetAttributes | Merge):
                    for key, _ in operation.attributes:
                        await metadata.attribute(segment, key)
            state.replay(operation, wall_ms)
        state.applied_frame = frame.number
        if frame.number % _FRAMES_PER_TURN == 0:
            await asyncio.sleep(0)


async def _delete_transients(container: Container) -> None:
    """Transient segments live as long as a connection: none survives."""
    names = {segment.name for segment in container.state.segments.values() if is_transient(segment.name)}
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
        except NotFound:
            continue


async def _settled(opened: Opened, epoch: int) -> int:
    """The highest chunk number that commits of an older epoch settled."""
    (row,) = await opened.container.index.get([resolved_key(epoch)])
    if row is not None:
        return keys.parse_attribute_value(row)
    since = opened.checkpoint.resolved_from
    # Epochs before those that tell theirs: nothing above the last number of all is referenced.
    return 0 if since is not None and epoch >= since else opened.checkpoint.chunk_sequence


async def _failed(opened: Opened, epoch: int) -> set[int]:
    """The chunk numbers of an older epoch whose writes were reported as failed."""
    numbers: set[int] = set()
    at, end = failed_write_key(epoch, 0), failed_write_key(epoch + 1, 0)
    while True:
        rows = await opened.container.index.scan(at, end, _SCAN_ROWS)
        numbers.update(int(keys.parse_meta_key(key).rpartition("/")[2]) for key, _ in rows)
        if len(rows) < _SCAN_ROWS:
            return numbers
        at = keys.after(rows[-1][0])


async def sweep_orphans(opened: Opened, *, record_swept: bool = True) -> int:
    """Delete chunks that older epochs wrote and never committed; how many there were.

    Three kinds of chunks are referenced by nothing: those numbered above the last number that a commit of their epoch
    resolved, those of an epoch without a commit, and those whose write was reported as failed (they were garbage at
    once, but may have appeared after the garbage was collected).

    `record_swept`: no write of these epochs can still arrive, so record that they need no other sweep.  A chunk that
    cannot be deleted does not keep the others from being deleted.

    Raises Unavailable when long-term storage is away, or some chunks cannot be deleted: try again.
    """
    async with opened.sweeping:
        return await _sweep(opened, record_swept)


async def _sweep(opened: Opened, record_swept: bool) -> int:
    container, swept_key = opened.container, keys.meta_key("swept-epoch")
    # Read anew each time: what swept epochs settled is forgotten in the commit that says they are swept.
    (row,) = await container.index.get([swept_key])
    before = 0 if row is None else keys.parse_attribute_value(row)
    if before >= container.log.epoch - 1:
        return 0  # also when the log was lost, and its epochs began anew: they are not those that were swept
    swept, stuck = 0, list[Unavailable]()
    for epoch in range(before + 1, container.log.epoch):
        for names in deletion_groups(await _orphans(opened, epoch)):
            kept = [error for error in await delete_chunks(container.storage, names) if error is not None]
            swept += len(names) - len(kept)
            stuck += kept
    if stuck:
        raise Unavailable(f"{len(stuck)} cannot be deleted: {stuck[0]}") from stuck[0]
    if not record_swept:
        return swept
    batch = WriteBatch()
    batch.puts[swept_key] = keys.attribute_value(container.log.epoch - 1)
    batch.range_deletes.append((resolved_key(0), resolved_key(container.log.epoch)))
    batch.range_deletes.append((failed_write_key(0, 0), failed_write_key(container.log.epoch, 0)))
    await container.index.commit(batch)
    return swept


async def _orphans(opened: Opened, epoch: int) -> list[str]:
    """The chunks of an older epoch that nothing references."""
    container = opened.container
    settled, failed = await _settled(opened, epoch), await _failed(opened, epoch)
    orphans = []
    async for name, _ in container.storage.list(epoch_prefix(container.number, epoch)):
        sequence = name.rpartition("/")[2].partition("-")[0]
        if not sequence.isdigit():
            raise Corrupt(f"long-term storage holds {name!r}, which is no chunk of this node")
        if int(sequence) > settled or int(sequence) in failed:
            orphans.append(name)
    if orphans:
        coverage_probe("orphans_swept")
    return orphans


__all__ = ["Checkpoint", "Opened", "Unavailable", "open_container", "sweep_orphans"]
