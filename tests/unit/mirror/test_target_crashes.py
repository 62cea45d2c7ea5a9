"""A target over a real store, whose controller dies at every call, or meets a late copier at every call."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from sarit.controller.assembly import Controller
from sarit.core.keyspace import KeyRange
from sarit.core.names import staging_segment
from sarit.mirror.values import MirrorState, MirrorStatus, Round, Write
from sarit.process.store_calls.in_process import InProcessSegments, InProcessTables
from tests.limits import HANG_SECONDS
from tests.unit.controller.fakes import Crash
from tests.unit.controller.world import STREAM, halves
from tests.unit.mirror.interrupted import Calls, dying, judge
from tests.unit.mirror.target_world import LINK, Edge, copy, named, ready, target_of
from tests.unit.store.harness import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sarit.mirror.target import LocalTarget


async def _quiet(number: int, done: bool) -> None:
    pass


class Installation:
    """Controllers over one real store in memory."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.segments = InProcessSegments(store, lambda: ("127.0.0.1", 12345))

    async def start(self, calls: Calls | None = None) -> tuple[Controller, LocalTarget]:
        """Another controller and its target.  `calls`: which it makes."""
        calls = calls or Calls(_quiet)
        tables, segments = calls.of(InProcessTables(self._store)), calls.of(self.segments)
        controller = Controller(tables, segments, self._store.env, ("127.0.0.1", 9090))
        await controller.catalog.start()
        calls.on = True
        return controller, target_of(controller, segments, self._store.env)


@asynccontextmanager
async def installation() -> AsyncIterator[Installation]:
    store = await World().start()
    yield Installation(store)
    await store.stop()


def run(test: Any) -> Any:
    return asyncio.run(asyncio.wait_for(test, HANG_SECONDS))


def history() -> tuple[Edge, dict[int, int]]:
    """A stream of a source over four epochs, and the lengths of epoch 0 from which a round leads to its end."""
    edge = Edge(2)
    edge.data |= {0: b"a" * 20, 1: b"b" * 11}
    low, high = edge.scale([0], halves(0.0, 0.5))
    edge.data |= {low: b"c" * 13, high: b"d" * 5}
    (merged,) = edge.scale([high, 1], [KeyRange(0.25, 1.0)])
    edge.data[merged] = b"e" * 17
    (last,) = edge.scale([low, merged], [KeyRange(0.0, 1.0)])
    edge.data[last] = b"f" * 3
    return edge, {0: 7, 1: 0}


async def begun(here: Installation) -> tuple[Edge, Any]:
    """A mirror that has 7 bytes, and all of a round over three more epochs staged."""
    edge, before = history()
    _, target = await here.start()
    await ready(target, edge.facts())
    await target.write(LINK, "s", [Write(STREAM, 0, 0, edge.data[0][:7], False)])
    one = edge.round(before, edge.epochs[1:])
    found = await target.write(LINK, "s", edge.writes(one, size=4))
    assert not [written for written in found if written.refused or written.reason]
    return edge, one


async def completed(here: Installation, edge: Edge, one: Any) -> MirrorState:
    """What another controller makes of it, whatever the last one left."""
    controller, target = await here.start()
    await judge(controller, here.segments, edge)
    state = await ready(target, edge.facts())
    await judge(controller, here.segments, edge)
    if state.position.epoch == 0:  # the round was not decided
        assert state.position.lengths == one.before
        state = await copy(target, edge, one, size=3)
    await judge(controller, here.segments, edge)
    assert state.position.lengths == {s: len(edge.data[s]) for s in edge.epochs[-1].ids}
    assert state.position.epoch == edge.epochs[-1].number
    assert state.staged == {}
    assert await staged(here, one) == []
    return state


async def staged(here: Installation, one: Any) -> list[str]:
    """What is staged of a round still."""
    names = [staging_segment(named(STREAM, s), at) for s, end in one.after.items() for at in range(end + 1)]
    found = await here.segments.infos(names)
    return [name for name, info in zip(names, found, strict=True) if info is not None]


