"""Continuous queries in memory: adopted, changed, suspended, deleted; killed and taken over at every call."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from sarit.controller.model.cuts import follows
from sarit.controller.model.epochs import SegmentRange
from sarit.core.cuts import StreamCut
from sarit.core.errors import Fenced
from sarit.core.names import SegmentId
from sarit.search import continuous, continuous_set
from sarit.search.continuous_plan import ContinuousState, Intent, Outcome, Proof, Written
from sarit.search.continuous_queries import CompiledQueries
from sarit.search.continuous_rows import changes_key
from sarit.search.ports import EventSlice
from tests.unit.search.continuous_world import OTHER, OUTPUT, SOURCE, STREAM_ID, Gate, Killed, World, run_to_the_end

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from sarit.search.continuous import Continuous
    from sarit.search.query import Query


def script() -> list[Callable[[World], None]]:
    """The steps of users in a life with everything in it."""

    def begin(world: World) -> None:
        world.stream.append("red early", "blue early")
        world.want("red", "red")
        world.want("both", "red blue", OTHER)

    def change(world: World) -> None:
        world.want("red", "red -blue")
        world.stream.append("red one", "red blue two")

    def scale(world: World) -> None:
        world.stream.append("red three", "blue four", "red blue five")
        world.stream.scale()
        world.stream.append("red six", "green seven")

    def delete(world: World) -> None:
        world.want("both", None)
        world.stream.append("red blue eight", "red blue nine")

    def end(world: World) -> None:
        world.stream.append("red blue ten", "red eleven")
        world.stream.sealed = True

    def append(*texts: str) -> Callable[[World], None]:
        return lambda world: world.stream.append(*texts)

    def rest(_: World) -> None:
        pass

    return [
        begin, rest, append("red blue a", "red b"), *[rest] * 12, append("red blue c"), *[rest] * 9, change,
        *[rest] * 12, scale, *[rest] * 8, delete, *[rest] * 12, append("red blue d"), *[rest] * 5, end,
    ]  # fmt: skip


def calls_of_a_life() -> list[str]:
    world, gate = World(script()), Gate()
    asyncio.run(run_to_the_end(world.process(gate)))
    assert world.written() == world.expected()
    assert sum(world.written().values()) > 8
    return gate.calls


CALLS = calls_of_a_life()


def test_a_life_has_every_call() -> None:
    named = {"save", "saved", "put", "begin", "write", "flush", "flushed", "commit", "committed", "follow", "scan"}
    assert named <= set(CALLS)


@pytest.mark.parametrize("fate", ["", "expire", "forget", "expire, forget"])
def test_every_match_once_although_a_process_dies_at_any_call(fate: str) -> None:
    for at in range(len(CALLS)):
        world = World(script())
        with suppress(Killed):
            asyncio.run(run_to_the_end(world.process(Gate(at))))
        if "expire" in fate:
            world.outputs.expire()
        if "forget" in fate:
            world.outputs.forget()
        append_more(world)
        asyncio.run(run_to_the_end(world.process()))
        assert world.written() == world.expected(), f"killed at {at}, {CALLS[at]}"


@pytest.mark.parametrize("fate", ["", "expire", "forget"])
def test_every_match_once_although_a_process_goes_on_after_it_was_taken_over(fate: str) -> None:
    for at in range(len(CALLS)):
        asyncio.run(taken_over(at, at % 40, fate)).judge()


def test_a_query_that_a_worker_adopts_after_it_was_taken_over_holds_from_where_the_other_one_asks() -> None:
    for at in [number for number, call in enumerate(CALLS) if call == "put"]:
        for turns in range(60):
            asyncio.run(taken_over(at, turns, "")).judge()


def test_every_match_once_while_queries_come_and_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuous_set, "MAX_CONTINUOUS_CHANGES", 1)
    monkeypatch.setattr(continuous, "CONTINUOUS_ADOPTION_SECONDS", 0)
    for at in range(0, len(CALLS), 2):
        world = World(script())
        with suppress(Killed):
            asyncio.run(run_to_the_end(world.process(Gate(at))))
        append_more(world)
        asyncio.run(run_to_the_end(world.process()))
        world.judge()
        asyncio.run(taken_over(at, at % 40, "")).judge()


def test_only_queries_that_come_or_change_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Counter[str]()
    add = CompiledQueries._add

    def counted(self: CompiledQueries, query: Query) -> None:
        compiled[repr(query)] += 1
        add(self, query)

    monkeypatch.setattr(CompiledQueries, "_add", counted)
    monkeypatch.setattr(continuous_set, "MAX_CONTINUOUS_CHANGES", 3)
    monkeypatch.setattr(continuous, "CONTINUOUS_ADOPTION_SECONDS", 0)
    names, active = [f"q-{number}" for number in range(10)], set[int]()

    def begin(world: World) -> None:
        for name in names:
            world.want(name, f"red {name}")

    def note(world: World) -> None:
        active.add([world.query(name).state for name in names].count("active"))

    def change(world: World) -> None:
        # Events do not wait until all of them hold.
        assert {3, 6, 9, 10} <= active
        world.want("q-4", "red -blue")

    def end(world: World) -> None:
        world.stream.sealed = True

    rest = [lambda _: None] * 60
    world = World([begin, *[note] * 60, change, *rest, lambda w: w.stream.append("red"), *rest, end])
    asyncio.run(run_to_the_end(world.process()))
    assert set(compiled.values()) == {1}
    assert len(compiled) == len(names) + 1
    assert world.written() == world.expected()


def test_rows_are_read_again_only_after_a_change_of_their_own_stream() -> None:
    def begin(world: World) -> None:
        world.want("red", "red")

    def note(world: World) -> None:
        scans.append(gate.calls.count("scan"))

    def commit(world: World) -> None:
        world.rows.mark(b"i/" + b"b" * 32, b"an index, which commits")
        world.rows.mark(changes_key("b" * 32), b"queries of another stream")

    def change(world: World) -> None:
        world.want("red", "red -blue")

    def end(world: World) -> None:
        world.stream.sealed = True

    scans, gate, rest = list[int](), Gate(), [lambda _: None] * 30
    world = World([begin, *rest, note, *[commit] * 30, note, change, *rest, note, end])
    asyncio.run(run_to_the_end(world.process(gate)))
    settled, committed, changed = scans
    assert committed == settled
    # After the change of its user, and after the job has written that it holds.
    assert changed == settled + 2
    assert world.query("red").state == "active"


def test_rows_of_the_version_before_have_no_row_of_changes() -> None:
    def begin(world: World) -> None:
        world.want("red", "red")
        del world.rows.rows[changes_key(STREAM_ID)]

    def change(world: World) -> None:
        states.append(world.query("red").state)
        world.want("red", "red -blue")

    def end(world: World) -> None:
        states.append(world.query("red").state)
        world.stream.sealed = True

    states, rest = list[str](), [lambda _: None] * 30
    world = World([*rest, change, *rest, end])
    begin(world)
    asyncio.run(run_to_the_end(world.process()))
    assert states == ["active", "active"]
    assert world.query("red").adopted == world.query("red").wanted


def append_more(world: World) -> None:
    """Append what an outage of the job brings."""
    if not world.stream.sealed:
        world.stream.append("red blue in between", "red in between")


async def taken_over(at: int, turns: int, fate: str) -> World:
    """Let a process stand still at a call until another has run for some turns, and then both run to the end."""
    world, held = World(script()), asyncio.Event()
    gate = Gate(at, held)
    first = asyncio.create_task(run_to_the_end(world.process(gate)))
    await gate.stands.wait()
    if fate == "expire":
        world.outputs.expire()
    append_more(world)
    second = asyncio.create_task(run_to_the_end(world.process()))
    for _ in range(turns):
        await asyncio.sleep(0)
    if fate == "forget":
        world.outputs.forget()
    held.set()
    with suppress(Fenced):
        await first
    await second
    return world


def test_a_batch_that_is_half_committed_is_written_again_to_the_other_output() -> None:
    world = World(script())

    def kill_between(calls: list[str]) -> int:
        return next(n for n, call in enumerate(calls) if call == "committed" and "commit" in calls[n + 1 : n + 2])

    with suppress(Killed):
        asyncio.run(run_to_the_end(world.process(Gate(kill_between(CALLS)))))
    intent = ContinuousState.decode(world.state).intent
    assert intent is not None
    assert {each.output for each in intent.written} == {OUTPUT, OTHER}
    world.outputs.expire()
    second = world.process()
    asyncio.run(run_to_the_end(second))
    assert second.statistics.repeated == 1
    assert world.written() == world.expected()


class HalfScaled:
    """A stream of two segments, of which a scale has replaced the second by two; the first one gets event after event.

    `read`: slices that were read."""

    stream = SOURCE

    def __init__(self) -> None:
        self.read = 0
        self._known = {
            SegmentId(*place).packed: SegmentRange(low, high, SegmentId(*place).packed)
            for place, low, high in (((0, 0), 0, 0.5), ((0, 1), 0.5, 1), ((1, 2), 0.5, 0.7), ((1, 3), 0.7, 1))
        }

    def cut(self, *positions: tuple[int, int, int]) -> StreamCut:
        return StreamCut(SOURCE, {SegmentId(epoch, number): offset for epoch, number, offset in positions})

    async def is_before(self, earlier: StreamCut, later: StreamCut) -> bool:
        early, late = ({s.packed: at for s, at in cut.positions.items()} for cut in (earlier, later))
        return follows(self._known, early, late)

    async def bytes_behind(self, cut: StreamCut) -> int:
        return 0

    async def follow(self, start: StreamCut) -> AsyncGenerator[EventSlice | None, None]:
        ends = [((0, 0), [(0, 0, 11), (0, 1, 0)]), ((0, 1), [(0, 0, 11), (0, 1, 11)])]
        ends += [((1, 2), [(0, 0, 11), (1, 2, 11), (1, 3, 0)])]
        ends += [((0, 0), [(0, 0, 11 * n), (1, 2, 11), (1, 3, 0)]) for n in range(2, 50)]
        for place, positions in ends:
            self.read += 1
            offset = next(at for *segment, at in positions if tuple(segment) == place) - 11
            yield EventSlice(SegmentId(*place).packed, [offset], [b"red"], self.cut(*positions))
        while True:
            yield None


def test_a_repeated_batch_is_read_to_its_end_beside_a_segment_that_a_scale_left_alone() -> None:
    world, source = World(), HalfScaled()
    before, end = source.cut((0, 0, 0), (0, 1, 0)), source.cut((0, 0, 11), (1, 2, 11), (1, 3, 0))
    written = Written(OUTPUT, "aborted", StreamCut(OUTPUT, {SegmentId(0, 0): 0}), Proof("1", 0, 0), 1)
    last = {SegmentId(*place).packed: 0 for place in ((0, 0), (0, 1), (1, 2))}
    world.state = ContinuousState(STREAM_ID, before, Intent(end, last, (written,))).encode()
    world.outputs.ended["aborted"] = Outcome.ABORTED
    process = world.process(source=source)
    asyncio.run(process.resolve())
    assert (process.cut, source.read) == (end, 3)


def test_how_far_queries_are_behind_is_measured_now_and_then() -> None:
    world = World(script())
    process = world.process()
    counters = process.statistics
    counters.lag_bytes, counters.behind_since_ms, counters.problem = 1 << 60, 5, "of the run before"
    asyncio.run(run_to_the_end(process))
    assert (counters.lag_bytes, counters.behind_since_ms, counters.problem) == (0, None, "")
    process._source.bytes_behind = lambda _: asyncio.sleep(0, 70)
    process._measured_at = None
    asyncio.run(process._note_lag())
    assert counters.lag_bytes == 70
    assert counters.behind_since_ms is not None


def test_queries_events_and_matches_are_counted() -> None:
    world = World(script())
    process = world.process()
    asyncio.run(run_to_the_end(process))
    counted = process.statistics
    assert counted.matches == process.state.matches == world.written().total() > 0
    assert counted.events == process.state.events > 0
    assert (counted.queries, counted.suspended) == (len(process._queries), 0)
    assert counted.queries > 0


def test_a_query_without_rights_holds_for_nothing_until_it_has_them_again() -> None:
    world = World()
    cuts = {}

    def refuse(world: World) -> None:
        world.refused.add("ann")
        world.stream.append("red while refused")

    def allow(world: World) -> None:
        cuts["suspended"] = world.query("red").problem
        cuts["counted"] = process.statistics.suspended
        world.refused.clear()

    def end(world: World) -> None:
        world.stream.append("red at the end")
        world.stream.sealed = True

    rest = [lambda _: None] * 15
    world = World(
        [
            lambda w: w.want("red", "red", maker="ann"),
            *rest,
            lambda w: w.stream.append("red first"),
            *rest,
            refuse,
            *rest,
            allow,
            *rest,
            end,
        ]
    )
    process = world.process()
    asyncio.run(run_to_the_end(process))
    assert cuts["suspended"] == "ann may not change shop/alerts"
    assert (cuts["counted"], process.statistics.suspended) == (1, 0)
    assert world.query("red").state == "active"
    texts = {offset for _, _, _, offset in world.written()}
    assert world.written() == world.expected()
    assert len(texts) == 2


def test_an_output_that_is_deleted_suspends_its_queries_and_no_others() -> None:
    def delete(world: World) -> None:
        del world.outputs.committed[OTHER]
        world.stream.append("red blue lost", "red kept")

    def end(world: World) -> None:
        assert world.query("both").problem == "stream shop/others does not exist"
        assert world.query("both").state == "failed"
        world.stream.sealed = True

    def begin(world: World) -> None:
        world.want("red", "red")
        world.want("both", "red blue", OTHER)

    rest = [lambda _: None] * 15
    world = World([begin, *rest, delete, *rest, end])
    asyncio.run(run_to_the_end(world.process()))
    assert [output for output, _, _, _ in world.written().elements()] == [OUTPUT, OUTPUT]


def test_a_query_that_cannot_be_read_fails_alone() -> None:
    def begin(world: World) -> None:
        world.want("bad", "red !")
        world.want("red", "red")

    def end(world: World) -> None:
        world.stream.sealed = True

    rest = [lambda _: None] * 15
    world = World([begin, *rest, lambda w: w.stream.append("red"), *rest, end])
    asyncio.run(run_to_the_end(world.process()))
    assert world.query("bad").problem == "queries have no !"
    assert sum(world.written().values()) == 1


def test_retention_is_let_go_of_what_no_query_needs() -> None:
    rest = [lambda _: None] * 30

    def end(world: World) -> None:
        world.stream.sealed = True

    world = World([*rest, lambda w: w.stream.append("red"), *rest, end])
    process: Continuous = world.process()
    asyncio.run(run_to_the_end(process))
    assert world.held == world.stream.tail()
