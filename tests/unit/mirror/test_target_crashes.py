"""A target over a real store, whose controller dies at every call, or meets a late copier at every call."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from sarit.mirror.values import MirrorStatus, Round, Write
from tests.limits import HANG_SECONDS
from tests.unit.controller.fakes import Crash
from tests.unit.controller.world import STREAM
from tests.unit.mirror.interrupted import Calls, dying, judge
from tests.unit.mirror.shared_store import begun, completed, history, installation, quiet, run
from tests.unit.mirror.target_world import LINK, Edge, copy, named, ready

if TYPE_CHECKING:
    from tests.unit.mirror.shared_store import Installation


def test_controller_that_dies_at_any_call_of_a_round_leaves_it_undone_or_decided():
    async def calls_of_a_round() -> int:
        async with installation() as here:
            _, one = await begun(here)
            calls = Calls(quiet)
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
