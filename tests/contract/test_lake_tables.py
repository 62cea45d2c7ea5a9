"""One suite for tables of a catalog: what a committer relies on.  PyIceberg's on SQLite, and the simulation's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from sarit.core.errors import Conflict, Exists
from sarit.lake import cuts
from sarit.lake.catalogs import Catalogs
from sarit.lake.layout import PARTITION_COLUMN, PARTITIONS, dead_letter_schema, table_schema
from sarit.lake.problems import SCHEMA, TableProblem
from sarit.lake.pyiceberg_tables import PyIcebergTables
from simulation.lake_tables import Catalog, MemoryTables

if TYPE_CHECKING:
    from pathlib import Path

    from sarit.lake.ports import LakeTables, TableView

NAME = ("shop", "orders")
VALUES = pa.schema([pa.field("value", pa.binary())])
HOUR_MS = 3_600_000
INGESTED_MS = 500_000 * HOUR_MS + 5


@dataclass
class World:
    kind: str
    tables: LakeTables
    others: LakeTables  # of another process

    def rows(self, name: tuple[str, ...] = NAME) -> list[dict[str, Any]]:
        """The rows of a table, by the reader of its kind."""
        view = self.tables.load(name)
        assert view is not None
        if self.kind == "memory":
            catalog: Catalog = self.tables._catalog  # type: ignore[attr-defined]
            return [row for batch in catalog.rows(name) for row in batch.to_pylist()]
        found: list[dict[str, Any]] = view.handle.scan().to_arrow().to_pylist()
        return found


@pytest.fixture(params=["memory", "pyiceberg"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "memory":
        catalog = Catalog()
        return World("memory", MemoryTables(catalog), MemoryTables(catalog))
    catalogs = Catalogs(
        {"lake": {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}}
    )
    return World("pyiceberg", PyIcebergTables(catalogs, "lake"), PyIcebergTables(catalogs, "lake"))


def created(world: World, values: pa.Schema = VALUES, *, naive_times: bool = False) -> TableView:
    schema = table_schema(values, naive_times=naive_times)
    return world.tables.create(NAME, schema, PARTITION_COLUMN, {cuts.STREAM: "shop/orders"})


def rows_of(schema: pa.Schema, offsets: range, **values: Any) -> pa.RecordBatch:
    time = INGESTED_MS * 1000
    sarit = [
        {"segment": 1, "offset": at, "ingested": time, "time": None, "key": "k", "headers": None} for at in offsets
    ]
    kind = schema.field("sarit").type
    columns = {"sarit": pa.array(sarit, kind)} | {
        name: pa.array([each] * len(offsets)) for name, each in values.items()
    }
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def appended(tables: LakeTables, view: TableView, offsets: range, commit: str, **values: Any) -> list[Any]:
    values = values or {"value": b"x"}
    writer = tables.writer(view, commit, INGESTED_MS, 1 << 20)
    kinds = [pa.field(name, pa.array([each]).type) for name, each in values.items()]
    writer.write(rows_of(table_schema(pa.schema(kinds)), offsets, **values))
    files = list(writer.close())
    tables.append(view, files, {cuts.COMMIT: commit}, {cuts.COMMIT: commit})
    return files


def loaded(world: World) -> TableView:
    view = world.tables.load(NAME)
    assert view is not None
    return view


def test_table_is_there_once_it_is_created(world: World) -> None:
    assert world.tables.load(NAME) is None
    view = created(world)
    assert (view.format_version, view.head, view.partitions, view.sequence) == (2, None, PARTITIONS, 0)
    assert view.properties[cuts.STREAM] == "shop/orders"
    assert loaded(world).uuid == view.uuid
    assert loaded(world).schema.equals(table_schema(VALUES))
    with pytest.raises(Exists):
        world.others.create(NAME, table_schema(VALUES), PARTITION_COLUMN, {})


def test_commit_has_its_rows_summary_and_properties(world: World) -> None:
    created(world)
    appended(world.tables, loaded(world), range(10), "a")
    view = loaded(world)
    appended(world.tables, view, range(10, 15), "b")
    seen = loaded(world)
    assert [snapshot.summary[cuts.COMMIT] for snapshot in seen.snapshots] == ["a", "b"]
    assert (seen.snapshots[0].parent, seen.snapshots[1].parent) == (None, view.head)
    assert (seen.head, seen.properties[cuts.COMMIT]) == (seen.snapshots[1].id, "b")
    assert seen.sequence > view.sequence >= cuts.FIRST_SEQUENCE
    assert cuts.counts_of(seen.snapshots, "b") == cuts.Counts(5, 1, 0, 0)
    assert sorted(row["sarit"]["offset"] for row in world.rows()) == list(range(15))
    # PyIceberg's reader makes an empty list of null; the files have null.
    assert world.rows()[0]["sarit"]["headers"] in (None, [])


def test_commit_without_rows_is_a_snapshot(world: World) -> None:
    view = created(world)
    world.tables.append(view, world.tables.writer(view, "a", INGESTED_MS, 1).close(), {cuts.COMMIT: "a"}, {})
    assert [snapshot.summary[cuts.COMMIT] for snapshot in loaded(world).snapshots] == ["a"]
    assert world.rows() == []


def test_commit_on_an_older_snapshot_conflicts_and_changes_nothing(world: World) -> None:
    first = created(world)
    other = world.others.load(NAME)
    assert other is not None
    appended(world.others, other, range(5), "a")
    # A view that was committed to shows no newest snapshot any more.
    with pytest.raises(Conflict):
        world.others.append(other, [], {}, {})
    writer = world.tables.writer(first, "b", INGESTED_MS, 1 << 20)
    writer.write(rows_of(table_schema(VALUES), range(5), value=b"y"))
    files = writer.close()
    with pytest.raises(Conflict):
        world.tables.append(first, files, {cuts.COMMIT: "b"}, {cuts.COMMIT: "b"})
    assert loaded(world).properties[cuts.COMMIT] == "a"
    assert len(world.rows()) == 5
    # Its files are still there: the commit is made on the snapshot that is the newest now.
    world.tables.append(loaded(world), files, {cuts.COMMIT: "b"}, {cuts.COMMIT: "b"})
    assert sorted(row["value"] for row in world.rows()) == [b"x"] * 5 + [b"y"] * 5


def test_columns_are_added_and_widened(world: World) -> None:
    narrow = pa.schema([pa.field("count", pa.int32()), pa.field("at", pa.struct([pa.field("x", pa.float32())]))])
    view = created(world, narrow)
    appended(world.tables, view, range(2), "a", count=1, at={"x": 0.5})
    inner = pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.string())])
    wide = pa.schema([pa.field("count", pa.int64()), pa.field("at", inner), pa.field("more", pa.list_(pa.int64()))])
    evolved = world.tables.evolve(NAME, loaded(world), table_schema(wide))
    assert loaded(world).schema.equals(evolved.schema)
    appended(world.tables, evolved, range(2, 4), "b", count=1 << 40, at={"x": 1.5, "y": "z"}, more=[7])
    found = sorted(world.rows(), key=lambda row: row["sarit"]["offset"])
    if world.kind == "pyiceberg":
        assert (found[0]["count"], found[0]["at"], found[0]["more"]) == (1, {"x": 0.5, "y": None}, None)
    assert (found[3]["count"], found[3]["at"], found[3]["more"]) == (1 << 40, {"x": 1.5, "y": "z"}, [7])
    # Fewer and narrower columns than the table has change nothing.
    again = world.tables.evolve(NAME, evolved, table_schema(narrow))
    assert again.schema.equals(evolved.schema)
    with pytest.raises(TableProblem) as caught:
        world.tables.evolve(NAME, evolved, table_schema(pa.schema([pa.field("count", pa.string())])))
    assert caught.value.name == SCHEMA


def test_rows_of_a_time_are_found_by_their_positions(world: World) -> None:
    name, schema = ("shop", "orders__dlq"), dead_letter_schema()
    view = world.tables.create(name, schema, "", {})
    for number, offsets in enumerate(([1, 2], [3])):
        writer = world.tables.writer(view, f"{number}-1", None, 1 << 20)
        time = pa.array([(INGESTED_MS + number) * 1000] * len(offsets), pa.int64()).cast(schema.field("ingested").type)
        texts = pa.array(["why"] * len(offsets))
        columns = [pa.array([7] * len(offsets)), pa.array(offsets), time, texts.cast(pa.binary()), texts]
        writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))
        world.tables.append(view, writer.close(), {cuts.COMMIT: str(number)}, {})
        found = world.tables.load(name)
        assert found is not None
        view = found

    def rows_at(time_ms: int) -> list[dict[str, int]]:
        return [row for table in world.tables.positions(view, time_ms) for row in table.to_pylist()]

    assert rows_at(INGESTED_MS) == [{"segment": 7, "offset": 1}, {"segment": 7, "offset": 2}]
    assert rows_at(INGESTED_MS + 1) == [{"segment": 7, "offset": 3}]
    assert rows_at(INGESTED_MS + 2) == []


def test_aborted_and_deleted_files_are_gone(world: World, tmp_path: Path) -> None:
    view = created(world)
    for finish in (False, True):
        writer = world.tables.writer(view, "a", INGESTED_MS, 1 << 20)
        writer.write(rows_of(table_schema(VALUES), range(5), value=b"y" * 1000))
        if finish:
            world.tables.delete(view, writer.close())
        else:
            writer.abort()
        assert list(tmp_path.rglob("*.parquet")) == []
        if world.kind == "memory":
            assert not world.tables._catalog.files  # type: ignore[attr-defined]