def test_controller_that_dies_at_any_call_of_a_round_leaves_it_undone_or_decided():
    async def calls_of_a_round() -> int:
        async with installation() as here:
            _, one = await begun(here)
            calls = Calls(_quiet)
            _, target = await here.start(calls)
            calls.count = 0
            (state,) = await target.finish(LINK, "s", [one])
            assert state.status is MirrorStatus.READY
            return calls.count

    async def dies(at: int, after: bool) -> None:
        async with installation() as here:
            edge, one = await begun(here)
            _, target = await here.start(dying(at, after=after))
            with pytest.raises(Crash):
                await target.finish(LINK, "s", [one])
            await completed(here, edge, one)

    most = run(calls_of_a_round())
    assert most > 30
    for at in range(1, most + 1):
        for after in (False, True):
            run(dies(at, after))


def test_controller_that_dies_at_any_call_of_a_beginning_leaves_none_or_one_that_goes_on():
    async def dies(at: int, after: bool) -> bool:
        async with installation() as here:
            edge, _ = history()
            calls = dying(at, after=after)
            _, target = await here.start(calls)
            with suppress(Crash):
                await target.begin(LINK, "s", [edge.facts(head={0: 4, 1: 2}, properties={"time-unit": "seconds"})])
            died = calls.count >= at
            controller, target = await here.start()
            await controller.streams.complete_pending(STREAM)
            state = await ready(target, edge.facts(head={0: 4, 1: 2}))
            assert state.position.lengths == {0: 4, 1: 2}
            infos = await here.segments.infos([named(STREAM, 0), named(STREAM, 1)])
            assert [(info.start_offset, info.length) for info in infos] == [(4, 4), (2, 2)]
            return died

    at = 1
    while all([run(dies(at, after)) for after in (False, True)]):
        at += 1
    assert at > 10


def test_controller_that_dies_while_bytes_are_staged_leaves_what_goes_on():
    async def dies(at: int, after: bool) -> None:
        async with installation() as here:
            edge, before = history()
            _, target = await here.start()
            await ready(target, edge.facts())
            await target.write(LINK, "s", [Write(STREAM, 0, 0, edge.data[0][:7], False)])
            one = edge.round(before, edge.epochs[1:])
            _, target = await here.start(dying(at, after=after))
            with suppress(Crash):
                await target.write(LINK, "s", edge.writes(one, size=4))
            await completed(here, edge, one)

    for at in range(1, 20):
        for after in (False, True):
            run(dies(at, after))


@pytest.mark.parametrize("late", ["appends", "stages", "drops"])
def test_late_copier_does_no_harm_at_any_call_of_a_round(late):
    async def meets(at: int) -> bool:
        async with installation() as here:
            edge, one = await begun(here)
            _, other = await here.start()

            async def hook(number: int, done: bool) -> None:
                if number != at or done:
                    return
                (state,) = await other.states(LINK, "s", [STREAM])
                end = state.position.lengths.get(0, 20)
                if late == "appends" and end < 20:
                    await other.write(LINK, "s", [Write(STREAM, 0, end, edge.data[0][end : end + 5], False)])
                elif late == "appends":
                    await here.segments.append_at_many([(named(STREAM, 0), end, b"")])
                elif late == "stages":
                    await other.write(LINK, "s", edge.writes(one, size=6))
                else:
                    await other.drop(LINK, "s", [(STREAM, s) for s in one.after])

            calls = Calls(hook)
            controller, target = await here.start(calls)
            (state,) = await asyncio.wait_for(target.finish(LINK, "s", [one]), HANG_SECONDS)
            met, calls.on = calls.count >= at, False
            await judge(controller, here.segments, edge)
            if state.position.epoch == 0:
                again = edge.round((await ready(target, edge.facts())).position.lengths, edge.epochs[1:])
                state = await copy(target, edge, again)
            await judge(controller, here.segments, edge)
            assert state.position.lengths == {s: len(edge.data[s]) for s in edge.epochs[-1].ids}
            return met

    at = 1
    while run(meets(at)):
        at += 1
    assert at > 30


