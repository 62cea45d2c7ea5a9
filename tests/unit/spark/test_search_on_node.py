"""A batch read with option `search` on a real node, as Spark's processes do it: planned once, pickled, and read part by
part."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import sarit
from sarit.core.errors import Invalid
from sarit.spark.client import CLIENTS
from sarit.spark.data_source import SaritSource
from sarit.spark.source.options import parse_read
from tests.nodes import RunningNode

EVENTS = 600
ONE_IN = 7


def event_of(number):
    level = "error" if number % ONE_IN == 0 else "info"
    return f'{{"n": {number}, "level": "{level}", "message": "request {number} took long"}}'


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node, sarit.connect(node.controller) as client:
        client.create_scope("web")
        for name in ("log", "other"):
            client.create_stream(f"web/{name}", segments=3)
            with client.writer(f"web/{name}") as writer:
                for number in range(EVENTS):
                    writer.write(event_of(number), key=str(number))
        yield node
        # Tasks leave the client of their process to the next ones.
        target = parse_read({"controller": node.controller, "stream": "web/log"}).target
        CLIENTS.get(target).close()
        CLIENTS.forget(target)


def found(node, text, schema=None, **options):
    given = {"stream": "web/log", **options}
    source = SaritSource({"controller": node.controller, "search": text, **given})
    reader = source.reader(schema or source.schema())
    reader, partitions = pickle.loads(pickle.dumps((reader, reader.partitions())))
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_read_has_the_events_that_are_found_and_their_places(node):
    wanted = {event_of(number).encode() for number in range(0, EVENTS, ONE_IN)}
    rows = found(node, "level:error")
    assert {row["event"] for row in rows} == wanted
    assert len(rows) == len(wanted)
    whole = {(row["segment_id"], row["offset"]): row["event"] for row in found(node, "*")}
    assert len(whole) == EVENTS
    assert all(whole[row["segment_id"], row["offset"]] == row["event"] for row in rows)
    assert found(node, '"took forever"') == []
    assert [row["event"] for row in found(node, 'n:[17 TO 18} "request 17"')] == [event_of(17).encode()]


def test_columns_of_payloads_and_small_partitions_make_no_difference(node):
    schema = StructType([StructField("n", LongType())])
    rows = found(node, "level:error", schema, format="json", maxBytesPerPartition="4096")
    assert sorted(row["n"] for row in rows) == list(range(0, EVENTS, ONE_IN))


def test_several_streams_are_searched(node):
    rows = found(node, "level:error n:<70", stream="", streams="web/log,web/other")
    assert sorted(row["stream"] for row in rows) == ["log"] * 10 + ["other"] * 10


def test_unknown_field_is_refused_on_the_driver(node):
    with pytest.raises(Invalid, match=r"option search, for stream web/log: .*levle"):
        found(node, "levle:error")
