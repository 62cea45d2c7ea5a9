"""The table of events that could not be decoded, beside the table of a stream.

Two tables cannot be committed together, so the dead letters of an intent are committed first, once: by the id of the
intent, which the table names as the other does.  What became a dead letter stays one: who finishes an intent whose dead
letters are committed leaves exactly those events out of the rows, even if a schema that was missing is there by now.
The table is created with its first dead letter.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Conflict, Exists, Unavailable
from sarit.lake import cuts, layout
from sarit.lake.problems import DEAD_LETTERS, FOREIGN, TableProblem

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from sarit.lake.ports import FileWriter, LakeTables, TableView
    from sarit.lake.settings import IcebergSettings


class DeadLetters:
    """The dead-letter table of one stream's table.  Calls block."""

    def __init__(self, settings: IcebergSettings, tables: LakeTables, stream_id: str) -> None:
        self._settings = settings
        self._tables = tables
        self._stream_id = stream_id
        self._identifier = settings.dead_letters
        self._name = ".".join((settings.catalog, *self._identifier))

    def __repr__(self) -> str:
        return f"<DeadLetters {self._name}>"

    def committed(self, commit: str, ingested_ms: int) -> layout.DeadPositions | None:
        """Return the dead letters of the time of a commit, if it is in the table; None: it is not there.

        They are found by their rows: a compaction may have written them into other files since.  Raises Unavailable."""
        view = self._tables.load(self._identifier)
        if view is None or (count := _count(view, commit)) is None:
            return None
        return layout.DeadPositions(self._tables.positions(view, ingested_ms), count)

    def check(self, commit: str, dead: layout.DeadPositions) -> None:
        """Check that the events of a commit were all read, and its dead letters among them.  Raises TableProblem."""
        if dead.matched != dead.count:
            raise TableProblem(
                DEAD_LETTERS,
                f"table {self._name} has {dead.matched} of the {dead.count} dead letters of commit {commit}: bring the "
                "table back as it was, or say with resume-from where to go on",
            )

    def writer(self, prefix: str) -> DeadLetterWriter:
        """Return a writer that loads the table, or creates it, when the first dead letter comes."""
        return DeadLetterWriter(self, prefix)

    def commit(self, commit: str, writer: DeadLetterWriter) -> None:
        """Commit what was written; the commit is not in the table.  Raises Unavailable."""
        if writer.view is None:
            return
        if _count(writer.view, commit) is not None:
            writer.abort()
            raise Unavailable(f"commit {commit} was made in table {self._name} by another process meanwhile")
        files = writer.close()
        summary = {cuts.COMMIT: commit, cuts.DEAD_ROWS: str(writer.rows)}
        properties = {**summary, cuts.STREAM_ID: self._stream_id}
        try:
            self._tables.append(writer.view, files, summary, properties)
        except Conflict as error:
            raise Unavailable(f"table {self._name} was changed meanwhile: {error}") from None

    def open(self) -> TableView:
        """Return the table, created if there is none.  Raises TableProblem, Unavailable, Invalid."""
        schema = layout.dead_letter_schema(naive_times=self._settings.naive_times)
        properties = {cuts.FORMAT: cuts.TABLE_FORMAT, cuts.STREAM_ID: self._stream_id}
        if self._settings.numbered_metadata:
            properties[cuts.NUMBERED_METADATA] = "true"
        view = self._tables.load(self._identifier)
        if view is None:
            with suppress(Exists):
                return self._tables.create(self._identifier, schema, "", properties)
            view = self._tables.load(self._identifier)
        if view is None:
            raise Unavailable(f"table {self._name} is gone")
        if cuts.STREAM_ID not in view.properties or view.partitions:
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
    """A writer of dead letters, of which there are mostly none.  Calls block.

    `view`: the table, once there is a dead letter.  `rows`: how many there are."""

    def __init__(self, table: DeadLetters, prefix: str) -> None:
        self._table = table
        self._prefix = prefix
        self._writer: FileWriter | None = None
        self.view: TableView | None = None
        self.rows = 0

    def __repr__(self) -> str:
        return f"<DeadLetterWriter {self._prefix}, {self.rows} rows>"

    def write(self, letters: pa.RecordBatch) -> None:
        """Add dead letters.  Raises TableProblem, Unavailable, Invalid."""
        table = self._table
        if self._writer is None:
            self.view = table.open()
            self._writer = table.tables.writer(self.view, self._prefix, None, table.target_bytes)
        self._writer.write(letters)
        self.rows += len(letters)

    def close(self) -> Sequence[Any]:
        """Finish the files, and return them.  Raises Unavailable."""
        return () if self._writer is None else self._writer.close()

    def abort(self) -> None:
        """Delete what was written.  Raises nothing."""
        if self._writer is not None:
            self._writer.abort()


def _count(view: TableView, commit: str) -> int | None:
    """Return how many dead letters a commit has in a table; None: the table has no such commit."""
    texts = (view.properties, *(snapshot.summary for snapshot in view.snapshots))
    found = next((each for each in texts if each.get(cuts.COMMIT) == commit), None)
    if found is None:
        return None
    count = found.get(cuts.DEAD_ROWS, "")
    return int(count) if count.isascii() and count.isdigit() else -1
