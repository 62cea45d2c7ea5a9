"""Mutants of links between installations: moments of the source, staging, rounds, promotions."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sarit.controller.background.timeline import Timeline
from sarit.core.errors import Conflict
from sarit.mirror.moments import Moments
from sarit.mirror.open_mirrors import OpenMirrors
from sarit.mirror.round_steps import RoundSteps
from sarit.mirror.staging import Staging
from sarit.mirror.target import LocalTarget
from sarit.process.store_calls.in_process import InProcessSegments
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX: Final = "a mirror is a prefix of its source"
_MOMENT: Final = "a mirror is a moment of its source"
_CRASHES: Final = "tests/unit/mirror/test_target_crashes.py::test_"
_CIRCLE: Final = "tests/unit/mirror/test_full_circle.py::test_a_"


@mutant(_PREFIX, found_by=f"{_CRASHES}late_copier_does_no_harm_at_any_call_of_a_round")
@contextmanager
def mirror_appended_at_its_end() -> Iterator[None]:
    """Bytes of a link are appended wherever the segment ends."""
    right = InProcessSegments.append_at_many

    async def wrong(self: Any, writes: Any, *, begin_events: bool = True) -> Any:
        out = []
        for segment, offset, data in writes:
            (info,) = await self.infos([segment])
            at = offset if info is None else info.length
            (found,) = await right(self, [(segment, at, data)], begin_events=begin_events)
            out.append(offset + len(data) if isinstance(found, int) else found)
        return out

    with patched(InProcessSegments, right, wrong):
        yield


@mutant(_PREFIX, found_by=f"{_CRASHES}late_copier_does_no_harm_at_any_call_of_a_round")
@contextmanager
def staged_bytes_merged_at_the_end() -> Iterator[None]:
    """What was staged is merged wherever the segment ends, and from where it was staged."""
    right = Staging.merge

    async def wrong(self: Any, place: Any, after: int) -> None:
        try:
            await self._segments.merge(place.segment, [place.name])
        except Conflict:
            await right(self, place, after)

    with patched(Staging, right, wrong):
        yield


@mutant(_MOMENT, found_by="tests/unit/mirror/test_source.py::test_no_offer_has_part_of_a_transaction")
@contextmanager
def half_a_commit_offered() -> Iterator[None]:
    """A source offers whatever its segments have, while a transaction is merged into one after the other."""

    async def wrong(self: Any, scope: Any, moments: Any, rows: Any, merged: Any) -> Any:
        return []

    with patched(Moments, Moments._unclean, wrong):
        yield


@mutant(_MOMENT, found_by="tests/unit/mirror/test_source.py::test_no_offer_has_part_of_a_transaction")
@contextmanager
def half_a_commit_recorded_as_clean() -> Iterator[None]:
    """Every recorded cut counts as clean, also while a transaction is merged into one segment after the other."""

    async def wrong(self: Any, name: Any, found: Any) -> Any:
        return True

    with patched(Timeline, Timeline._is_clean, wrong):
        yield


@mutant(_MOMENT, found_by=f"{_CIRCLE}promotion_finishes_a_round_that_was_decided")
@contextmanager
def decided_round_dropped_by_a_promotion() -> Iterator[None]:
    """A promotion drops a round that was decided, and of which some segments may have their part already."""
    right = LocalTarget.resolve

    async def wrong(self: Any, name: Any) -> None:
        async with self._streams.locks.hold(name):
            (mirror,) = await self._mirrors.read(name.scope, [name])
            if mirror is not None and mirror.row.decided is not None:
                await self._mirrors.store(mirror, row=replace(mirror.row, decided=None))
        await right(self, name)

    with patched(LocalTarget, right, wrong):
        yield


@mutant(_MOMENT, found_by="tests/unit/mirror/test_two_controllers.py")
@contextmanager
def staged_bytes_deleted_before_the_drop_is_stored() -> Iterator[None]:
    """What is staged is dropped by deleting it, though another controller may be about to decide a round with it."""
    right = OpenMirrors.store

    async def wrong(self: Any, mirror: Any, *, record: Any = None, row: Any = None, more: Any = ()) -> Any:
        if record is None and row is not None and row == replace(mirror.row, drops=row.drops):
            return mirror
        return await right(self, mirror, record=record, row=row, more=more)

    with patched(OpenMirrors, right, wrong):
        yield


@mutant(_PREFIX)
@contextmanager
def epochs_published_before_their_predecessors_end() -> Iterator[None]:
    """All epochs of a round are published at first, and then their segments are merged, the last ones first."""
    finish = RoundSteps._finish_epoch

    async def wrong(self: Any, mirror: Any, decided: Any, starts: Any) -> None:
        if mirror.record.current.number == max((e.number for e in decided.epochs), default=-1):
            await finish(self, mirror, decided, starts)
            for epoch in (*mirror.record.epochs[:-1], *decided.epochs[:-1]):
                past = replace(mirror.record, epochs=(epoch,))
                await finish(self, replace(mirror, record=past), decided, starts)

    with patched(RoundSteps, finish, wrong):
        yield
