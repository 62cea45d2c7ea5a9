"""Dead letters in a table of a real catalog: found again by their rows, whatever files these are in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from sarit.lake.catalogs import Catalogs
from sarit.lake.dead_letters import DeadLetters
from sarit.lake.layout import dead_letter_schema
from sarit.lake.problems import TableProblem
from sarit.lake.pyiceberg_tables import PyIcebergTables
from sarit.lake.settings import IcebergSettings

if TYPE_CHECKING:
    from pathlib import Path

TIMES_MS = (1_800_000_000_123, 1_800_000_060_000)
SEGMENTS = pa.array([3] * 5, pa.int64())


@pytest.mark.parametrize("naive", [False, True])
def test_letters_of_a_commit_are_found_after_a_compaction(tmp_path: Path, naive: bool) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}
    catalogs = Catalogs({"lake": properties})
    settings = IcebergSettings("lake.shop.orders", naive_times=naive)
    letters = DeadLetters(settings, PyIcebergTables(catalogs, "lake"), "stream")
    for number, time in enumerate(TIMES_MS):
        writer = letters.writer(f"commit-{number}")
        writer.write(rows(time, [10 * number, 10 * number + 5], naive))
        letters.commit(f"commit-{number}", writer)
    table = load_catalog("lake", **properties).load_table("shop.orders__dlq")
    table.overwrite(table.scan().to_arrow())  # all rows in one file of another name
    found = letters.committed("commit-1", TIMES_MS[1])
    assert found is not None
    offsets = pa.array([0, 5, 10, 12, 15], pa.int64())
    assert found.contain(SEGMENTS, offsets).tolist() == [False, False, True, False, True]
    letters.check("commit-1", found)
    assert letters.committed("commit-2", TIMES_MS[1]) is None


def test_missing_letter_of_a_commit_is_named(tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}
    tables = PyIcebergTables(Catalogs({"lake": properties}), "lake")
    letters = DeadLetters(IcebergSettings("lake.shop.orders"), tables, "stream")
    writer = letters.writer("commit-0")
    writer.write(rows(TIMES_MS[0], [0, 5], naive=False))
    letters.commit("commit-0", writer)
    load_catalog("lake", **properties).load_table("shop.orders__dlq").delete("offset = 5")
    found = letters.committed("commit-0", TIMES_MS[0])
    assert found is not None
    found.contain(SEGMENTS, pa.array([0, 5, 10, 12, 15], pa.int64()))
    with pytest.raises(TableProblem, match="has 1 of the 2 dead letters of commit commit-0"):
        letters.check("commit-0", found)


def rows(time_ms: int, offsets: list[int], naive: bool) -> pa.RecordBatch:
    schema = dead_letter_schema(naive_times=naive)
    ingested = pa.array([time_ms * 1000] * len(offsets), pa.int64()).cast(schema.field("ingested").type)
    columns = [
        SEGMENTS[: len(offsets)], pa.array(offsets, pa.int64()), ingested, pa.array([b"x"] * len(offsets)),
        pa.array(["why"] * len(offsets)),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=schema)
