"""An Iceberg catalog in memory, with the faults that matter to a committer, for tests and the simulation.

The fault model: a call fails before it does anything, or is carried out and its reply lost; a commit that was carried
out is reported as a conflict, as by a proxy that repeats a request; and a commit whose outcome is unknown is carried
out later, long after its caller went on.  Files live beside the tables: a snapshot that refers to a file which was
deleted is found by `rows`.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Conflict, Exists, Unavailable
from sarit.lake.cuts import Snapshot
from sarit.lake.layout import PARTITIONS
from sarit.lake.ports import TableView
from sarit.lake.table_types import covers, fitted
from sarit.serializers.widening import wider

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

# What happens to a call, by its name: "" as it should be, "before", "after", "refused" (carried out, and reported as a
# conflict), "later" (carried out later, and reported as unknown).
Fault = str


@dataclass
class Table:
    """A table: snapshots with the names of their files, of which each has all files of its parent."""

    uuid: str
    schema: pa.Schema
    partitions: str
    properties: dict[str, str]
    snapshots: list[Snapshot] = field(default_factory=list)
    files: dict[int, list[str]] = field(default_factory=dict)  # of a snapshot
    head: int | None = None
    format_version: int = 2


@dataclass(frozen=True)
class Commit:
    """A commit that was made: its table, what its summary says, and the names of its files."""

    table: tuple[str, ...]
    summary: Mapping[str, str]
    files: Sequence[str]


class Catalog:
    """Tables and files that outlive processes.  `commits`: all that were made, in order."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.tables: dict[tuple[str, ...], Table] = {}
        self.files: dict[str, list[pa.RecordBatch]] = {}
        self.pending: list[Callable[[], None]] = []  # commits that are carried out later, or never
        self._numbers = itertools.count(1)

    def __repr__(self) -> str:
        return f"<Catalog, {len(self.tables)} tables, {len(self.files)} files>"

    def number(self) -> int:
        """Return a number that was not returned before."""
        return next(self._numbers)

    def rows(self, name: Sequence[str], snapshot: int | None = None) -> list[pa.RecordBatch]:
        """Return the rows of a snapshot of a table, by default of the newest one."""
        table = self.tables.get(tuple(name))
        at = None if table is None else table.head if snapshot is None else snapshot
        if table is None or at is None:
            return []
        return [batch for file in table.files[at] for batch in self.files[file]]

    def append(
        self, name: Sequence[str], head: int | None, files: Sequence[str], summary: Any, properties: Any
    ) -> None:
        """Add a snapshot, on the condition that `head` is the newest.  Raises Conflict."""
        table = self.tables.get(tuple(name))
        if table is None or table.head != head:
            raise Conflict("the newest snapshot is another one")
        number = self.number()
        parent = [] if head is None else table.files[head]
        rows = sum(len(batch) for file in files for batch in self.files.get(file, ()))
        counts = {"added-records": str(rows), "added-data-files": str(len(files))}
        sequence = max((each.sequence for each in table.snapshots), default=0) + 1
        table.snapshots.append(Snapshot(number, head, {**counts, **summary}, sequence))
        table.files[number] = [*parent, *files]
        table.properties.update(properties)
        table.head = number
        self.commits.append(Commit(tuple(name), dict(summary), tuple(files)))

    def compact(self, name: Sequence[str]) -> None:
        """Write all files of a table as one, in a snapshot of somebody who knows nothing of streams."""
        table = self.tables[tuple(name)]
        if table.head is None or len(table.files[table.head]) < 2:
            return
        number = self.number()
        self.files[f"compacted-{number}"] = self.rows(name)
        sequence = max(each.sequence for each in table.snapshots) + 1
        table.snapshots.append(Snapshot(number, table.head, {"operation": "replace"}, sequence))
        table.files[number] = [f"compacted-{number}"]
        table.head = number

    def carry_out(self, index: int) -> None:
        """Make one of the commits that were to be carried out later, or find that it is too late."""
        with suppress(Conflict):
            self.pending.pop(index)()
            coverage_probe("table_commit_late")

    def roll_back(self, name: Sequence[str], snapshot: int) -> None:
        """Make an older snapshot the newest, as an operator does."""
        self.tables[tuple(name)].head = snapshot

    def expire(self, name: Sequence[str], keep: int, *, dangling: bool) -> None:
        """Forget all but some of the newest snapshots.  `dangling`: the oldest one left keeps the id of its parent."""
        table = self.tables[tuple(name)]
        left = table.snapshots[-keep:]
        if not dangling and left:
            left[0] = Snapshot(left[0].id, None, left[0].summary, left[0].sequence)
        table.snapshots = left


