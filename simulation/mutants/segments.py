"""Mutants of seals, truncations and merges, and of how a checkpoint saves them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sarit.store.container.container import Container
from sarit.store.container.reads import Reads
from sarit.store.container.segment import Segment
from sarit.store.container.state import ContainerState
from sarit.store.tiering.checkpoint import BatchBuilder
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.store.container.operations import Merge


@mutant("sealed is for ever")
@contextmanager
def append_after_seal() -> Iterator[None]:
    """A sealed segment accepts appends."""
    right = ContainerState.append

    def wrong(self: Any, segment: Any, *arguments: Any, **rest: Any) -> Any:
        sealed, segment.assigned_sealed = segment.assigned_sealed, False
        try:
            return right(self, segment, *arguments, **rest)
        finally:
            segment.assigned_sealed = sealed

    with patched(ContainerState, ContainerState.append, wrong):
        yield


@contextmanager
def recorded(field: str, value: Any) -> Iterator[None]:
    """Records of segments have this value in a field."""
    right = Segment.record

    def wrong(self: Any) -> bytes:
        saved = getattr(self, field)
        setattr(self, field, value)
        try:
            return right(self)
        finally:
            setattr(self, field, saved)

    with patched(Segment, Segment.record, wrong):
        yield


@mutant("sealed is for ever")
@contextmanager
def seal_not_saved() -> Iterator[None]:
    """A checkpoint does not save that a segment is sealed."""
    with recorded("sealed", False):
        yield


@mutant("truncation monotone")
@contextmanager
def truncation_not_saved() -> Iterator[None]:
    """A checkpoint does not save the start of a segment."""
    with recorded("start", 0):
        yield


@mutant("sealed is for ever")
@contextmanager
def end_of_segment_reported_early() -> Iterator[None]:
    """Every read of a sealed segment reports the end of the segment."""
    right = Reads._result

    def wrong(self: Any, segment: Any, offset: int, parts: Any, limit: int) -> Any:
        result = right(self, segment, offset, parts, limit)
        result.end_of_segment = segment.sealed
        return result

    with patched(Reads, Reads._result, wrong):
        yield


@mutant("long-term storage is a prefix")
@contextmanager
def boundary_chunk_dropped() -> Iterator[None]:
    """Truncation drops the extent that holds the new start, and its chunk."""

    async def wrong(self: Any, item: Any, batch: Any, garbage: set[str]) -> None:
        from sarit.store.tiering.references import stored_key

        stored = await self._stored_extents(item.segment.id)
        dropped = [extent for extent in stored if extent.start < item.start]
        batch.deletes.update(stored_key(item.segment.id, extent) for extent in dropped)
        garbage.update(extent.reference for extent in dropped if extent.chunk)

    with patched(BatchBuilder, BatchBuilder._add_truncated, wrong):
        yield


@mutant("attributes")
@contextmanager
def attributes_not_saved() -> Iterator[None]:
    """A checkpoint saves only the newest attribute of each segment."""
    right = BatchBuilder._add_segment

    async def wrong(self: Any, item: Any, batch: Any, garbage: set[str]) -> None:
        item.attributes = dict(list(item.attributes.items())[-1:])
        await right(self, item, batch, garbage)

    with patched(BatchBuilder, BatchBuilder._add_segment, wrong):
        yield


@mutant("transactions")
@contextmanager
def merge_drops_last_block() -> Iterator[None]:
    """A commit of a transaction merges all but its last block."""
    right = ContainerState.merge

    def wrong(self: Any, target: Any, source: Any, attributes: Any, offset: Any = None) -> Merge:
        if len(source.tail) > 1 and source.assigned_length == source.length:
            last = source.tail.pop()
            self.dirty.remove_blocks(1, last.length)
            source.assigned_length = source.length = last.offset
        return right(self, target, source, attributes, offset)

    with patched(ContainerState, ContainerState.merge, wrong):
        yield


@mutant("transactions")
@contextmanager
def aborted_transaction_merged() -> Iterator[None]:
    """An abort of a transaction commits it."""
    right = Container.delete

    async def wrong(self: Any, name: str) -> None:
        parent, found, _ = name.partition("#transaction.")
        if found:
            await self.merge(parent, name)
        else:
            await right(self, name)

    with patched(Container, Container.delete, wrong):
        yield


@mutant("transactions")
@contextmanager
def transaction_writes_to_parent() -> Iterator[None]:
    """Half of the transactions append directly to the parent segment, before the commit."""
    right = Container.set_up_writer

    async def wrong(self: Any, name: str, session: Any) -> None:
        parent, found, _ = name.partition("#transaction.")
        await right(self, parent if found and session.writer[-1] % 2 else name, session)

    with patched(Container, Container.set_up_writer, wrong):
        yield
