"""Tasks of a sink, one after the other in one process, on a real node: what they share, and what they do not."""

from __future__ import annotations

import gc
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import sarit
from sarit.core.errors import Invalid
from sarit.spark.client import connect
from sarit.spark.formats.options import parse_formats
from sarit.spark.sink import at_least_once, exactly_once
from sarit.spark.sink.access import Connection
from sarit.spark.sink.columns import RowsToEvents
from sarit.spark.sink.options import AT_LEAST_ONCE, EXACTLY_ONCE, parse_write
from sarit.spark.worker_process import PerProcess
from tests.nodes import RunningNode
from tests.spark.sink_files import open_registered, read

SCHEMA = StructType([StructField("event", BinaryType())])


class Context:
    """What a task sees of Spark."""

    def partitionId(self):
        return 0

    def attemptNumber(self):
        return 0

    @classmethod
    def get(cls):
        return cls()


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@pytest.fixture(autouse=True)
def _empty_stream(node):
    with sarit.connect(node.controller) as client:
        client.create_scope("s")
        client.delete_scope("s", recursive=True)
        client.create_scope("s")
        client.create_stream("s/out", segments=2)


class Process:
    """A process of tasks: it counts connections that are made and closed."""

    def __init__(self, node, guarantee, monkeypatch):
        self.made = self.closed = self.batch = 0
        self.once = guarantee == EXACTLY_ONCE
        self.options = parse_write({"controller": node.controller, "stream": "s/out", "deliveryGuarantee": guarantee})
        self.rows = RowsToEvents(SCHEMA, self.options, parse_formats({}))
        self.shared = PerProcess(self._make, self._close)
        monkeypatch.setattr(exactly_once, "CONNECTIONS", self.shared)
        monkeypatch.setattr(at_least_once, "CLIENTS", self.shared)
        monkeypatch.setattr(exactly_once, "TaskContext", Context)

    def _make(self, target):
        self.made += 1
        return (Connection if self.once else connect)(target)

    def _close(self, connection):
        self.closed += 1
        connection.close()

    def write(self, *events):
        """A micro-batch of one task, and its commit."""
        rows = iter([pa.record_batch({"event": pa.array(events, pa.binary())})])
        self.batch += 1
        if not self.once:
            at_least_once.StreamWriter(self.options, self.rows).write(rows)
            return
        sink = exactly_once.Sink(self.options, self.rows)
        sink.commit([sink.write(rows, b"q" * 16, self.batch)], self.batch)


@pytest.fixture(params=[AT_LEAST_ONCE, EXACTLY_ONCE])
def process(node, request, monkeypatch):
    made = Process(node, request.param, monkeypatch)
    yield made
    made.shared.forget(made.options.target)


def check(node, *events):
    """The stream has these events, and no transaction is open."""
    with sarit.connect(node.controller) as client:
        assert Counter(read(client, "s/out")) == Counter(events)
        if "spark-sink" in {table.stream for table in client.tables.list("s")}:
            assert open_registered(client, "s/spark-sink") == []


def test_tasks_share_a_connection_and_freeze_the_process_once(node, process, monkeypatch):
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(process.batch))
    monkeypatch.setattr("sarit.spark.worker_process._frozen", set())
    process.write(b"of another process")
    assert frozen == []
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    process.write(b"one")
    process.write(b"two")
    assert frozen == [2]
    assert (process.made, process.closed) == (1, 0)
    check(node, "of another process", "one", "two")


def test_failed_task_closes_its_connection_and_leaves_nothing_to_the_next(node, process):
    process.write(b"before")
    with pytest.raises(Invalid, match="null event"):
        process.write(b"lost", None)
    assert (process.made, process.closed) == (1, 1)
    process.write(b"after")
    assert (process.made, process.closed) == (2, 1)
    check(node, "before", "after")


def test_connection_outlives_a_restart_of_the_node(node, process):
    process.write(b"before")
    node.kill()
    node.start()
    process.write(b"after")
    check(node, "before", "after")


def test_connection_writes_to_a_stream_that_was_made_again(node, process):
    process.write(b"before")
    with sarit.connect(node.controller) as client:
        client.delete_stream("s/out", seal=True)
        client.create_stream("s/out", segments=2)
    process.write(b"after")
    assert process.made == 1
    check(node, "after")