class MemoryTables:
    """`LakeTables` of one process on a catalog in memory."""

    def __init__(self, catalog: Catalog, fault: Callable[[str], Fault] = lambda call: "") -> None:
        """`fault`: decides what happens to each call, by its name."""
        self._catalog = catalog
        self._fault = fault

    def __repr__(self) -> str:
        return f"<MemoryTables of {self._catalog!r}>"

    def _begin(self, call: str) -> Fault:
        fault = self._fault(call)
        if fault == "before":
            raise Unavailable(f"{call} failed")
        return fault

    def _end(self, call: str, fault: Fault) -> None:
        if fault == "refused":
            raise Conflict(f"{call} was carried out, and repeated by a proxy")
        if fault:
            raise Unavailable(f"the reply to {call} was lost")

    def load(self, name: Sequence[str]) -> TableView | None:
        """See `LakeTables`."""
        self._begin("load")
        table = self._catalog.tables.get(tuple(name))
        return None if table is None else _view(tuple(name), table)

    def create(
        self, name: Sequence[str], schema: pa.Schema, partition_by: str, properties: Mapping[str, str]
    ) -> TableView:
        """See `LakeTables`."""
        fault = self._begin("create")
        if tuple(name) in self._catalog.tables:
            raise Exists("there is such a table")
        partitions = PARTITIONS if partition_by else ""
        table = Table(f"uuid-{self._catalog.number()}", schema, partitions, dict(properties))
        self._catalog.tables[tuple(name)] = table
        self._end("create", fault)
        return _view(tuple(name), table)

    def evolve(self, name: Sequence[str], view: TableView, schema: pa.Schema) -> TableView:
        """See `LakeTables`."""
        if covers(view.schema, schema):
            return view
        fault = self._begin("evolve")
        table = self._catalog.tables[tuple(name)]
        if not table.schema.equals(view.schema):
            raise Conflict("the table has other columns now")
        table.schema = wider(view.schema, schema)
        self._end("evolve", fault)
        return _view(tuple(name), table)

    def writer(self, view: TableView, prefix: str, ingested_ms: int | None, target_bytes: int) -> MemoryFiles:
        """See `LakeTables`."""
        return MemoryFiles(self._catalog, self, f"{prefix}-{self._catalog.number()}", view.schema, target_bytes)

    def append(
        self, view: TableView, files: Sequence[Any], summary: Mapping[str, str], properties: Mapping[str, str]
    ) -> None:
        """See `LakeTables`."""
        fault = self._begin("append")

        def carry_out() -> None:
            self._catalog.append(view.handle, view.head, files, summary, properties)

        if fault == "later":
            self._catalog.pending.append(carry_out)
        else:
            carry_out()
        self._end("append", fault)

    def delete(self, view: TableView, files: Sequence[Any]) -> None:
        """See `LakeTables`."""
        self._begin("delete")
        for file in files:
            self._catalog.files.pop(file, None)

    def positions(self, view: TableView, ingested_ms: int) -> Sequence[pa.Table]:
        """See `LakeTables`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self._begin("positions")
        table = self._catalog.tables[view.handle]
        files = [] if table.head is None else table.files[table.head]
        found = []
        for file in files:
            rows = pa.Table.from_batches(self._catalog.files[file])
            same = pc.equal(rows["ingested"].cast(pa.int64()), ingested_ms * 1000)
            found.append(rows.filter(same).select(["segment", "offset"]))
        return found


class MemoryFiles:
    """`FileWriter` in memory."""

    def __init__(self, catalog: Catalog, tables: MemoryTables, prefix: str, schema: pa.Schema, target: int) -> None:
        self._catalog = catalog
        self._tables = tables
        self._prefix = prefix
        self._schema = schema
        self._target = target
        self._names: list[str] = []
        self._bytes = 0

    def __repr__(self) -> str:
        return f"<MemoryFiles {self._prefix}>"

    def write(self, rows: pa.RecordBatch) -> None:
        """See `FileWriter`."""
        self._tables._begin("write")
        if not self._names or self._bytes >= self._target:
            self._names.append(f"{self._prefix}-{len(self._names)}")
            self._catalog.files[self._names[-1]] = []
            self._bytes = 0
        self._catalog.files[self._names[-1]].append(fitted(rows, self._schema))
        self._bytes += rows.nbytes

    def close(self) -> Sequence[Any]:
        """See `FileWriter`."""
        self._tables._begin("close")
        return self._names

    def abort(self) -> None:
        """See `FileWriter`."""
        self._tables._begin("delete")
        for name in self._names:
            self._catalog.files.pop(name, None)


def _view(name: tuple[str, ...], table: Table) -> TableView:
    snapshots, properties = list(table.snapshots), dict(table.properties)
    return TableView(
        table.uuid, table.format_version, table.head, snapshots, properties, table.schema, table.partitions, name
    )
