"""Streaming reads in a real Spark against a real node: scaling, available now, several streams, lag, minimum."""

from __future__ import annotations

import json
from collections import Counter

import pytest

import sarit
from sarit.spark import lag, sessions
from sarit.spark.versions import has_admission_control, version
from tests.nodes import RunningNode
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.timeout(900), SPARK_MAY_BE_SLOW]
NEEDS_4_2 = pytest.mark.skipif(not has_admission_control(version()), reason="PySpark 4.1 passes no trigger or limit")
KEYS = 11


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@pytest.fixture(scope="module")
def client(node):
    with sarit.connect(node.controller) as client:
        client.create_scope("s")
        yield client


@pytest.fixture(autouse=True)
def _empty_scope(client):
    """Each run of a test, a repeated one too, has streams of its own."""
    client.delete_scope("s", recursive=True)
    client.create_scope("s")


def fill(client, stream, numbers, size=0):
    """Events "key:number", with spaces up to `size` bytes."""
    with client.writer(stream) as writer:
        for n in numbers:
            writer.write(f"{n % KEYS}:{n}".ljust(size), key=str(n % KEYS))


def frame(spark, node, **options):
    return spark.readStream.format("sarit").options(controller=node.controller, **options).load()


class Seen:
    """What each micro-batch had: its rows by (stream, segment, offset), and its number of partitions."""

    def __init__(self):
        self.batches = []

    def __call__(self, batch, _number):
        rows = batch.selectExpr("rtrim(cast(event as string)) event", "stream", "segment_id", "offset").collect()
        self.batches.append((batch.rdd.getNumPartitions(), rows))

    def events(self):
        return [row.event for _, rows in self.batches for row in rows]

    def check_once_and_in_order(self, numbers):
        """Every event once; each key in order over the micro-batches, and within one by segment and offset."""
        events = Counter(self.events())
        assert events == Counter(f"{n % KEYS}:{n}" for n in numbers)
        last = {}
        for _, rows in self.batches:
            for row in sorted(rows, key=lambda row: (row.segment_id, row.offset)):
                key, number = map(int, row.event.split(":"))
                assert last.get(key, -1) < number
                last[key] = number


def run(source, seen, directory, **trigger):
    writer = source.writeStream.foreachBatch(seen).option("checkpointLocation", str(directory / "checkpoint"))
    return (writer.trigger(**trigger) if trigger else writer).start()


def wait_rows(query, seen, count):
    """Wait until the query has read so many rows."""
    while len(seen.events()) < count and query.isActive:
        query.awaitTermination(0.05)
    assert query.exception() is None


def test_running_query_follows_scales_with_its_partitions(spark, node, client, tmp_path):
    client.create_stream("s/scaled", segments=1)
    seen = Seen()
    query = run(frame(spark, node, stream="s/scaled"), seen, tmp_path)
    try:
        total = 0
        for segments in (1, 8, 2):
            client.stream("s/scaled").scale(segments)
            before, most = len(seen.batches), 0
            # A micro-batch of a busy machine may have a few events of a slow writer, and then a single task.
            for _ in range(20):
                # Each segment with events has enough bytes for a task of its own, in two micro-batches, too.
                fill(client, "s/scaled", range(total, total + 2000), size=4000)
                total += 2000
                wait_rows(query, seen, total)
                most = max(count for count, rows in seen.batches[before:] if rows)
                if most >= min(2, segments):
                    break
            # The keys do not hit each of 8 segments, and a micro-batch may have only some of them.
            assert min(2, segments) <= most <= segments
    finally:
        query.stop()
    seen.check_once_and_in_order(range(total))


def test_a_query_puts_no_name_into_the_environment_that_the_session_left_out(spark, node, client, tmp_path):
    """Two queries that put the same new name at once damage the map for all queries of the driver."""
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    variables = sources.lookupDataSource("sarit").dataSourceCls().envVars()
    for name in sessions.STREAMING_NAMES:
        variables.remove(name)
    sessions.name_environment(spark)
    names = set(variables)
    client.create_stream("s/names", segments=1)
    fill(client, "s/names", range(10))
    query = run(frame(spark, node, stream="s/names"), Seen(), tmp_path, availableNow=True)
    assert query.awaitTermination(600)
    assert set(variables) == names > set(sessions.STREAMING_NAMES)
    assert variables.get("SPARK_BUFFER_SIZE")  # its reader has put its own


