"""The table of events that could not be decoded, beside the table of a stream.

Two tables cannot be committed together, so the dead letters of an intent are committed first, once: by the id of the
intent, which the table keeps as rows' commits do.  When an intent is finished by another process, what is decoded then
must be what was decoded before; a count and a checksum of the dead letters' positions, in the summary of their
snapshot, tell.  The table is created with its first dead letter.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sarit.core.errors import Conflict, Exists, Unavailable
from sarit.lake import cuts, layout
from sarit.lake.problems import DEAD_LETTERS, FOREIGN, TableProblem

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from sarit.lake.job_state import Intent
    from sarit.lake.ports import FileWriter, LakeTables, TableView
    from sarit.lake.settings import IcebergSettings

_MASK = (1 << 64) - 1
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(slots=True)
class DeadCheck:
    """How many dead letters there are, and a checksum of their positions that does not depend on their order."""

    rows: int = 0
    checksum: int = 0

    def add(self, letters: pa.RecordBatch) -> None:
        """Count a batch of dead letters."""
        self.rows += len(letters)
        segments, offsets = (letters.column(name).to_numpy().astype(np.uint64) for name in ("segment", "offset"))
        with np.errstate(over="ignore"):
            mixed = (segments * _FACTOR) ^ (offsets + np.uint64(1))
            mixed *= _FACTOR
            mixed ^= mixed >> np.uint64(29)
            self.checksum = (self.checksum + int(mixed.sum(dtype=np.uint64))) & _MASK

    def __str__(self) -> str:
        return f"{self.rows}:{self.checksum:016x}"


class DeadLetters:
    """The dead-letter table of one stream's table.  Calls block."""

    def __init__(self, settings: IcebergSettings, tables: LakeTables) -> None:
        self._settings = settings
        self._tables = tables
        self._identifier = settings.dead_letters
        self._name = ".".join((settings.catalog, *self._identifier))

    def __repr__(self) -> str:
        return f"<DeadLetters {self._name}>"

    def writer(self, prefix: str) -> DeadLetterWriter:
        """Return a writer that looks for the table, and creates it, when the first dead letter comes."""
        return DeadLetterWriter(self, prefix)

    def commit(self, intent: Intent, check: DeadCheck, files: Sequence[Any], *, own: bool) -> None:
        """Commit an intent's dead letters once.  `own`: nobody else can have.  Raises TableProblem, Unavailable."""
        if own and not check.rows:
            return
        view = self._tables.load(self._identifier)
        if view is None:
            if check.rows:
                raise Unavailable(f"table {self._name} is gone")
            return
        if (made := _made(view, intent.commit)) is not None:
            self._tables.delete(view, files)
            if made != str(check):
                raise TableProblem(
                    DEAD_LETTERS,
                    f"an earlier attempt found other dead letters of commit {intent.commit} ({made}) than this one "
                    f"({check}): events are decoded in another way now; bring the schemas back as they were",
                )
            return
        if not check.rows:
            return
        summary = {cuts.COMMIT: intent.commit, cuts.DEAD_CHECK: str(check)}
        try:
            self._tables.append(view, files, summary, dict(summary))
        except Conflict as error:
            raise Unavailable(f"table {self._name} was changed meanwhile: {error}") from None

    def open(self) -> TableView:
        """Return the table, created if there is none.  Raises TableProblem, Unavailable, Invalid."""
        schema = layout.dead_letter_schema(naive_times=self._settings.naive_times)
        view = self._tables.load(self._identifier)
        if view is None:
            with suppress(Exists):
                return self._tables.create(self._identifier, schema, "", {cuts.FORMAT: cuts.TABLE_FORMAT})
            view = self._tables.load(self._identifier)
        if view is None:
            raise Unavailable(f"table {self._name} is gone")
        if cuts.FORMAT not in view.properties:
            raise TableProblem(FOREIGN, f"table {self._name}, for dead letters, is somebody else's: rename it")
        return view

    @property
    def tables(self) -> LakeTables:
        """The tables of the catalog."""
        return self._tables

    @property
    def target_bytes(self) -> int:
        """The size of data files."""
        return self._settings.target_bytes


class DeadLetterWriter:
    """A writer of dead letters, of which there are mostly none.  Calls block."""

    def __init__(self, table: DeadLetters, prefix: str) -> None:
        self._table = table
        self._prefix = prefix
        self._writer: FileWriter | None = None

    def __repr__(self) -> str:
        return f"<DeadLetterWriter {self._prefix}>"

    def write(self, letters: pa.RecordBatch) -> None:
        """Add dead letters.  Raises TableProblem, Unavailable, OSError."""
        if self._writer is None:
            table = self._table
            self._writer = table.tables.writer(table.open(), self._prefix, None, table.target_bytes)
        self._writer.write(letters)

    def close(self) -> Sequence[Any]:
        """Finish the files, and return them."""
        return () if self._writer is None else self._writer.close()

    def abort(self) -> None:
        """Delete what was written."""
        if self._writer is not None:
            self._writer.abort()


def _made(view: TableView, commit: str) -> str | None:
    """Return the check of a commit that the table has; None: it has no such commit."""
    summaries = [view.properties, *(snapshot.summary for snapshot in view.snapshots)]
    return next((each.get(cuts.DEAD_CHECK, "") for each in summaries if each.get(cuts.COMMIT) == commit), None)
