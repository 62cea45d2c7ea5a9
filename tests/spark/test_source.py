"""`format("sarit")` in a real Spark against a real node: batch and streaming, both ways, across a new epoch."""

from __future__ import annotations

import pytest

import sarit
from tests.nodes import RunningNode
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.timeout(900), SPARK_MAY_BE_SLOW]


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


def options(node, stream, **more):
    return {"controller": node.controller, "stream": stream, **more}


def fill(client, stream, count, start=0):
    with client.writer(stream) as writer:
        for n in range(start, start + count):
            writer.write(f"{n % 7}:{n}", key=str(n % 7))


def read(client, stream):
    return [event.decode() for event in client.reader(stream, end="tail")]


def copy_all(frame, directory):
    """Run a query into files until all is copied, from its checkpoint if there is one.

    Returns the rows of each micro-batch, and the numbers that the events in the files end with, sorted."""
    sink = frame.selectExpr("cast(event as string) event").writeStream.format("json")
    query = sink.option("checkpointLocation", str(directory / "checkpoint")).start(str(directory / "out"))
    try:
        query.processAllAvailable()
        sizes = [int(progress["numInputRows"]) for progress in query.recentProgress]
    finally:
        query.stop()
    rows = frame.sparkSession.read.schema("event string").json(str(directory / "out")).collect()
    return sizes, sorted(int(row.event.rpartition(":")[2]) for row in rows)


def test_batch_read_and_its_columns(spark, node, client):
    client.create_stream("s/batch", segments=3)
    fill(client, "s/batch", 5000)
    frame = spark.read.format("sarit").options(**options(node, "s/batch")).load()
    assert frame.columns == ["event", "scope", "stream", "segment_id", "offset"]
    rows = frame.selectExpr("cast(event as string) e", "segment_id", "offset", "scope", "stream").collect()
    assert sorted(int(row.e.split(":")[1]) for row in rows) == list(range(5000))
    assert {row.segment_id for row in rows} == {0, 1, 2}
    assert len({(row.segment_id, row.offset) for row in rows}) == 5000
    only = spark.read.format("sarit").schema("event string").options(**options(node, "s/batch")).load()
    assert only.rdd.getNumPartitions() == 3
    assert only.count() == 5000
    tail = spark.read.format("sarit").options(**options(node, "s/batch", start="tail")).load()
    assert tail.count() == 0


def test_batch_append_with_keys(spark, node, client):
    client.create_stream("s/appended", segments=2)
    frame = spark.range(3000).selectExpr("concat(id % 5, ':', id) event", "cast(id % 5 as string) routing_key")
    frame.coalesce(1).write.format("sarit").options(**options(node, "s/appended")).mode("append").save()
    got = read(client, "s/appended")
    assert sorted(int(e.split(":")[1]) for e in got) == list(range(3000))
    for key in range(5):
        mine = [int(e.split(":")[1]) for e in got if e.startswith(f"{key}:")]
        assert mine == sorted(mine)


def test_streaming_copy_survives_scale_and_restart(spark, node, client, tmp_path):
    client.create_stream("s/source", segments=2)
    client.create_stream("s/sink", segments=2)

    def run():
        query = (
            spark.readStream.format("sarit")
            .options(**options(node, "s/source", maxEventsPerTrigger="700"))
            .load()
            .selectExpr("cast(event as string) event", "split(cast(event as string), ':')[0] routing_key")
            .writeStream.format("sarit")
            .options(**options(node, "s/sink"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        query.processAllAvailable()
        sizes = [int(progress["numInputRows"]) for progress in query.recentProgress]
        query.stop()
        return sizes

    fill(client, "s/source", 2000)
    first = run()
    assert sum(first) == 2000
    assert max(first) <= 700
    client.update_stream("s/source", segments=3)
    fill(client, "s/source", 1000, start=2000)
    assert sum(run()) == 1000
    got = read(client, "s/sink")
    assert sorted(int(e.split(":")[1]) for e in got) == list(range(3000))


def test_micro_batches_are_bounded_in_bytes(spark, node, client, tmp_path):
    client.create_stream("s/bytes", segments=2)
    with client.writer("s/bytes") as writer:
        for n in range(200):
            writer.write(f"{n:092}", key=str(n % 7))  # 100 bytes with its header
    frame = spark.readStream.format("sarit").options(**options(node, "s/bytes", maxBytesPerTrigger="5050")).load()
    sizes, seen = copy_all(frame, tmp_path)
    assert seen == list(range(200))
    assert max(sizes) <= 50
    assert len([size for size in sizes if size]) <= 6


def test_query_continues_above_truncation_without_fail_on_data_loss(spark, node, client, tmp_path):
    client.create_stream("s/lost", segments=2)
    settings = options(node, "s/lost", failOnDataLoss="false")
    frame = spark.readStream.format("sarit").options(**settings).load()
    fill(client, "s/lost", 100)
    assert copy_all(frame, tmp_path)[1] == list(range(100))
    fill(client, "s/lost", 100, start=100)
    client.truncate_stream("s/lost", cut=client.stream_cut_tail("s/lost"))
    fill(client, "s/lost", 100, start=200)
    expected = [*range(100), *range(200, 300)]
    assert copy_all(frame, tmp_path)[1] == expected
    client.stream("s/lost").scale(3)
    fill(client, "s/lost", 100, start=300)
    client.truncate_stream("s/lost", cut=client.stream_cut_tail("s/lost"))
    fill(client, "s/lost", 100, start=400)
    expected += range(400, 500)
    assert copy_all(frame, tmp_path)[1] == expected


def test_wrong_options_are_reported(spark, node):
    from pyspark.errors import PySparkException

    for wrong, text in (
        ({"stream": "s/none"}, "does not exist"),
        ({"stream": "nothing"}, "SCOPE/STREAM"),
        ({"stream": "s/batch", "minPartition": "3"}, "unknown option"),
    ):
        with pytest.raises(PySparkException, match=text):
            spark.read.format("sarit").options(controller=node.controller, **wrong).load().count()
