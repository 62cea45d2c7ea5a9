"""A stream's Iceberg table and its tail, read by Spark as one: each event once, whatever is committed or scaled."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

import sarit
from sarit.lake.catalogs import read_catalogs
from sarit.lake.settings import IcebergSettings
from tests.lake_readers.committed_stream import DAMAGED, CommittedStream, event_of
from tests.nodes import RunningNode
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.timeout(900), SPARK_MAY_BE_SLOW]

STREAM = "shop/orders"
TABLE = "lake.shop.orders"
READS = 3


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@pytest.fixture(scope="module")
def client(node):
    with sarit.connect(node.controller) as client:
        client.create_scope("shop")
        yield client


@pytest.fixture(autouse=True)
def _empty_scope(client):
    """Each run of a test, a repeated one too, has streams of its own."""
    client.delete_scope("shop", recursive=True)
    client.create_scope("shop")


@pytest.fixture
def catalogs(tmp_path):
    file = tmp_path / "catalogs.toml"
    file.write_text(f'[lake]\ntype = "sql"\nuri = "sqlite:///{tmp_path}/c.db"\nwarehouse = "file://{tmp_path}/lake"\n')
    file.chmod(0o600)
    return str(file)


def committed(node, catalogs, **settings):
    chosen = IcebergSettings(TABLE, **{"interval_seconds": 1, **settings})
    return CommittedStream(
        node.controller, STREAM, read_catalogs(catalogs), chosen, event=lambda number: event_of(number, 1 << 40)
    )


def view(spark, node, catalogs, stream=STREAM, **options):
    chosen = {"controller": node.controller, "stream": stream, "iceberg": TABLE, "icebergCatalogs": catalogs, **options}
    return spark.read.format("sarit").options(**chosen).load()


def good(numbers):
    """The numbers of the events that can be decoded."""
    return {number for number in numbers if number % DAMAGED != DAMAGED - 1}


def test_view_is_complete_while_it_is_committed_and_scaled(spark, node, catalogs):
    stream = committed(node, catalogs)
    stream.write(range(300))
    stream.wait_for_rows()
    ending = threading.Event()

    def write():
        while not ending.is_set():
            stream.write(range(stream.written, stream.written + 100))

    writer = threading.Thread(target=write)
    writer.start()
    in_both = 0
    try:
        for number in range(READS):
            before, committed_before = stream.written, stream.rows
            rows = view(spark, node, catalogs).select("n", "sarit.segment", "sarit.offset").collect()
            after = stream.written + 100  # some of the write that is under way
            found = Counter(row.n for row in rows)
            assert max(found.values()) == 1
            assert good(range(before)) <= found.keys() <= good(range(after))
            assert len({(row.segment, row.offset) for row in rows}) == len(rows)
            in_both += committed_before > 0 and stream.rows < len(rows)
            stream.scale(4 + 2 * number)
    finally:
        ending.set()
        writer.join()
    assert in_both, "no read was of a table and a tail"
    stream.stop()
    assert {row.n for row in view(spark, node, catalogs).select("n").collect()} == good(range(stream.written))
    # Of the table alone, and of its columns the ones that are asked for.
    frame = view(spark, node, catalogs, minPartitions="4")
    assert frame.columns == ["sarit", "n", "small", "text", "at", "tags"]
    assert frame.count() == len(good(range(stream.written)))
