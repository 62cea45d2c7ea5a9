"""The reader of a stream's Iceberg table with its tail, on a real node and catalog, as Spark's processes use it:
planned once, pickled, and read part by part while commits and scales go on."""

from __future__ import annotations

import pickle
import threading
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import sarit
from sarit.core.errors import Invalid, NotFound, Truncated
from sarit.lake.catalogs import read_catalogs
from sarit.lake.problems import TableProblem
from sarit.lake.settings import IcebergSettings
from sarit.spark.data_source import SaritSource
from tests.lake_readers.committed_stream import DAMAGED, CommittedStream, event_of
from tests.nodes import RunningNode

TABLE = "lake.shop.orders"
READS = 8


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@pytest.fixture
def catalogs(tmp_path):
    file = tmp_path / "catalogs.toml"
    file.write_text(f'[lake]\ntype = "sql"\nuri = "sqlite:///{tmp_path}/c.db"\nwarehouse = "file://{tmp_path}/lake"\n')
    file.chmod(0o600)
    return str(file)


def committed(node, catalogs, stream, **settings):
    chosen = IcebergSettings(TABLE, **{"interval_seconds": 1, **settings})
    known = read_catalogs(catalogs)
    return CommittedStream(node.controller, stream, known, chosen, event=lambda number: event_of(number, 1 << 40))


def source(node, catalogs, stream, **options):
    return SaritSource(
        {"controller": node.controller, "stream": stream, "iceberg": TABLE, "icebergCatalogs": catalogs, **options}
    )


def planned(found, schema=None):
    """Return the reader and its parts, as they arrive at a task."""
    reader = found.reader(schema or found.schema())
    partitions = reader.partitions()
    return pickle.loads(pickle.dumps((reader, partitions)))


def rows(reader, partitions):
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def good(numbers):
    """The numbers of the events that can be decoded."""
    return {number for number in numbers if number % DAMAGED != DAMAGED - 1}


def kinds(partitions):
    return {type(partition.part).__name__ for partition in partitions}


def test_each_event_is_read_once_while_commits_and_scales_go_on(node, catalogs):
    name = "shop/moving"
    stream = committed(node, catalogs, name, naive_times=True)
    stream.write(range(300))
    stream.wait_for_rows()
    ending = threading.Event()

    def write():
        while not ending.is_set():
            stream.write(range(stream.written, stream.written + 50))

    writer = threading.Thread(target=write)
    writer.start()
    seen = Counter()
    try:
        for number in range(READS):
            before = stream.written
            reader, partitions = planned(source(node, catalogs, name))
            seen[frozenset(kinds(partitions))] += 1
            if number in (2, 5):
                stream.scale(5 if number == 2 else 7)  # between the plan and the tasks
            found = rows(reader, partitions)
            after = stream.written + 50  # some of the write that is under way
            counted = Counter(row["n"] for row in found)
            assert max(counted.values()) == 1
            assert good(range(before)) <= counted.keys() <= good(range(after))
            assert len({(row["sarit"]["segment"], row["sarit"]["offset"]) for row in found}) == len(found)
    finally:
        ending.set()
        writer.join()
    assert seen[frozenset({"TableFiles", "TailRanges"})] >= 2, seen
    stream.stop()
    reader, partitions = planned(source(node, catalogs, name))
    assert kinds(partitions) == {"TableFiles"}
    found = rows(reader, partitions)
    assert {row["n"] for row in found} == good(range(stream.written))
    assert len(found) == len(good(range(stream.written)))


def test_table_and_tail_have_the_same_columns(node, catalogs):
    stream = committed(node, catalogs, "shop/same", interval_seconds=3600)
    stream.write(range(40))
    stream.wait_for_rows()
    stream.write(range(40, 80))
    found = source(node, catalogs, "shop/same")
    reader, partitions = planned(found)
    assert kinds(partitions) == {"TableFiles", "TailRanges"}
    types = {batch.schema for partition in partitions for batch in reader.read(partition)}
    assert len(types) == 1
    by_number = {row["n"]: row for row in rows(reader, partitions)}
    assert sorted(by_number) == list(range(80))
    for number in (9, 48):  # of the table, and of the tail
        row = by_number[number]
        assert row["text"] == "x" * number
        assert row["tags"] == [{"name": "one", "weight": number / 2}]
        assert row["at"].isoformat() == f"2026-01-01T00:{number:02}:00.250000+00:00"
        assert row["sarit"]["key"] == f"k{number}"
        assert row["sarit"]["time"].timestamp() == number
    # Some of the columns, and many tasks.
    only = StructType([StructField("n", LongType())])
    reader, partitions = planned(source(node, catalogs, "shop/same", minPartitions="6"), only)
    assert sorted(row["n"] for row in rows(reader, partitions)) == list(range(80))
    with pytest.raises(Invalid, match=r"table lake.shop.orders has no column m: it has sarit, n, small"):
        planned(found, StructType([StructField("m", LongType())]))
    with sarit.connect(node.controller) as client:
        client.truncate_stream("shop/same", cut=client.stream_cut_tail("shop/same"))
        with pytest.raises(
            (NotFound, Truncated), match=r"shop/same was truncated above what table lake.shop.orders has"
        ):
            planned(found)
        client.create_stream("shop/another")
    with pytest.raises(TableProblem, match="is the table of shop/same, not of shop/another"):
        planned(source(node, catalogs, "shop/another"))
    with pytest.raises(NotFound, match=r"there is no table lake\.shop\.none"):
        source(node, catalogs, "shop/same", iceberg="lake.shop.none").schema()
    stream.stop()
