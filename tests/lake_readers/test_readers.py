"""Engines read the table of a stream while it is committed to: each answer is what the stream has up to one commit.

Over a directory by a SQLite catalog: PyIceberg, DuckDB, Spark (by the catalog, and by numbered metadata), Presto.  Over
S3 by a REST catalog: PyIceberg, Spark, Trino."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pyarrow.compute as pc
import pytest

import sarit
from sarit.lake.catalogs import Catalogs
from sarit.lake.settings import IcebergSettings
from tests.contract.s3 import s3_server
from tests.lake_readers import engines
from tests.lake_readers.committed_stream import AFTER_EVOLUTION, DAMAGED, EVOLVES_AT, QUESTION, CommittedStream
from tests.nodes import RunningNode
from tests.spark import matrix

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

ROUNDS = 24
EVENTS = 500  # of a round
TOTAL = ROUNDS * EVENTS
SCALES = {5: 5, 14: 7}  # round -> segments


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


class PyIcebergReader:
    """PyIceberg itself, which has no SQL."""

    def __init__(self, stream: CommittedStream) -> None:
        self._stream = stream

    def question(self) -> tuple[int, ...]:
        rows = self._stream.table().scan().to_arrow()
        sarit = rows["sarit"].combine_chunks()
        offsets = sarit.field("offset").to_numpy() % 100003
        sums = [pc.sum(rows[name]).as_py() for name in ("n", "small")]
        length = pc.sum(pc.utf8_length(rows["text"])).as_py()
        given = [len(rows) - sarit.field(name).null_count for name in ("key", "time")]
        return (len(rows), *sums, length, int(offsets.sum()), *given)


class SqlReader:
    """An engine with SQL; `table`: as it calls the table."""

    def __init__(self, engine: Any, table: str, *, quote: str = '"', first: int = 1) -> None:
        self.engine, self._table, self._quote, self._first = engine, table, quote, first

    def ask(self, sql: str) -> list[Any]:
        found = sql.format(table=self._table, first=self._first, evolves_at=EVOLVES_AT)
        return [tuple(row) for row in self.engine.ask(found.replace('"', self._quote))]

    def question(self) -> tuple[int, ...]:
        (row,) = self.ask(QUESTION)
        return tuple(int(value or 0) for value in row)


def written(stream: CommittedStream) -> None:
    """Write, scale and evolve; each round when the one before is in the table."""
    for number in range(ROUNDS):
        if number * EVENTS == EVOLVES_AT:
            stream.evolve()
        stream.write(range(number * EVENTS, (number + 1) * EVENTS))
        stream.wait_for_rows()
        if number in SCALES:
            stream.scale(SCALES[number])
    stream.stop()


def follow(stream: CommittedStream, readers: dict[str, Any]) -> None:
    """Let each reader ask again and again while the stream is written.  In the end each has read everything."""
    answers: dict[str, list[tuple[int, ...]]] = {name: [] for name in readers}
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(written, stream)
        stream.wait_for_rows()
        while not writing.done():
            for name, reader in readers.items():
                answers[name].append(reader.question())
        writing.result()
    states = stream.states()
    assert states[-1][0] == TOTAL - stream.damaged
    for name, found in answers.items():
        places = [states.index(answer) for answer in found]  # ValueError: it has read what the table never had
        assert places == sorted(places), name
        assert len(set(places)) >= 3, (name, places)
        assert readers[name].question() == states[-1], name
        print(f"{name}: {len(found)} answers of {len(set(places))} of {len(states)} states, then all", flush=True)


def check_evolution(reader: SqlReader) -> None:
    """The columns that came later, and a filter on a value; the widened column has old and new values."""
    later = [n for n in range(EVOLVES_AT, TOTAL) if n % DAMAGED != DAMAGED - 1]
    ((twice, count, low, high, weights),) = reader.ask(AFTER_EVOLUTION)
    assert (int(twice), int(count)) == (2 * sum(later), len(later))
    assert (int(low), int(high)) == (later[0] + (1 << 40), later[-1] + (1 << 40))
    assert float(weights) == sum(later) / 2


def test_table_in_a_directory_is_read_by_all(node, tmp_path):
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    database = f"{warehouse}/catalog.db"
    catalogs = Catalogs({"lake": {"type": "sql", "uri": f"sqlite:///{database}", "warehouse": f"file://{warehouse}"}})
    settings = IcebergSettings("lake.shop.orders", interval_seconds=1, naive_times=True, numbered_metadata=True)
    by_catalog = {
        "type": "jdbc", "uri": f"jdbc:sqlite:{database}", "warehouse": f"file://{warehouse}",
        "jdbc.schema-version": "V1", "cache-enabled": "false",
    }  # fmt: skip
    by_directory = {"type": "hadoop", "warehouse": f"file://{warehouse}", "cache-enabled": "false"}
    presto = {
        "connector.name": "iceberg", "iceberg.catalog.type": "HADOOP",
        "iceberg.catalog.warehouse": f"file://{warehouse}",
    }  # fmt: skip
    with ExitStack() as stack:
        spark = engines.spark({"lake": by_catalog, "directory": by_directory})
        stack.callback(spark.stop)
        duckdb = engines.duckdb()
        stack.callback(duckdb.stop)
        server = engines.SqlServer(tmp_path / "presto", {"lake": presto})
        stack.callback(server.stop)
        assert spark.ask("SELECT 1") == [[1]]
        stream = CommittedStream(node.controller, "shop/orders", catalogs, settings)
        sql = {
            "presto": SqlReader(server, "lake.shop.orders"),
            "duckdb": SqlReader(duckdb, f"iceberg_scan('{warehouse}/shop/orders')"),
            "spark": SqlReader(spark, "lake.shop.orders", quote="`", first=0),
            "spark by numbers": SqlReader(spark, "directory.shop.orders", quote="`", first=0),
        }
        follow(stream, {"pyiceberg": PyIcebergReader(stream), **sql})
        for name, reader in sql.items():
            check_evolution(reader)
            table = reader._table.replace("orders", "orders__dlq")
            assert reader.ask(f'SELECT count(*) FROM {table} WHERE "offset" >= 0') == [(stream.damaged,)], name


def test_table_on_s3_is_read_by_way_of_a_rest_catalog(node, tmp_path):
    with ExitStack() as stack:
        s3 = stack.enter_context(s3_server(tmp_path / "s3"))
        access, secret = (s3.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
        java_s3 = {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.endpoint": s3.endpoint, "s3.path-style-access": "true",
            "s3.access-key-id": access, "s3.secret-access-key": secret, "client.region": "us-east-1",
        }  # fmt: skip
        rest = engines.RestCatalog(tmp_path, f"s3://{s3.bucket}/warehouse", java_s3)
        stack.callback(rest.stop)
        python_s3 = {name: java_s3[name] for name in ("s3.endpoint", "s3.access-key-id", "s3.secret-access-key")}
        catalogs = Catalogs({"lake": {"type": "rest", "uri": rest.uri, "s3.region": "us-east-1", **python_s3}})
        spark = engines.spark({"lake": {"type": "rest", "uri": rest.uri, "cache-enabled": "false", **java_s3}})
        stack.callback(spark.stop)
        trino = {
            "connector.name": "iceberg", "iceberg.catalog.type": "rest", "iceberg.rest-catalog.uri": rest.uri,
            "fs.native-s3.enabled": "true", "s3.endpoint": s3.endpoint, "s3.region": "us-east-1",
            "s3.path-style-access": "true", "s3.aws-access-key": access, "s3.aws-secret-key": secret,
        }  # fmt: skip
        server = engines.SqlServer(tmp_path / "trino", {"lake": trino}, trino=True)
        stack.callback(server.stop)
        assert spark.ask("SELECT 1") == [[1]]
        stream = CommittedStream(
            node.controller, "rest/orders", catalogs, IcebergSettings("lake.rest.orders", interval_seconds=1)
        )
        sql = {
            "trino": SqlReader(server, "lake.rest.orders"),
            "spark": SqlReader(spark, "lake.rest.orders", quote="`", first=0),
        }
        follow(stream, {"pyiceberg": PyIcebergReader(stream), **sql})
        for name, reader in sql.items():
            check_evolution(reader)
            table = reader._table.replace("orders", "orders__dlq")
            assert reader.ask(f'SELECT count(*) FROM {table} WHERE "offset" >= 0') == [(stream.damaged,)], name


def test_sparks_own_sink_writes_each_micro_batch_once(node, tmp_path):
    """Spark dies after Iceberg's commit of a micro-batch, and before it notes it: the micro-batch is repeated."""
    with sarit.connect(node.controller) as client:
        client.create_scope("sink")
        client.create_stream("sink/numbers", segments=2)
    python = matrix.installed(engines.SPARK)
    arguments = (f"file://{tmp_path}/warehouse", str(tmp_path / "checkpoint"), engines.jars())
    command = [str(python), "-m", "tests.lake_readers.spark_sink_child", node.controller, "sink/numbers", *arguments]

    def run(numbers):
        with sarit.connect(node.controller) as client, client.writer("sink/numbers") as writer:
            for number in numbers:
                writer.write(str(number), key=str(number % 7))
        done = subprocess.run(
            command, env=matrix.environment(python), capture_output=True, text=True, timeout=600, check=False,
            cwd=matrix.ROOT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return [int(text) for text in done.stdout.split()]

    assert run(range(1000)) == [1000, 1000, sum(range(1000))]
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    assert run(range(1000, 1500)) == [1500, 1500, sum(range(1500))]
