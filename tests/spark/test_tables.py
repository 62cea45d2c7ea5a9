"""Metadata, key-value tables and SQL in a real Spark against a real node."""

from __future__ import annotations

import threading

import pytest
from pyspark.errors import PySparkException

import sarit
from sarit.core.errors import Invalid, NotFound
from sarit.spark.tables.catalog import register
from tests.nodes import RunningNode
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.timeout(900), SPARK_MAY_BE_SLOW]


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@pytest.fixture
def client(node):
    with sarit.connect(node.controller) as client:
        for scope in ("shop", "other"):
            client.create_scope(scope)
            client.delete_scope(scope, recursive=True)
            client.create_scope(scope)
        yield client


def read(spark, node, **options):
    return spark.read.format("sarit").option("controller", node.controller).options(**options).load()


def write(frame, node, table, **options):
    frame.write.format("sarit").options(controller=node.controller, table=table, **options).mode("append").save()


def fill(client, stream, numbers):
    with client.writer(stream) as writer:
        for n in numbers:
            writer.write(f"{n % 5},{n}", key=str(n % 5))


def test_streams_and_segments_show_a_scaled_stream(spark, node, client):
    client.create_stream("shop/orders", segments=2, tags=["a", "b"])
    client.create_stream("other/quiet")
    fill(client, "shop/orders", range(100))
    client.update_stream("shop/orders", segments=3)
    client.stream("shop/orders").scale(3)
    fill(client, "shop/orders", range(100))
    rows = {row.stream: row for row in read(spark, node, metadata="streams").collect()}
    assert rows.keys() == {"orders", "quiet"}
    orders = rows["orders"]
    assert (orders.scope, orders.segments, orders.epochs, sorted(orders.tags)) == ("shop", 3, 2, ["a", "b"])
    assert (orders.scaling, orders.min_segments, orders.sealed, orders.retention) == ("fixed", 3, False, "none")
    segments = read(spark, node, metadata="segments", stream="shop/orders")
    assert segments.agg({"bytes": "sum"}).first()[0] == orders.bytes > 0
    found = segments.orderBy("epoch", "key_low").collect()
    assert [(row.epoch, row.active, row.sealed) for row in found] == [(0, False, True)] * 2 + [(1, True, False)] * 3
    assert [row.key_low for row in found if row.active] == pytest.approx([0, 1 / 3, 2 / 3])
    assert {row.node for row in found} == {node.store}
    assert [row.stream for row in read(spark, node, metadata="streams", scope="other").collect()] == ["quiet"]


def test_groups_show_readers_and_their_lag(spark, node, client):
    client.create_stream("shop/orders", segments=2)
    fill(client, "shop/orders", range(100))
    group = client.reader_groups.create("shop/consumers", "shop/orders")
    frame = read(spark, node, metadata="groups", scope="shop")
    assert frame.agg({"lag_bytes": "sum"}).first()[0] == group.unread_bytes() > 0
    with group.reader("one") as reader:
        assert len([reader.read(60) for _ in range(100)]) == 100
        assert {(row.group, row.reader, row.state) for row in frame.collect()} == {("consumers", "one", "assigned")}
    # Leaving, the reader has reported what it has read.
    assert frame.agg({"lag_bytes": "sum"}).first()[0] == 0
    assert {(row.reader, row.state) for row in frame.collect()} == {(None, "unassigned")}


def test_heat_shows_the_segment_that_is_written(spark, node, client):
    client.create_stream("shop/busy", segments=2)
    client.create_stream("shop/idle")
    with client.writer("shop/busy") as writer:
        frame = read(spark, node, metadata="heat", scope="shop", sampleSeconds=1)
        done = threading.Event()

        def keep_writing():
            while not done.wait(0.01):
                writer.write("x" * 1000, key="one key")

        thread = threading.Thread(target=keep_writing)
        thread.start()
        try:
            rows = frame.collect()
        finally:
            done.set()
            thread.join()
    fractions = sorted((row.share for row in rows if row.stream == "busy"), reverse=True)
    assert fractions == [1.0, 0.0]
    assert [row.bytes_per_second for row in rows if row.stream == "idle"] == [0.0]


