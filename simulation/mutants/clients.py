"""Mutants of streams: scaling, and the Python client that follows it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sarit.client.progress import Progress
from sarit.controller.model import streams
from sarit.controller.model.records import WorkKind
from simulation.mutants.planting import planted
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator


@mutant("scale safety")
@contextmanager
def successor_before_predecessors() -> Iterator[None]:
    """A reader begins a merged segment when one of its predecessors is read."""
    right = Progress.followed

    def wrong(self: Any, segment: Any, successors: Any) -> Any:
        known = set(self.positions)
        alone = [replace(s, predecessors=frozenset({segment})) for s in successors if s.segment not in known]
        return right(self, segment, alone) if alone or not successors else []

    with planted(Progress, "followed", wrong):
        yield


@mutant("scale safety")
@contextmanager
def sealed_before_published() -> Iterator[None]:
    """A scale seals what it replaces before it publishes what comes after."""
    right = streams.step

    def wrong(name: Any, record: Any, epochs: Any) -> Any:
        found = right(name, record, epochs)
        if found is None or record.work.kind is not WorkKind.SCALE:
            return found
        seals = tuple(streams.SealSegment(streams._segment(name, s)) for s in found.then.work.segments)
        return replace(found, stages=(seals, *found.stages))

    with planted(streams, "step", wrong):
        yield


@mutant("scale safety")
@contextmanager
def replaced_segment_not_sealed() -> Iterator[None]:
    """A scale does not seal what it replaced."""
    right = streams._publish

    def wrong(stages: Any, record: Any) -> Any:
        found = right(stages, record)
        return replace(found, then=replace(found.then, work=streams.NO_WORK))

    with planted(streams, "_publish", wrong):
        yield


@mutant("key space tiled")
@contextmanager
def gap_in_key_space() -> Iterator[None]:
    """The last segment of a split begins a little too late."""
    right = streams.next_epoch

    def wrong(current: Any, replaced: Any, ranges: Any, now_ms: int) -> Any:
        epoch = right(current, replaced, ranges, now_ms)
        if len(ranges) < 2:
            return epoch
        last = max(epoch.segments, key=lambda s: s.segment)
        late = replace(last, low=last.low + (last.high - last.low) / 16)
        return replace(epoch, segments=tuple(late if s is last else s for s in epoch.segments))

    with planted(streams, "next_epoch", wrong):
        yield