def test_bytes_staged_beyond_a_round_at_any_call_of_it_leave_it_undone_or_decided():
    """The round is of a connection that was cut: its copier is back, and stages what a later round has."""

    async def meets(at: int) -> tuple[bool, bool]:
        async with installation() as here:
            edge, one = await begun(here)
            late: list[asyncio.Task[Any]] = []

            async def hook(number: int, done: bool) -> None:
                if number == at and not done:
                    calls.on = False
                    late.append(asyncio.create_task(target.write(LINK, "s", [Write(STREAM, 1, 11, b"later", True)])))
                    await asyncio.wait(late, timeout=0.02)  # it may wait for this round
                    calls.on = True

            calls = Calls(hook)
            controller, target = await here.start(calls)
            (state,) = await asyncio.wait_for(target.finish(LINK, "s", [one]), HANG_SECONDS)
            met, calls.on = calls.count >= at, False
            await asyncio.gather(*late)
            await judge(controller, here.segments, edge)
            decided = state.position.epoch == edge.epochs[-1].number
            assert decided or state.position.lengths == one.before
            return met, decided

    found, at = [], 1
    while (met := run(meets(at)))[0]:
        found.append(met[1])
        at += 1
    assert at > 30
    assert any(found)


def test_controller_that_dies_while_a_mirror_has_not_all_epochs_of_its_head():
    async def begins(here: Installation) -> tuple[Edge, Any, Any]:
        edge, _ = history()
        (low, high), (merged,) = (
            sorted(edge.epochs[1].ids - edge.epochs[0].ids),
            edge.epochs[2].ids - edge.epochs[1].ids,
        )
        facts = edge.facts(head={low: 4, high: 1, 1: 2})
        _, target = await here.start()
        state = await ready(target, facts)
        assert state.position.lengths == {1: 2}
        after = {s: len(edge.data[s]) for s in (low, high, 1, merged, *edge.epochs[3].ids)}
        one = Round(STREAM, {1: 2}, after, frozenset(after) - edge.epochs[3].ids, tuple(edge.epochs[1:]))
        starts = facts.head
        writes = [
            Write(STREAM, s, starts.get(s, 0), edge.data[s][starts.get(s, 0) : n], True) for s, n in after.items()
        ]
        assert not [w for w in await target.write(LINK, "s", writes) if w.refused or w.reason]
        return edge, facts, one

    async def dies(at: int, after: bool) -> bool:
        async with installation() as here:
            edge, facts, one = await begins(here)
            calls = dying(at, after=after)
            controller, target = await here.start(calls)
            with suppress(Crash):
                await target.finish(LINK, "s", [one])
            died = calls.count >= at
            controller, target = await here.start()
            await judge(controller, here.segments, edge, frozenset({0}))
            state = await ready(target, facts)
            if state.position.epoch == 0:
                (state,) = await target.finish(LINK, "s", [one])
            assert state.position.epoch == 3
            assert (await controller.catalog.find(STREAM)).record.head == facts.head
            assert await here.segments.infos([named(STREAM, 0)]) == [None]
            await judge(controller, here.segments, edge, frozenset({0}))
            return died

    at = 1
    while all([run(dies(at, after)) for after in (False, True)]):
        at += 1
    assert at > 30


def test_two_controllers_carry_out_one_round():
    async def test(turns: int) -> None:
        async with installation() as here:
            edge, one = await begun(here)

            async def waits(number: int, done: bool) -> None:
                for _ in range(number * turns % 7):
                    await asyncio.sleep(0)

            targets = [(await here.start(Calls(waits)))[1] for _ in range(2)]
            found = await asyncio.gather(*(target.finish(LINK, "s", [one]) for target in targets))
            assert all(state.status is MirrorStatus.READY for (state,) in found)
            await completed(here, edge, one)

    for turns in range(1, 15):
        run(test(turns))
