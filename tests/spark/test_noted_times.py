"""The times that writers noted, from a node into the ranges of micro-batches (without Spark)."""

from __future__ import annotations

import pytest

import sarit
from sarit.core.names import StreamName
from sarit.spark.client import ConnectedSource
from sarit.spark.options import Target
from sarit.spark.source.admission import Limits
from sarit.spark.source.options import parse_read
from sarit.spark.source.planner import QueryPlanner
from tests.nodes import RunningNode

X = StreamName("s", "x")


@pytest.fixture
def node(tmp_path):
    with RunningNode(tmp_path / "data", "--watermark-interval", "0.1") as node:
        yield node


@pytest.mark.timeout(300)
def test_times_that_writers_noted_reach_the_ranges(node):
    with sarit.connect(node.controller) as client, client.writer(X, name="w") as writer:
        client.create_scope("s")
        client.create_stream(X, segments=2)
        source = ConnectedSource(Target(node.controller))
        planner = QueryPlanner(parse_read({"stream": "s/x", "notedTime": "true"}), source)
        begin = planner.initial()
        for n in range(20):
            writer.write(f"{n}", key=str(n))
        writer.note_time(1_700_000_000_000)
        tail = dict(client.stream_cut_tail(X).positions)
        access = source.stream(X)
        marks, after = access.watermarks(None)
        # The controller writes a watermark a little later.
        while not marks:
            marks, after = access.watermarks(after)
        assert marks[0].lower == 1_700_000_000_000
        for n in range(20, 40):
            writer.write(f"{n}", key=str(n))
        writer.flush()
        end = planner.latest(begin, Limits())
        assert end["times"] == {"s/x": 1_700_000_000_000}
        ranges = planner.ranges(begin, end)
        assert {part.segment: part.times for part in ranges} == {
            segment: ((offset, 1_700_000_000_000),) for segment, offset in tail.items()
        }
        # A driver that begins again reads the watermarks again.
        assert QueryPlanner(planner._options, source).ranges(begin, end) == ranges
        source.close()
