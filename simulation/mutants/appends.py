"""Mutants of appends: order, bounds, conditions."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sarit.store.container.container import Container
from sarit.store.container.state import ContainerState
from sarit.store.container.writer_session import WriterSession
from sarit.store.flow_control.append_gate import AppendGate
from sarit.store.flow_control.memory_budget import MemoryBudget
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator


@mutant("order per writer")
@contextmanager
def throttled_appends_reordered() -> Iterator[None]:
    """Throttled appends are resumed last in, first out."""

    def wrong(self: Any) -> None:
        while self.queue and not self._budget.over_append_limit:
            sink = next(iter(self.queue))
            waiting = self.queue.pop(sink)
            self._count -= 1
            session, append, expected_offset = waiting.pop()
            if waiting:
                self.queue[sink] = waiting
            session.submit(append, expected_offset)
        if self.queue:
            self._budget.notify_below_append_limit(self._below_limit)

    with patched(AppendGate, AppendGate.release, wrong):
        yield


@mutant("bounds")
@contextmanager
def append_limit_ignored() -> Iterator[None]:
    """The limit on dirty bytes throttles no append."""

    def wrong(self: Any, session: Any, append: Any, expected_offset: int | None) -> None:
        session.submit(append, expected_offset)

    with patched(AppendGate, AppendGate.throttle, wrong):
        yield


@mutant("bounds")
@contextmanager
def written_bytes_never_evicted() -> Iterator[None]:
    """Bytes written to chunks stay in memory until the checkpoint is committed."""
    with patched(MemoryBudget, MemoryBudget.may_cache_written, lambda self, charged_bytes: True):
        yield


@mutant("liveness")
@contextmanager
def last_throttled_append_stuck() -> Iterator[None]:
    """The last throttled append is never resumed."""

    def wrong(self: Any) -> None:
        while self._count > 1 and not self._budget.over_append_limit:
            session, append, expected_offset = self._next()
            session.submit(append, expected_offset)

    with patched(AppendGate, AppendGate.release, wrong):
        yield


@mutant("length and offsets")
@contextmanager
def conditional_offset_unchecked() -> Iterator[None]:
    """A conditional append is accepted at any length of the segment."""
    right: Any = ContainerState.append

    def wrong(self: Any, *arguments: Any) -> Any:
        *others, _expected_offset = arguments
        return right(self, *others, None)

    with patched(ContainerState, ContainerState.append, wrong):
        yield


@mutant("no phantom")
@contextmanager
def refused_append_stored() -> Iterator[None]:
    """A conditional append whose condition fails is refused, but stored."""
    right = WriterSession.submit

    def wrong(self: Any, append: Any, expected_offset: int | None) -> None:
        if expected_offset is None or expected_offset == self.segment.assigned_length:
            right(self, append, expected_offset)
            return
        last = self.last
        right(self, append, expected_offset)
        operation = self.container.state.append(
            self.segment, self.attribute, self, last, self.writer, append.last_event_number, append.events,
            append.parts, append.length, None,
        )  # fmt: skip
        self.container.group_commit.add(operation, None)
        self.attribute.assigned = self.last = append.last_event_number

    with patched(WriterSession, WriterSession.submit, wrong):
        yield


@mutant("attributes")
@contextmanager
def attribute_condition_unchecked() -> Iterator[None]:
    """An attribute is set without a check of its expected value."""
    right = Container.update_attribute

    async def wrong(self: Any, name: str, key: bytes, value: int, expected: int) -> bool:
        segment = await self.metadata.require(name)
        segment.pins += 1
        try:
            expected = (await self.metadata.attribute(segment, key)).assigned
        finally:
            segment.pins -= 1
        return await right(self, name, key, value, expected)

    with patched(Container, Container.update_attribute, wrong):
        yield


@mutant("tables")
@contextmanager
def table_version_unchecked() -> Iterator[None]:
    """A table entry is put without a check of its expected version."""
    right = ContainerState.update_table

    def wrong(self: Any, segment: Any, changes: Any, *rest: Any) -> Any:
        from sarit.wire.limits import NO_VERSION

        return right(self, segment, [(key, value, NO_VERSION) for key, value, _ in changes], *rest)

    with patched(ContainerState, ContainerState.update_table, wrong):
        yield


@mutant("length and offsets")
@contextmanager
def length_reported_before_durable() -> Iterator[None]:
    """A segment's info reports a length that includes appends not yet durable."""
    right = Container.info

    async def wrong(self: Any, name: str) -> Any:
        info = await right(self, name)
        segment = await self.metadata.require(name)
        return type(info)(segment.assigned_length, info.start_offset, info.sealed, info.modified_ms)

    with patched(Container, Container.info, wrong):
        yield
