"""What a committer does next: every pair of a job's state and a table's, and each named error."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from sarit.core import cuts as core_cuts
from sarit.core.cuts import StreamCut
from sarit.core.errors import Invalid
from sarit.core.names import SegmentId, StreamName
from sarit.lake import commits, cuts, problems
from sarit.lake.job_state import Intent, JobState
from sarit.lake.layout import PARTITIONS
from sarit.lake.ports import TableView
from sarit.lake.problems import TableProblem
from sarit.lake.settings import IcebergSettings
from tests.limits import HANG_SECONDS
from tests.unit.lake.world import TABLE, World

SETTINGS = IcebergSettings("lake.shop.orders")
STREAM = StreamName("shop", "orders")


def cut(offset: int) -> StreamCut:
    return StreamCut(STREAM, {SegmentId(0, 0): offset})


def snapshot(number: int, parent: int | None, commit: str = "", at: int = 0) -> cuts.Snapshot:
    summary = {cuts.COMMIT: commit, cuts.CUT_TO: core_cuts.to_text(cut(at))} if commit else {}
    return cuts.Snapshot(number, parent, summary, number)


def table(snapshots: list[cuts.Snapshot], head: int | None, noted: str = "", at: int = 0, **changed: Any) -> TableView:
    properties = {cuts.STREAM_ID: "id", cuts.STREAM: str(STREAM)}
    if noted:
        properties |= {cuts.COMMIT: noted, cuts.CUT: core_cuts.to_text(cut(at))}
    view = TableView("uuid", 2, head, snapshots, properties, pa.schema([]), PARTITIONS)
    return replace(view, **changed)


FIRST = snapshot(1, None, "a", 10)
SECOND = snapshot(2, 1, "b", 20)
COMPACTION = snapshot(3, 2)
INTENT = Intent("b", cut(10), cut(20), 0, "")
AFTER_FIRST = JobState("uuid", "id", "a", "a", 1, cut(10))


def problem(
    state: JobState, view: TableView | None, settings: IcebergSettings = SETTINGS, stream_id: str = "id"
) -> str:
    with pytest.raises(TableProblem) as caught:
        commits.next_step(settings, state, view, STREAM, stream_id)
    assert str(caught.value).startswith(f"{caught.value.name}: ")
    return caught.value.name


def step(state: JobState, view: TableView | None, settings: IcebergSettings = SETTINGS) -> commits.Step:
    return commits.next_step(settings, state, view, STREAM, "id")


def test_new_job_creates_its_table() -> None:
    assert step(JobState(), None) == commits.Create()


def test_new_job_adopts_a_table_of_its_stream_where_it_was_left() -> None:
    fresh = step(JobState(), table([], None))
    assert fresh == commits.Adopt(JobState("uuid", "id"), "head")
    found = step(JobState(), table([FIRST, SECOND, COMPACTION], 3, "b", 20))
    assert found == commits.Adopt(JobState("uuid", "id", "b", "b", 3), cut(20))


def test_intent_is_finished_until_the_table_has_it() -> None:
    state = replace(AFTER_FIRST, intent=INTENT)
    assert step(state, table([FIRST], 1, "a", 10)) == commits.Finish(INTENT)
    done = step(state, table([FIRST, SECOND], 2, "b", 20))
    assert isinstance(done, commits.Complete)
    assert (done.state.cut, done.state.intent, done.state.chain) == (cut(20), None, "b")
    assert step(done.state, table([FIRST, SECOND], 2, "b", 20)) == commits.Plan(cut(20))


def test_compaction_by_others_changes_nothing() -> None:
    state = replace(AFTER_FIRST, chain="b", noted="b", sequence=2, cut=cut(20))
    assert step(state, table([FIRST, SECOND, COMPACTION], 3, "b", 20)) == commits.Plan(cut(20))
    # The snapshots with cuts were expired: the properties count.
    for parent in (2, None):
        left = replace(COMPACTION, parent=parent)
        assert step(state, table([left], 3, "b", 20)) == commits.Plan(cut(20))


def test_rolled_back_table_is_refused() -> None:
    state = replace(AFTER_FIRST, chain="b", noted="b", sequence=2, cut=cut(20))
    back = table([FIRST, SECOND], 1, "b", 20)
    assert problem(state, back) == problems.ROLLED_BACK
    assert problem(JobState(), back) == problems.ROLLED_BACK
    assert problem(replace(AFTER_FIRST, intent=INTENT), back) == problems.ROLLED_BACK
    # Behind its first snapshot, and behind expired ones, which the number of the newest one shows.
    assert problem(state, table([FIRST, SECOND], None, "b", 20)) == problems.ROLLED_BACK
    assert problem(replace(state, sequence=4), table([COMPACTION], 3, "b", 20)) == problems.ROLLED_BACK


def test_resume_from_goes_on_in_a_table_that_was_rolled_back() -> None:
    back = table([FIRST, SECOND], 1, "b", 20)
    for chosen, begin in (("table", cut(10)), ("head", "head"), ("tail", "tail"), (core_cuts.to_text(cut(15)), None)):
        found = step(JobState(), back, replace(SETTINGS, resume_from=chosen))
        assert isinstance(found, commits.Adopt)
        assert found.begin_at == (chosen if begin is None else begin)
        state = replace(found.state, cut=cut(10))
        assert step(state, back) == commits.Plan(cut(10))
        intent = Intent("c", cut(10), cut(30), 0, "")
        made = table([FIRST, SECOND, snapshot(3, 1, "c", 30)], 3, "c", 30)
        assert isinstance(step(replace(state, intent=intent), made), commits.Complete)


def test_commit_of_another_committer_is_refused() -> None:
    assert problem(AFTER_FIRST, table([FIRST, SECOND], 2, "b", 20)) == problems.OTHER_COMMITTER
    other = replace(INTENT, commit="c")
    assert problem(replace(AFTER_FIRST, intent=other), table([FIRST, SECOND], 2, "b", 20)) == problems.OTHER_COMMITTER


def test_other_tables_are_refused() -> None:
    view = table([FIRST], 1, "a", 10)
    assert problem(AFTER_FIRST, None) == problems.MISSING
    assert problem(AFTER_FIRST, replace(view, uuid="other")) == problems.REPLACED
    assert problem(AFTER_FIRST, view, stream_id="other") == problems.OTHER_STREAM
    assert problem(JobState(), view, stream_id="other") == problems.OTHER_STREAM
    assert problem(JobState(), replace(view, properties={})) == problems.FOREIGN
    # A table that was not made for a stream is nobody's to resume in, and one of another stream is that stream's.
    resumed = replace(SETTINGS, resume_from="head")
    another = {**view.properties, cuts.STREAM: "shop/returns"}
    assert problem(JobState(), replace(view, properties=another), resumed) == problems.OTHER_STREAM
    assert problem(JobState(), replace(view, properties=another)) == problems.OTHER_STREAM
    assert problem(JobState(), replace(view, properties={}), resumed) == problems.FOREIGN
    assert problem(AFTER_FIRST, replace(view, partitions="day(sarit.ingested)")) == problems.PARTITION_SPEC
    assert problem(AFTER_FIRST, replace(view, partitions="")) == problems.PARTITION_SPEC
    assert problem(AFTER_FIRST, replace(view, format_version=3)) == problems.FORMAT_VERSION


def test_table_of_a_recreated_stream_is_resumed_in() -> None:
    settings = replace(SETTINGS, resume_from="head")
    found = commits.next_step(settings, JobState(), table([FIRST], 1, "a", 10), STREAM, "other")
    assert found == commits.Adopt(JobState("uuid", "other", "a", "a", 1), "head")


def _states() -> list[JobState]:
    known = ("", "a", "b", "c")
    intents = [None, INTENT, replace(INTENT, commit="c")]
    return [
        JobState("uuid", "id", chain, noted, sequence, cut(10), intent)
        for chain, noted, sequence, intent in itertools.product(known, known, (0, 2), intents)
    ]


def _tables() -> list[TableView]:
    snapshots = [FIRST, SECOND, COMPACTION, snapshot(4, None), snapshot(4, 1)]
    made = []
    for size in range(3):
        for chosen in itertools.combinations(snapshots, size):
            for head in (None, *(each.id for each in chosen)):
                made += [table(list(chosen), head, noted, 20) for noted in ("", "a", "b", "c")]
    return made


def test_intent_is_written_or_noted_only_if_the_table_allows_it() -> None:
    """Every state with every table: an intent is noted only if the table names its commit, and written only if the
    table names what the job saw last."""
    steps = set()
    for state, view in itertools.product(_states(), _tables()):
        try:
            found = step(state, view)
        except TableProblem as error:
            steps.add(error.name)
            continue
        steps.add(type(found).__name__)
        noted = view.properties.get(cuts.COMMIT, "")
        marks = cuts.marks_of(view.snapshots, view.head, view.properties)
        chain = "" if marks.chain is None else marks.chain.commit
        if isinstance(found, commits.Complete):
            assert state.intent is not None
            assert noted == state.intent.commit
            assert chain == noted or not marks.whole
        else:
            assert noted == state.noted
            assert chain == state.chain or not marks.whole
            assert isinstance(found, commits.Finish) == (state.intent is not None)
    assert steps == {"Complete", "Finish", "Plan", problems.ROLLED_BACK, problems.OTHER_COMMITTER}


def test_state_is_encoded_and_decoded() -> None:
    for state in (JobState(), AFTER_FIRST, replace(AFTER_FIRST, intent=INTENT, rows=5, columns="x", committed_ms=7)):
        assert JobState.decode(state.encode()) == state


def test_cut_of_another_stream_is_no_place_to_begin_at() -> None:
    async def run(world: World) -> None:
        with pytest.raises(Invalid, match="a cut of stream shop/secret"):
            async with asyncio.timeout(HANG_SECONDS / 60):
                for _ in range(3):
                    await world.process().step()
        assert world.row.state == b""

    secret = StreamCut(StreamName("shop", "secret"), {SegmentId(0, 0): 0, SegmentId(0, 1): 0})
    asyncio.run(run(World(resume_from=core_cuts.to_text(secret))))
    # Who may change the table of a catalog may change its properties, too.
    world = World()
    asyncio.run(world.process().step())
    summary = {cuts.COMMIT: "a", cuts.CUT_TO: core_cuts.to_text(secret)}
    noted = {cuts.COMMIT: "a", cuts.CUT: core_cuts.to_text(secret)}
    world.catalog.append(TABLE, None, [], summary, noted)
    asyncio.run(run(world))


def test_rolled_back_table_stops_the_committer_until_it_is_resumed() -> None:
    async def run() -> None:
        world = World()
        for number in range(20):
            world.stream.append(b"%d" % number, number)
        await world.drain(world.process())
        world.stream.append(b"20", 0)
        await world.drain(world.process())
        made = world.catalog.tables[TABLE]
        world.catalog.roll_back(TABLE, made.snapshots[0].id)
        before = world.rows()
        with pytest.raises(TableProblem, match="rolled-back-table"):
            await world.process().step()
        assert world.rows() == before
        world.row.state = b""  # the job is deleted and created again
        world.settings = replace(world.settings, resume_from="table")
        await world.drain(world.process())
        assert len(world.rows()) == len(set(world.rows())) == world.stream.written

    asyncio.run(run())
