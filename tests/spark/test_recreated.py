"""A stream that is deleted and made again while a query is stopped, in a real Spark against a real node."""

from __future__ import annotations

import pytest

import sarit
from tests.nodes import RunningNode
from tests.spark.slow import SPARK_MAY_BE_SLOW
from tests.spark.test_streaming import frame

pytestmark = [pytest.mark.timeout(900), SPARK_MAY_BE_SLOW]
NAME = "again/orders"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@pytest.fixture
def client(node):
    with sarit.connect(node.controller) as client:
        yield client


def make(client, word, count):
    client.create_scope("again")
    client.create_stream(NAME)
    with client.writer(NAME) as writer:
        for number in range(count):
            writer.write(f"{word} {number}")


def run(spark, node, directory, **options):
    """The events that a run from the checkpoint reads; the error it ends with."""
    seen = []

    def keep(batch, _number):
        seen.extend(bytes(row.event).decode() for row in batch.select("event").collect())

    source = frame(spark, node, stream=NAME, **options)
    writer = source.writeStream.foreachBatch(keep).option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination(300)
    except Exception as error:
        return seen, str(error)
    return seen, None


@pytest.mark.parametrize("scope_too", [True, False])
def test_checkpoint_of_an_earlier_stream_is_refused_or_left_with_a_warning(spark, node, client, tmp_path, scope_too):
    make(client, "old", 50)
    seen, error = run(spark, node, tmp_path)
    assert (len(seen), error) == (50, None)
    if scope_too:
        client.delete_scope("again", recursive=True)
    else:
        client.delete_stream(NAME, seal=True)
    make(client, "new", 200)
    seen, error = run(spark, node, tmp_path)
    assert seen == []
    assert "was deleted and made again, with any unread events" in error
    assert "failOnDataLoss" in error
    seen, error = run(spark, node, tmp_path, failOnDataLoss="false")
    assert error is None
    assert sorted(seen) == sorted(f"new {number}" for number in range(200))
    # The checkpoint is about the new stream now.
    with client.writer(NAME) as writer:
        writer.write("new 200")
    assert run(spark, node, tmp_path) == (["new 200"], None)
    client.delete_scope("again", recursive=True)