def test_small_segments_share_a_task_unless_more_are_wanted(spark, node, client, tmp_path):
    client.create_stream("s/small", segments=6)
    fill(client, "s/small", range(500))
    for wanted in (1, 4):
        seen = Seen()
        source = frame(spark, node, stream="s/small", minPartitions=str(wanted))
        query = run(source, seen, tmp_path / str(wanted), availableNow=True)
        assert query.awaitTermination(600)
        seen.check_once_and_in_order(range(500))
        assert [count for count, rows in seen.batches if rows] == [wanted]


@NEEDS_4_2
def test_available_now_with_limits_reads_all_through_scales_and_ends(spark, node, client, tmp_path):
    client.create_stream("s/now", segments=1)
    fill(client, "s/now", range(3000))
    client.stream("s/now").scale(4)
    fill(client, "s/now", range(3000, 5000))
    client.stream("s/now").scale(1)
    fill(client, "s/now", range(5000, 6000))
    source = frame(spark, node, stream="s/now", maxEventsPerTrigger="700")
    seen = Seen()
    query = run(source, seen, tmp_path, availableNow=True)
    assert query.awaitTermination(600)
    seen.check_once_and_in_order(range(6000))
    assert max(len(rows) for _, rows in seen.batches) <= 700
    # A second run reads what came since.
    fill(client, "s/now", range(6000, 6100))
    query = run(source, seen, tmp_path, availableNow=True)
    assert query.awaitTermination(600)
    seen.check_once_and_in_order(range(6100))


@NEEDS_4_2
def test_lag_is_in_the_progress(spark, node, client, tmp_path):
    client.create_stream("s/lag", segments=2)
    with client.writer("s/lag") as writer:
        for n in range(1000):
            writer.write(f"{n:092}", key=str(n % 7))  # 100 bytes with its header
    source = frame(spark, node, stream="s/lag", maxEventsPerTrigger="400")
    query = run(source, Seen(), tmp_path, availableNow=True)
    assert query.awaitTermination(600)
    found = [lag(progress) for progress in query.recentProgress if progress["numInputRows"]]
    assert [(part.bytes, part.events) for part in found] == [(60_000, 600), (20_000, 200), (0, 0)]
    last = query.recentProgress[-1]["sources"][0]
    ends = {json.dumps(last[name], sort_keys=True) for name in ("endOffset", "latestOffset")}
    assert "behind" in json.loads(last["latestOffset"]) if isinstance(last["latestOffset"], str) else ends


def test_several_streams_and_later_ones_of_a_pattern(spark, node, client, tmp_path):
    for name in ("s/logs-1", "s/logs-2", "s/other"):
        client.create_stream(name, segments=2)
        fill(client, name, range(100))
    seen = Seen()
    query = run(frame(spark, node, streamPattern="s/logs-.*", discoverySeconds="1"), seen, tmp_path)
    try:
        wait_rows(query, seen, 200)
        client.create_stream("s/logs-3")
        fill(client, "s/logs-3", range(50))
        wait_rows(query, seen, 250)
    finally:
        query.stop()
    assert Counter(row.stream for _, rows in seen.batches for row in rows) == {
        "logs-1": 100,
        "logs-2": 100,
        "logs-3": 50,
    }


def test_query_awaits_its_minimum_of_events(spark, node, client, tmp_path):
    client.create_stream("s/least", segments=2)
    seen = Seen()
    source = frame(spark, node, stream="s/least", minEventsPerTrigger="100", maxTriggerDelay="1h")
    query = run(source, seen, tmp_path)
    try:
        for start in range(0, 90, 10):
            fill(client, "s/least", range(start, start + 10))
        fill(client, "s/least", range(90, 100))
        wait_rows(query, seen, 100)
    finally:
        query.stop()
    assert [len(rows) for _, rows in seen.batches if rows] == [100]


@NEEDS_4_2
def test_group_shows_the_position_of_a_query(spark, node, client, tmp_path):
    client.create_stream("s/grouped", segments=2)
    fill(client, "s/grouped", range(200))
    source = frame(spark, node, stream="s/grouped", readerGroup="dashboards", maxEventsPerTrigger="50")
    seen = Seen()
    query = run(source, seen, tmp_path, availableNow=True)
    assert query.awaitTermination(600)
    seen.check_once_and_in_order(range(200))
    group = client.reader_groups.open("s/dashboards")
    assert group.unread_bytes() == 0
    fill(client, "s/grouped", range(200, 210))
    assert group.unread_bytes() > 0