def test_table_is_read_by_partitions_and_changed_by_keys(spark, node, client):
    client.tables.create("shop/stock", primary_key_bytes=4, secondary_key_bytes=1, partitions=3)
    goods = spark.range(1000).selectExpr("lpad(id % 100, 4, '0') key", "cast(id % 10 as string) secondary_key", "id")
    write(goods.selectExpr("key", "secondary_key", "cast(id as string) value").coalesce(1), node, "shop/stock")
    frame = read(spark, node, table="shop/stock")
    assert frame.columns == ["key", "secondary_key", "value", "version"]
    assert frame.rdd.getNumPartitions() == 3
    found = {(row.k, row.s): row.v for row in frame.selectExpr(
        "cast(key as string) k", "cast(secondary_key as string) s", "cast(value as string) v").collect()}  # fmt: skip
    assert found == {(f"{n % 100:04}", f"{n % 10}"): str(n) for n in range(900, 1000)}
    text = spark.read.format("sarit").schema("key string, value string").option("controller", node.controller)
    rows = text.option("table", "shop/stock").load().where("key < '0010'")
    assert sorted(rows.collect()) == [(f"{n:04}", str(900 + n)) for n in range(10)]
    write(rows.selectExpr("key", "right(key, 1) secondary_key"), node, "shop/stock", writeMode="delete")
    assert frame.count() == 90


def test_insert_fails_for_a_key_with_another_value_and_accepts_its_own(spark, node, client):
    rows = spark.range(10).selectExpr("lpad(id, 4, '0') key", "cast(id as string) value")
    for _ in range(2):  # the second is what a repeated task does
        write(rows, node, "shop/new", writeMode="insert", createTable=True, primaryKeyBytes=4, tablePartitions=2)
    assert client.table("shop/new").config().partitions == 2
    with pytest.raises(PySparkException, match="exists with another value"):
        write(rows.selectExpr("key", "'other' value"), node, "shop/new", writeMode="insert")
    assert read(spark, node, table="shop/new").where("value = 'other'").count() == 0


def test_micro_batches_that_run_again_leave_a_table_as_it_is(spark, node, client, tmp_path):
    client.create_stream("shop/orders", segments=2)
    client.tables.create("shop/totals", primary_key_bytes=1)
    fill(client, "shop/orders", range(100))
    orders = spark.readStream.format("sarit").options(controller=node.controller, stream="shop/orders").load()
    totals = orders.selectExpr("split(cast(event as string), ',')[0] key").groupBy("key").count()
    rows = totals.selectExpr("key", "cast(count as string) value")

    def run(checkpoint):
        writer = rows.writeStream.format("sarit").outputMode("complete")
        writer = writer.options(controller=node.controller, table="shop/totals", checkpointLocation=str(checkpoint))
        query = writer.start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return {entry.key: entry.value for entry in client.table("shop/totals").scan()}

    assert run(tmp_path / "one") == {str(n).encode(): b"20" for n in range(5)}
    fill(client, "shop/orders", range(50))
    assert run(tmp_path / "one") == {str(n).encode(): b"30" for n in range(5)}
    assert run(tmp_path / "two") == {str(n).encode(): b"30" for n in range(5)}, "all again, from another checkpoint"


