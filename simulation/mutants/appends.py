"""Mutants of the way in: order, bounds, conditions."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sarit.store.container.container import Container
from sarit.store.container.state import ContainerState
from sarit.store.flow_control.memory_budget import MemoryBudget
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator


@mutant("order per writer")
@contextmanager
def throttled_appends_reordered() -> Iterator[None]:
    """Appends held back go on last in, first out."""

    def wrong(self: Any) -> None:
        while self._throttled and not self.budget.over_append_limit:
            self._append(*self._throttled.pop())

    with patched(Container, Container.release_throttled, wrong):
        yield


@mutant("bounds")
@contextmanager
def append_limit_ignored() -> Iterator[None]:
    """The bound on un-flushed bytes stops nobody."""
    with patched(MemoryBudget, MemoryBudget.over_append_limit, property(lambda self: False)):
        yield


@mutant("bounds")
@contextmanager
def written_bytes_never_evicted() -> Iterator[None]:
    """All that stands in chunks stays in memory until the checkpoint is committed."""
    with patched(MemoryBudget, MemoryBudget.may_cache_written, lambda self, charged_bytes: True):
        yield


@mutant("liveness")
@contextmanager
def last_throttled_append_stuck() -> Iterator[None]:
    """Appends held back go on only when there are two of them."""

    def wrong(self: Any) -> None:
        while len(self._throttled) > 1 and not self.budget.over_append_limit:
            self._append(*self._throttled.popleft())

    with patched(Container, Container.release_throttled, wrong):
        yield


@mutant("length and offsets")
@contextmanager
def conditional_offset_unchecked() -> Iterator[None]:
    """A conditional append is taken at any length of the segment."""
    right = ContainerState.append

    def wrong(self: Any, *arguments: Any, expected_offset: int | None = None, **rest: Any) -> Any:
        return right(self, *arguments, expected_offset=None, **rest)

    with patched(ContainerState, ContainerState.append, wrong):
        yield


@mutant("no phantom")
@contextmanager
def refused_append_stored() -> Iterator[None]:
    """A conditional append that does not fit is refused, and stored nevertheless."""
    right = Container._append

    def wrong(self: Any, session: Any, append: Any, expected_offset: int | None) -> None:
        if expected_offset is None or expected_offset == session.segment.assigned_length:
            right(self, session, append, expected_offset)
            return
        last = session.last
        right(self, session, append, expected_offset)
        operation = self.state.append(
            session.segment, session.attribute, session, last, writer=session.writer, number=append.last_event_number,
            events=append.events, parts=append.parts, length=append.length,
        )  # fmt: skip
        self.group_commit.add(operation, None)
        session.attribute.assigned = session.last = append.last_event_number

    with patched(Container, Container._append, wrong):
        yield


@mutant("attributes")
@contextmanager
def attribute_condition_unchecked() -> Iterator[None]:
    """An attribute is set whatever it was expected to be."""
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
    """A table entry is put whatever version was expected."""
    right = ContainerState.update_table

    def wrong(self: Any, segment: Any, changes: Any, *rest: Any) -> Any:
        from sarit.core.limits import NO_VERSION

        return right(self, segment, [(key, value, NO_VERSION) for key, value, _ in changes], *rest)

    with patched(ContainerState, ContainerState.update_table, wrong):
        yield


@mutant("length and offsets")
@contextmanager
def length_reported_before_durable() -> Iterator[None]:
    """A segment's info tells the length with what is still on its way to the log."""
    right = Container.info

    async def wrong(self: Any, name: str) -> Any:
        info = await right(self, name)
        segment = await self.metadata.require(name)
        return type(info)(segment.assigned_length, info.start_offset, info.sealed, info.modified_ms)

    with patched(Container, Container.info, wrong):
        yield
