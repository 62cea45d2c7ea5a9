"""What a committer does next, from the state of its job and that of its table (pure).

    no table ─▶ Create ─▶ a table of the stream ─▶ Adopt: the job notes the table's id and its cut
    the table is as the job left it ─┬─ an intent ─▶ Finish: write its rows, unless its commit is in the table
                                     └─ none ──────▶ Plan: the next intent
    the table has the intent's commit ─────────────▶ Complete: the job notes it
    anything else ─────────────────────────────────▶ TableProblem: nothing is written

*Each event exactly once.*  A commit is made on the condition that the table's newest snapshot is the one that was
loaded, which showed the cut at which the intent begins.  So of all attempts at an intent, by whichever process and with
whatever lost replies, one at most is made: it changes the newest snapshot, and all others fail.  Who does not know
whether an attempt was made loads the table again.  A new intent is stored only when the one before is in the table,
and only by the holder of the job's row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from sarit.lake import cuts
from sarit.lake.job_state import JobState
from sarit.lake.layout import PARTITIONS
from sarit.lake.problems import (
    FOREIGN,
    FORMAT_VERSION,
    MISSING,
    OTHER_COMMITTER,
    OTHER_STREAM,
    PARTITION_SPEC,
    REPLACED,
    TableProblem,
)

if TYPE_CHECKING:
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.lake.job_state import Intent
    from sarit.lake.ports import TableView
    from sarit.lake.settings import IcebergSettings

_FORMAT_VERSION = 2


@dataclass(frozen=True, slots=True)
class Create:
    """Create the table."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Save a state that names the table.  `begin_at`: where to begin: "head", "tail", a cut."""

    state: JobState
    begin_at: str | StreamCut


@dataclass(frozen=True, slots=True)
class Finish:
    """Write an intent."""

    intent: Intent


@dataclass(frozen=True, slots=True)
class Complete:
    """Save a state without the intent, which is in the table.  `counts`: as its snapshot has them; None: it is gone."""

    state: JobState
    counts: cuts.Counts | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Store the next intent, which begins at a cut."""

    start: StreamCut


Step: TypeAlias = Create | Adopt | Finish | Complete | Plan


def next_step(
    settings: IcebergSettings, state: JobState, table: TableView | None, stream: StreamName, stream_id: str
) -> Step:
    """Return the next step.  Raises TableProblem: an operator has to decide; Invalid."""
    if table is None:
        if state.table_uuid:
            raise TableProblem(
                MISSING, f"table {settings.table} is gone: restore it, or say with resume-from where a new one begins"
            )
        return Create()
    _check_table(settings, table)
    if not state.table_uuid:
        return _adopt(settings, table, stream, stream_id)
    if table.uuid != state.table_uuid:
        raise TableProblem(
            REPLACED,
            f"table {settings.table} was dropped and created again: say with resume-from where to go on in it",
        )
    if state.stream_id != stream_id:
        raise _other_stream(settings)
    return _follow(settings, state, table)


def _follow(settings: IcebergSettings, state: JobState, table: TableView) -> Step:
    marks = cuts.marks_of(table.snapshots, table.head, table.properties)
    chain, noted = _commit(marks.chain), _commit(marks.noted)
    intent = state.intent
    if intent is not None and noted == intent.commit and (chain == noted or not marks.whole):
        completed = replace(state, chain=noted, noted=noted, sequence=table.sequence, cut=intent.end, intent=None)
        return Complete(completed, cuts.counts_of(table.snapshots, intent.commit))
    # The newest snapshot of a table that was rolled back behind expired ones has a lower number.
    if noted == state.noted and table.sequence >= state.sequence and (chain == state.chain or not marks.whole):
        if intent is not None:
            return Finish(intent)
        assert state.cut is not None
        return Plan(state.cut)
    if noted in (state.noted, None if intent is None else intent.commit):
        raise cuts.rolled_back(settings.table)
    raise TableProblem(
        OTHER_COMMITTER,
        f"table {settings.table} has a commit that is not of this job: delete the other job that writes to it, then "
        "say with resume-from where to go on",
    )


def _adopt(settings: IcebergSettings, table: TableView, stream: StreamName, stream_id: str) -> Step:
    if cuts.STREAM_ID not in table.properties:
        raise TableProblem(
            FOREIGN, f"table {settings.table} was not created for a stream: give the name of one that does not exist"
        )
    # Whoever may change one stream must not write into the table of another one, whatever the settings say.
    if table.properties.get(cuts.STREAM) != str(stream):
        raise _other_stream(settings)
    marks = cuts.marks_of(table.snapshots, table.head, table.properties)
    begin_at: str | StreamCut
    if settings.resume_from:
        begin_at = settings.resume_from
        if begin_at == "table":
            found = marks.chain if marks.whole else marks.noted
            begin_at = settings.start if found is None else found.cut
    else:
        if table.properties[cuts.STREAM_ID] != stream_id:
            raise _other_stream(settings)
        agreed = marks.agreed(settings.table)
        begin_at = settings.start if agreed is None else agreed.cut
    rows, files = cuts.totals_of(table.snapshots, table.head)
    chain, noted = _commit(marks.chain), _commit(marks.noted)
    return Adopt(JobState(table.uuid, stream_id, chain, noted, table.sequence, rows=rows, files=files), begin_at)


def _check_table(settings: IcebergSettings, table: TableView) -> None:
    if table.format_version != _FORMAT_VERSION:
        raise TableProblem(
            FORMAT_VERSION,
            f"table {settings.table} has format version {table.format_version}, and {_FORMAT_VERSION} is written",
        )
    if table.partitions != PARTITIONS:
        raise TableProblem(
            PARTITION_SPEC,
            f"table {settings.table} is partitioned by {table.partitions or 'nothing'}, not by {PARTITIONS}: change it "
            "back",
        )


def _other_stream(settings: IcebergSettings) -> TableProblem:
    return TableProblem(
        OTHER_STREAM,
        f"table {settings.table} is of another stream, or of one of the same name that was deleted: give the name of a "
        "table that does not exist, or, if it is of a deleted one, say with resume-from where to go on",
    )


def _commit(mark: cuts.Mark | None) -> str:
    return "" if mark is None else mark.commit