def test_views_of_a_scope_join_streams_tables_and_files(spark, node, client, tmp_path):
    client.create_stream("shop/orders", segments=2)
    client.create_stream("shop/card-payments")
    client.tables.create("shop/customers", primary_key_bytes=1)
    fill(client, "shop/orders", range(20))
    fill(client, "shop/card-payments", range(0, 20, 2))
    client.table("shop/customers").put_many((str(n), f"customer {n}") for n in range(5))
    spark.range(5).selectExpr("cast(id as string) id", "'street ' || id street").write.parquet(str(tmp_path / "p"))
    spark.read.parquet(str(tmp_path / "p")).createOrReplaceTempView("addresses")
    views = register(spark, "shop", {"controller": node.controller})
    assert views == ["shop_card_payments", "shop_customers", "shop_orders"]
    assert [row.col_name for row in spark.sql("DESCRIBE shop_orders").collect()][:2] == ["event", "scope"]
    joined = spark.sql("""
        WITH o AS (SELECT split(cast(event AS string), ',') e FROM shop_orders),
             p AS (SELECT split(cast(event AS string), ',') e FROM shop_card_payments)
        SELECT o.e[1] number, cast(c.value AS string) name, a.street, p.e[1] IS NOT NULL paid
        FROM o JOIN shop_customers c ON cast(c.key AS string) = o.e[0] JOIN addresses a ON a.id = o.e[0]
               LEFT JOIN p ON p.e[1] = o.e[1]""")
    assert sorted((int(r.number), r.name, r.street, r.paid) for r in joined.collect()) == [
        (n, f"customer {n % 5}", f"street {n % 5}", n % 2 == 0) for n in range(20)
    ]
    where = f"controller '{node.controller}', stream 'shop/orders'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW mine USING sarit OPTIONS ({where})")
    assert spark.sql("SELECT count(*) FROM mine").first()[0] == 20
    with pytest.raises(PySparkException, match="scope absent does not exist"):
        register(spark, "absent", {"controller": node.controller})
    with pytest.raises(NotFound, match="no streams"):
        register(spark, "other", {"controller": node.controller})
    client.create_stream("shop/card.payments")
    with pytest.raises(Invalid, match="would both be the view shop_card_payments"):
        register(spark, "shop", {"controller": node.controller})


def test_streaming_views_join_two_streams_and_a_table(spark, node, client, tmp_path):
    client.create_stream("shop/orders", segments=2)
    client.create_stream("shop/payments")
    client.tables.create("shop/customers", primary_key_bytes=1)
    client.table("shop/customers").put_many((str(n), f"customer {n}") for n in range(5))
    fill(client, "shop/orders", range(20))
    fill(client, "shop/payments", range(0, 20, 2))
    settings = {"controller": node.controller}
    assert register(spark, "shop", settings, streaming=True) == ["shop_orders", "shop_payments"]
    read(spark, node, table="shop/customers").createOrReplaceTempView("customers")
    joined = spark.sql("""
        SELECT o.event, cast(c.value AS string) name FROM shop_orders o JOIN shop_payments p ON o.event = p.event
        JOIN customers c ON cast(c.key AS string) = left(cast(o.event AS string), 1)""")
    query = joined.writeStream.format("memory").queryName("paid").start()
    try:
        query.processAllAvailable()
        fill(client, "shop/payments", [1])
        query.processAllAvailable()
    finally:
        query.stop()
    found = sorted(int(row.event.decode().partition(",")[2]) for row in spark.table("paid").collect())
    assert found == [0, 1, *range(2, 20, 2)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"metadata": "nothing"}, "give streams or segments"),
        ({"metadata": "streams", "scop": "shop"}, "did you mean scope"),
        ({"metadata": "streams", "stream": "shop/none"}, "shop/none"),
        ({"metadata": "streams", "stream": "shop/a", "scope": "other"}, "not both"),
        ({"table": "shop/none"}, "does not exist"),
        ({"table": "shop/none", "stream": "shop/a"}, "not both"),
    ],
)
def test_wrong_options_are_reported(spark, node, client, options, text):
    with pytest.raises(PySparkException, match=text):
        read(spark, node, **options).collect()


def test_writes_that_cannot_be_are_refused(spark, node, client):
    client.tables.create("shop/stock", primary_key_bytes=4)
    rows = spark.sql("SELECT 'abcd' key, 'x' value")
    for frame, options, text in (
        (rows.select("key"), {}, "no column value"),
        (rows.selectExpr("key", "value", "'y' secondary_key"), {}, "no secondary keys"),
        (rows.selectExpr("'abc' key", "value"), {}, "4 bytes, not 3"),
        (rows.selectExpr("key", "cast(null as string) value"), {}, "no nulls"),
        (rows, {"writeMode": "replace"}, "upsert or insert or delete"),
        (rows, {"createTable": True}, "primaryKeyBytes"),
    ):
        with pytest.raises(PySparkException, match=text):
            write(frame, node, "shop/stock", **options)
    with pytest.raises(PySparkException, match="read in batches"):
        spark.readStream.format("sarit").options(
            controller=node.controller, table="shop/stock"
        ).load().writeStream.format("noop").start().processAllAvailable()
    assert read(spark, node, table="shop/stock").count() == 0
