"""Which cut of a stream a table has reached (pure).  Format: docs/formats/iceberg.md.

A commit writes its cut twice, in one metadata file: into the summary of its snapshot, and into the table's properties,
because snapshots expire.  The snapshots count: from a snapshot back along its parents, the first that has a cut says
what the table holds there.  Snapshots of others, as of a compaction, have none.  The properties count alone only where
the parents were expired.

If the chain of snapshots does not lead to the commit that the properties name, then somebody rolled the table back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core import cuts
from sarit.core.errors import Invalid
from sarit.lake.limits import MAX_COUNT_DIGITS, MAX_SUMMARY_CUT_CHARACTERS
from sarit.lake.problems import ROLLED_BACK, TableProblem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.core.cuts import StreamCut

# Of the summary of a snapshot.
COMMIT: Final = "sarit.commit-id"
STREAM_ID: Final = "sarit.stream-id"
CUT_FROM: Final = "sarit.cut.from"
CUT_TO: Final = "sarit.cut.to"
INGESTED: Final = "sarit.ingested"
GAP: Final = "sarit.gap"
DEAD_ROWS: Final = "sarit.dead-letters"
# Of the properties of a table; COMMIT and STREAM_ID are properties, too.
FORMAT: Final = "sarit.format"
STREAM: Final = "sarit.stream"
NUMBERED_METADATA: Final = "sarit.numbered-metadata"
CUT: Final = "sarit.cut"
TABLE_FORMAT: Final = "1"

FIRST_SEQUENCE: Final = 1  # of the first snapshot of a table


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot of a table, as far as cuts need it."""

    id: int
    parent: int | None
    summary: Mapping[str, str]
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A commit, and the cut that the table has with it."""

    commit: str
    cut: StreamCut
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class Marks:
    """The two answers of a table to how far it has come.

    `chain`: by the snapshots from the newest one back.  `noted`: by the properties.  `whole`: whether the chain was
    followed to a cut or to the first snapshot, and not to one that was expired."""

    chain: Mark | None
    noted: Mark | None
    whole: bool

    def agreed(self, table: str) -> Mark | None:
        """Return the mark of a table that is as committers left it; None: nothing was committed.  Raises
        TableProblem."""
        if not self.whole:
            return self.noted
        chain, noted = (None if each is None else each.commit for each in (self.chain, self.noted))
        if chain != noted:
            raise rolled_back(table)
        return self.chain


def rolled_back(table: str) -> TableProblem:
    """Return the error about a table whose snapshots do not lead to its last commit."""
    return TableProblem(
        ROLLED_BACK,
        f"table {table} was rolled back, or its snapshots were replaced: its newest snapshot does not follow the "
        "commit that its properties name; say with resume-from where to go on",
    )


def marks_of(snapshots: Sequence[Snapshot], head: int | None, properties: Mapping[str, str]) -> Marks:
    """Return what a table says of its cut at the snapshot `head`.  Raises Invalid: a cut is damaged."""
    by_id = {snapshot.id: snapshot for snapshot in snapshots}
    chain, at, seen, first = None, head, set[int](), True
    while at in by_id and at not in seen:
        seen.add(at)
        snapshot = by_id[at]
        # PyIceberg takes the parent from the oldest snapshot that it retains, others leave the id of a lost one.
        first = snapshot.sequence <= FIRST_SEQUENCE
        if CUT_TO in snapshot.summary:
            chain = Mark(snapshot.summary.get(COMMIT, ""), parse_cut(snapshot.summary[CUT_TO]), snapshot.id)
            break
        at = snapshot.parent
    noted = None
    if CUT in properties:
        noted = Mark(properties.get(COMMIT, ""), parse_cut(properties[CUT]))
    # A snapshot of the noted commit that is still there, but not on the way: the table was rolled back behind it.
    beside = noted is not None and any(s.summary.get(COMMIT) == noted.commit for s in snapshots)
    return Marks(chain, noted, chain is not None or (at is None and first) or beside)


def cut_of(snapshots: Sequence[Snapshot], head: int | None, properties: Mapping[str, str]) -> Mark | None:
    """Return the mark of a snapshot for readers; None: the table holds nothing of its stream there.

    A reader of an older snapshot gets that snapshot's cut, if its parents were not expired.  Raises Invalid."""
    found = marks_of(snapshots, head, properties)
    return found.chain if found.whole else found.noted


@dataclass(frozen=True, slots=True)
class Counts:
    """How much one commit wrote."""

    rows: int
    files: int
    dead_letters: int
    lost_bytes: int


def counts_of(snapshots: Sequence[Snapshot], commit: str) -> Counts | None:
    """Return what the snapshot of a commit says of how much was written; None: there is no such snapshot."""
    for snapshot in snapshots:
        if snapshot.summary.get(COMMIT) == commit:
            names = ("added-records", "added-data-files", DEAD_ROWS, GAP)
            return Counts(*(_number(snapshot.summary.get(name, "0")) for name in names))
    return None


def totals_of(snapshots: Sequence[Snapshot], head: int | None) -> tuple[int, int]:
    """Return how many rows and files a table has at a snapshot, as its summary says."""
    summary = next((snapshot.summary for snapshot in snapshots if snapshot.id == head), {})
    return _number(summary.get("total-records", "0")), _number(summary.get("total-data-files", "0"))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_COUNT_DIGITS else 0


def parse_cut(text: str) -> StreamCut:
    """Return a cut from a summary or property.  Raises Invalid."""
    found = cuts.from_text(text) if len(text) <= MAX_SUMMARY_CUT_CHARACTERS else None
    if found is None:
        raise Invalid("a cut in the metadata of a table has no bounds, or is too long")
    return found
