"""`transformWithState` between Sarit's source and sink: what its state holds goes on exactly over failures and restarts
of the query, and over a scale of its source."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

import sarit
from tests.nodes import RunningNode
from tests.spark.sink_files import read, record_states, registered
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.timeout(900), SPARK_MAY_BE_SLOW]

KEYS = 7
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@pytest.fixture(scope="module")
def client(node):
    with sarit.connect(node.controller) as client:
        client.create_scope("state")
        yield client


@pytest.fixture(autouse=True)
def _empty_scope(client):
    """Each run of a test, a repeated one too, has streams of its own."""
    client.delete_scope("state", recursive=True)
    client.create_scope("state")


def fill(client, numbers):
    with client.writer("state/in") as writer:
        for n in numbers:
            writer.write(str(n), key=str(n % KEYS))


def lines(numbers):
    """What the query must write, in any order: each number with the count and the sum of its key until then, and the
    number of the key before it."""
    totals = defaultdict(lambda: (0, 0, -1))
    for n in numbers:
        count, total, before = totals[n % KEYS]
        totals[n % KEYS] = count + 1, total + n, n
        yield f"{n}:{count + 1}:{total + n}:{before}"


def start(spark, node, directory):
    """Start the query on its checkpoint.  While the file `fails` is there, a task fails that has changed the state of
    one key and is to change that of others."""
    from pyspark.sql import Row
    from pyspark.sql import functions as f
    from pyspark.sql.streaming import StatefulProcessor

    class Totals(StatefulProcessor):
        def init(self, handle):
            self._total = handle.getValueState("total", "count long, total long")
            self._last = handle.getListState("last", "n long")

        def handleInputRows(self, key, rows, timerValues):
            count, total = self._total.get() if self._total.exists() else (0, 0)
            last = [n for (n,) in self._last.get()] if self._last.exists() else []
            for n in sorted(row.n for row in rows):
                count, total = count + 1, total + n
                yield Row(line=f"{n}:{count}:{total}:{last[-1] if last else -1}", key=key[0])
                last = [*last[-1:], n]
            self._total.update((count, total))
            self._last.put([(n,) for n in last])
            if key[0] == "3" and (Path(directory) / "fails").exists():
                raise RuntimeError("after a change of the state")

        def close(self):
            pass

    session = spark.newSession()  # its settings are its own
    session.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
    numbers = (
        session.readStream.format("sarit").schema("event string")
        .options(controller=node.controller, stream="state/in", maxEventsPerTrigger="400").load()
        .select(f.expr("cast(event as long) n"), f.expr(f"cast(cast(event as long) % {KEYS} as string) key"))
    )  # fmt: skip
    return (
        numbers.groupBy("key")
        .transformWithState(Totals(), outputStructType="line string, key string", outputMode="append", timeMode="none")
        .selectExpr("line event", "key routing_key")
        .writeStream.format("sarit").options(controller=node.controller, stream="state/out")
        .option("checkpointLocation", str(directory / "checkpoint")).outputMode("append").start()
    )  # fmt: skip


def run(spark, node, directory):
    """Run until everything that is there is processed.  Returns the numbers of the micro-batches with rows."""
    query = start(spark, node, directory)
    try:
        query.processAllAvailable()
        return [progress["batchId"] for progress in query.recentProgress if progress["numInputRows"]]
    finally:
        query.stop()


def forget_last_commit(directory):
    """Leave the checkpoint as a driver does that dies after the commit of the sink, and before Spark notes it."""
    commits = directory / "checkpoint" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last


def test_state_is_exact_after_failures_restarts_and_a_scale(spark, node, client, tmp_path):
    client.create_stream("state/in", segments=2)
    client.create_stream("state/out", segments=2)
    fill(client, range(1000))
    assert len(run(spark, node, tmp_path)) >= 3
    assert Counter(read(client, "state/out")) == Counter(lines(range(1000)))

    repeated = forget_last_commit(tmp_path)
    client.update_stream("state/in", segments=3)
    fill(client, range(1000, 1800))
    (tmp_path / "fails").touch()
    with pytest.raises(Exception, match="after a change of the state"):
        run(spark, node, tmp_path)
    (tmp_path / "fails").unlink()

    assert run(spark, node, tmp_path)[0] == repeated
    assert Counter(read(client, "state/out")) == Counter(lines(range(1800)))
    assert registered(client, "state/spark-sink") == []
    assert set(record_states(client, "state/spark-sink")) == {"done"}
