"""Two controllers of one target in the midst of one round: one stops at any of its calls, while the other one goes on.

What is decided is carried out as a whole, whatever the other controller does; what is not decided is left undone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from sarit.controller.limits import PROMOTED_EPOCHS
from sarit.mirror.values import MirrorStatus, Round, Write
from tests.limits import HANG_SECONDS
from tests.unit.controller.world import STREAM
from tests.unit.mirror.interrupted import Calls
from tests.unit.mirror.shared_store import begun, installation, run
from tests.unit.mirror.target_world import LINK, copy, named, ready

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sarit.mirror.target import LocalTarget
    from tests.unit.mirror.shared_store import Installation
    from tests.unit.mirror.target_world import Edge


class Stop:
    """A controller's calls, which stop before the call `at`, until they may go on."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._reached = asyncio.Event()
        self.going = asyncio.Event()
        self.calls = Calls(self._hook)

    async def _hook(self, number: int, done: bool) -> None:
        if number >= self._at and not done and not self.going.is_set():
            self._reached.set()
            await self.going.wait()

    async def begin(self, work: Awaitable[Any]) -> tuple[asyncio.Task[Any], bool]:
        """Start work until it stops, or ends.  Returns whether it has stopped."""
        task = asyncio.ensure_future(work)
        reached = asyncio.ensure_future(self._reached.wait())
        await asyncio.wait([task, reached], timeout=HANG_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        return task, not task.done()


def _late_write(target: LocalTarget, edge: Edge) -> Awaitable[Any]:
    """Stage what a later round has, for a segment of now and for one to come: both may be sealed."""
    coming = min(edge.epochs[1].ids - edge.epochs[0].ids)
    writes = [Write(STREAM, 1, 11, b"later", True), Write(STREAM, coming, len(edge.data[coming]), b"later", True)]
    return target.write(LINK, "s", writes)


def _drop(target: LocalTarget, edge: Edge) -> Awaitable[Any]:
    return target.drop(LINK, "s", [(STREAM, s) for s in edge.data])


def _shorter_round(target: LocalTarget, edge: Edge) -> Awaitable[Any]:
    return target.finish(LINK, "s", [Round(STREAM, {0: 7, 1: 0}, {0: 9, 1: 3}, frozenset(), ())])


def _promotion(target: LocalTarget, edge: Edge) -> Awaitable[Any]:
    return target.promote(LINK, "s", [STREAM])


async def _lengths(here: Installation, edge: Edge) -> dict[int, int]:
    """The lengths of all segments of the source that the mirror has, whose bytes are the source's."""
    found = {}
    for segment, info in zip(edge.data, await here.segments.infos([named(STREAM, s) for s in edge.data]), strict=True):
        if info is not None:
            (data,) = await here.segments.read_many([(named(STREAM, segment), 0, info.length)])
            assert data == edge.data[segment][: info.length]
            found[segment] = info.length
    return found


async def _meet(other: Any, at: int, then: int) -> tuple[bool, bool, bool]:
    """One controller does something else, and stops at a call; another one finishes the round, and stops at a call.

    Then the first goes on to its end, and so does the second.  Returns whether each of them stopped, and whether the
    round was carried out."""
    async with installation() as here:
        edge, one = await begun(here)
        first, second = Stop(at), Stop(then)
        _, late = await here.start(first.calls)
        _, target = await here.start(second.calls)
        doing, stopped = await first.begin(other(late, edge))
        finishing, waits = await second.begin(target.finish(LINK, "s", [one]))
        first.going.set()
        # A promotion may have to wait for the round.
        await asyncio.wait([doing], timeout=HANG_SECONDS)
        second.going.set()
        await asyncio.gather(doing, finishing)
        controller, after = await here.start()
        whole = {s: len(data) for s, data in edge.data.items()}
        lengths = await _lengths(here, edge)
        assert lengths in (one.before, whole)
        (state,) = await after.states(LINK, "s", [STREAM])
        if other is _promotion:
            assert state.status is MirrorStatus.PROMOTED
            assert state.lineage.epoch == PROMOTED_EPOCHS + (3 if lengths == whole else 0)
        elif lengths == one.before:
            await ready(after, edge.facts())
            await copy(after, edge, one)
            assert await _lengths(here, edge) == whole
        return stopped, waits, lengths == whole


@pytest.mark.parametrize(("other", "step"), [(_late_write, 1), (_drop, 1), (_shorter_round, 3), (_promotion, 5)])
def test_decided_round_is_carried_out_whatever_another_controller_does(other, step):
    """`step`: each stop of a long call meets one of so many stops of the round, another one from stop to stop."""
    outcomes = set()
    at = 1
    while True:
        then = 1 + at % step
        while True:
            stopped, waits, done = run(_meet(other, at, then))
            outcomes.add(done)
            if not waits:
                break
            then += step
        if not stopped:
            break
        at += 1
    assert at > 3
    assert outcomes == {False, True}
