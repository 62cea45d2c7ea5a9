"""Options of streaming reads in a real Spark against a real node: several streams, partitions, noted times, cuts."""

from __future__ import annotations

import datetime
import time
from collections import Counter

import pytest

import sarit
from tests.nodes import RunningNode
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.timeout(900), SPARK_MAY_BE_SLOW]
MINUTE_MS = 60_000
BEGIN_MS = 1_700_000_040_000  # of a minute


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data", "--watermark-interval", "0.1") as node:
        yield node


@pytest.fixture
def client(node):
    with sarit.connect(node.controller) as client:
        client.create_scope("s")
        # Each run of a test, a repeated one too, has streams of its own.
        client.delete_scope("s", recursive=True)
        client.create_scope("s")
        yield client


def fill(client, stream, numbers, size=0):
    with client.writer(stream) as writer:
        for n in numbers:
            writer.write(f"{n}".ljust(size).encode(), key=str(n % 7))


class Seen:
    """Of each micro-batch with rows: its number of partitions, and its rows."""

    def __init__(self):
        self.batches = []

    def __call__(self, batch, _number):
        if rows := batch.collect():
            self.batches.append((batch.rdd.getNumPartitions(), rows))

    def rows(self):
        return [row for _, rows in self.batches for row in rows]


@pytest.fixture
def read_all(spark, node, tmp_path):
    """Read what is there, and continue from the checkpoint when it is called again."""
    seen = Seen()

    def run(**options):
        frame = spark.readStream.format("sarit").options(controller=node.controller, **options).load()
        writer = frame.writeStream.foreachBatch(seen).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return seen

    return run


def test_named_streams_are_read_together_and_continue_together(client, read_all):
    for name in ("s/a", "s/b", "s/c"):
        client.create_stream(name, segments=2)
        fill(client, name, range(100))
    read_all(streams="a,s/b", scope="s", maxEventsPerTrigger="150")
    fill(client, "s/b", range(100, 120))
    client.stream("s/a").scale(3)
    fill(client, "s/a", range(100, 130))
    seen = read_all(streams="a,s/b", scope="s", maxEventsPerTrigger="150")
    assert Counter((row.stream, int(row.event)) for row in seen.rows()) == Counter(
        [("a", n) for n in range(130)] + [("b", n) for n in range(120)]
    )
    assert {row.stream for row in seen.batches[0][1]} == {"a", "b"}


def test_partitions_of_a_small_micro_batch_hold_each_event_once(client, read_all):
    """Of a segment that a sample shows."""
    client.create_stream("s/small")
    fill(client, "s/small", range(400), size=100)
    small = read_all(stream="s/small", minPartitions="4")
    assert [count for count, _ in small.batches] == [4]
    assert sorted(int(row.event) for row in small.rows()) == list(range(400))


def test_partitions_of_a_large_micro_batch_hold_each_event_once(client, read_all):
    """Of a segment whose boundaries the store knows."""
    client.create_stream("s/large")
    fill(client, "s/large", range(1000), size=4000)
    large = read_all(stream="s/large", minPartitions="3")
    assert [3 <= count <= 5 for count, _ in large.batches] == [True]
    rows = sorted(large.rows(), key=lambda row: row.offset)
    assert sorted(int(row.event) for row in rows) == list(range(1000))
    # Events of one key are in order by offset.
    assert [int(row.event) for row in rows if int(row.event) % 7 == 0] == list(range(0, 1000, 7))


def test_cut_of_a_micro_batch_is_where_a_batch_read_goes_on(spark, node, client, read_all):
    client.create_stream("s/cuts", segments=2)
    fill(client, "s/cuts", range(100))
    seen = read_all(stream="s/cuts", includeCut="true")
    fill(client, "s/cuts", range(100, 110))
    (cut,) = {row.cut for row in seen.rows()}
    later = spark.read.format("sarit").options(controller=node.controller, stream="s/cuts", start=cut).load()
    assert sorted(int(row.event) for row in later.collect()) == list(range(100, 110))


def test_windows_of_noted_times_count_each_event_once_and_close(spark, node, client, tmp_path):
    from pyspark.sql.functions import window

    from sarit.core.names import StreamName
    from sarit.spark.client import ConnectedStream
    from sarit.spark.options import Target

    client.create_stream("s/noted", segments=2)
    stream = ConnectedStream(Target(node.controller), StreamName("s", "noted"), client)

    def note(writer, minute):
        """Note a time, and wait until the controller has made a watermark of it."""
        time_ms = BEGIN_MS + minute * MINUTE_MS
        writer.note_time(time_ms)
        while all(mark.lower != time_ms for mark in stream.watermarks(None)[0]):
            time.sleep(0.05)  # not to take the processor from the controller

    frame = spark.readStream.format("sarit").options(controller=node.controller, stream="s/noted", notedTime="true")
    counts = frame.load().withWatermark("noted_time", "0 seconds").groupBy(window("noted_time", "1 minute")).count()
    sink = counts.writeStream.format("memory").queryName("windows").outputMode("append")
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        with client.writer("s/noted", name="w") as writer:
            writer.write("before all times", key="0")
            for minute, events in enumerate((10, 20, 30, 40)):
                note(writer, minute)
                for n in range(events):
                    writer.write(f"{minute}:{n}", key=str(n))
                writer.flush()
                query.processAllAvailable()
            states = [state for progress in query.recentProgress for state in progress["stateOperators"]]
    finally:
        query.stop()
    found = sorted((row.window.start, row["count"]) for row in spark.table("windows").collect())
    begin = datetime.datetime.fromtimestamp(BEGIN_MS / 1000)
    # The last window is open: nothing says yet that the writer is beyond it.
    assert found == [(begin + datetime.timedelta(minutes=minute), 10 * minute + 10) for minute in range(3)]
    assert {state["numRowsDroppedByWatermark"] for state in states} == {0}
