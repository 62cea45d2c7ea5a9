"""The exactly-once sink in a real Spark against a real node: batch and streaming."""

from __future__ import annotations

import pytest

import sarit
from tests.nodes import RunningNode
from tests.spark.sink_files import numbers, read, record_states, registered
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.timeout(900), SPARK_MAY_BE_SLOW]

TABLE = "k/spark-sink"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@pytest.fixture(scope="module")
def client(node):
    with sarit.connect(node.controller) as client:
        client.create_scope("k")
        yield client


@pytest.fixture(autouse=True)
def _empty_scope(client):
    """Each run of a test, a repeated one too, has streams of its own."""
    client.delete_scope("k", recursive=True)
    client.create_scope("k")


def written(frame, node, **options):
    """Append a frame."""
    frame.write.format("sarit").options(controller=node.controller, **options).mode("append").save()


def numbered(spark, count, partitions=2):
    return spark.range(0, count, 1, partitions).selectExpr("concat(id % 5, ':', id) event")


def test_batch_write_is_visible_once_and_leaves_nothing_open(spark, node, client):
    client.create_stream("k/batch", segments=2)
    written(numbered(spark, 3000), node, stream="k/batch")
    assert numbers(client, "k/batch") == list(range(3000))
    assert registered(client, TABLE) == []
    assert record_states(client, TABLE) == []  # nobody can run it again


def test_job_id_makes_a_second_run_write_nothing(spark, node, client):
    client.create_stream("k/job")
    for _ in range(2):
        written(numbered(spark, 100), node, stream="k/job", jobId="nightly")
    assert numbers(client, "k/job") == list(range(100))
    written(numbered(spark, 100), node, stream="k/job", jobId="another")
    assert len(read(client, "k/job")) == 200
    assert registered(client, TABLE) == []


def test_streaming_write_continues_exactly_after_restart(spark, node, client, tmp_path):
    client.create_stream("k/in", segments=2)
    client.create_stream("k/out", segments=2)

    def run():
        source = spark.readStream.format("sarit").options(controller=node.controller, stream="k/in")
        query = (
            source.option("maxEventsPerTrigger", "300").load()
            .selectExpr("cast(event as string) event", "split(cast(event as string), ':')[0] routing_key")
            .writeStream.format("sarit").options(controller=node.controller, stream="k/out")
            .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        )  # fmt: skip
        query.processAllAvailable()
        query.stop()

    written(numbered(spark, 1000), node, stream="k/in")
    run()
    assert numbers(client, "k/out") == list(range(1000))
    written(numbered(spark, 2000).where("substring_index(event, ':', -1) >= 1000"), node, stream="k/in")
    run()
    assert numbers(client, "k/out") == list(range(2000))
    assert registered(client, TABLE) == []
    assert set(record_states(client, TABLE)) == {"done"}


def test_at_least_once_writes_without_transactions(spark, node, client):
    client.create_stream("k/plain")
    written(numbered(spark, 100), node, stream="k/plain", deliveryGuarantee="at-least-once")
    assert numbers(client, "k/plain") == list(range(100))
    assert list(client.tables.list("k")) == []


def test_streams_by_column_are_created_on_demand(spark, node, client):
    frame = spark.range(0, 900, 1, 3).selectExpr(
        "concat('x:', id) event",
        "if(id % 3 = 0, 'k/zero', concat('rest-', id % 3)) stream",
        "cast(id % 7 as string) who",
    )
    written(frame, node, scope="k", createStream="true", segments="2", retention="7 days", routingKey="who")
    assert numbers(client, "k/zero") == list(range(0, 900, 3))
    assert numbers(client, "k/rest-1") == list(range(1, 900, 3))
    assert numbers(client, "k/rest-2") == list(range(2, 900, 3))
    info = client.stream_info("k/zero")
    assert len(info.segments) == 2
    assert info.config.retention.limit == 7 * 86_400_000
    assert registered(client, TABLE) == []


def test_for_each_batch_with_job_id_is_written_once(spark, node, client, tmp_path):
    """The function fails after its write, and Spark runs the batch again."""
    client.create_stream("k/in")
    client.create_stream("k/out")
    written(numbered(spark, 500), node, stream="k/in")

    def run(fails):
        def write(frame, batch):
            written(frame.select("event"), node, stream="k/out", jobId=f"copy-{batch}")
            if fails:
                raise RuntimeError("after the write")

        source = spark.readStream.format("sarit").options(controller=node.controller, stream="k/in").load()
        query = (
            source.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        )
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    for _ in range(2):
        with pytest.raises(Exception, match="after the write"):
            run(fails=True)
    run(fails=False)
    assert numbers(client, "k/out") == list(range(500))


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ("if(id = 77, null, string(id))", "row 77 of partition 0 has a null event"),
        ("if(id = 77, repeat('x', 9000000), string(id))", "row 77 of partition 0 has an event of 9000000 bytes"),
    ],
)
def test_wrong_row_is_named_and_nothing_is_visible(spark, node, client, event, text):
    client.create_stream("k/wrong")
    frame = spark.range(0, 100, 1, 1).selectExpr(f"{event} event")
    with pytest.raises(Exception, match=text):
        written(frame, node, stream="k/wrong")
    assert read(client, "k/wrong") == []
    assert registered(client, TABLE) == []


def test_overwrite_and_missing_stream_are_refused(spark, node, client):
    writing = numbered(spark, 10).write.format("sarit").options(controller=node.controller, stream="k/none")
    with pytest.raises(Exception, match="append-only"):
        writing.mode("overwrite").save()
    with pytest.raises(Exception, match="k/none does not exist"):
        writing.mode("append").save()
    assert not any(str(name) == "k/none" for name in client.list_streams("k"))
