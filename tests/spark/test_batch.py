"""Batch reads of `format("sarit")` in a real Spark: places, several streams, partitions, filters, wrong input."""

from __future__ import annotations

import json
import time

import pytest

import sarit
import sarit.spark
from benchmarks.peers.ports import free_ports
from sarit.core.names import SegmentId
from tests.nodes import RunningNode
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.timeout(900), SPARK_MAY_BE_SLOW]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
MIB = 1 << 20


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@pytest.fixture(scope="module")
def client(node):
    with sarit.connect(node.controller) as client:
        yield client


@pytest.fixture
def scope(client):
    """A scope of its own for each run of a test."""
    name = f"s{time.monotonic_ns()}"
    client.create_scope(name)
    return name


@pytest.fixture
def load(spark, node):
    """Read with options; `columns`: a schema."""

    def make(columns=None, **given):
        reader = spark.read.format("sarit").options(**{"controller": node.controller, **given})
        return (reader.schema(columns) if columns else reader).load()

    return make


@pytest.fixture(params=["true", "false"])
def pushdown(spark, request):
    """Both values of Spark's setting."""
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, request.param)
    yield request.param == "true"
    spark.conf.set(PUSHDOWN, before)


def fill(client, stream, numbers, size=0):
    with client.writer(stream) as writer:
        for n in numbers:
            writer.write(f"{n}".ljust(size).encode(), key=str(n % 7))


def numbers(frame):
    return sorted(int(row[0]) for row in frame.selectExpr("trim(cast(event as string))").collect())


def test_places_of_a_read(client, load, scope):
    stream = f"{scope}/places"
    client.create_stream(stream, segments=2)
    fill(client, stream, range(100))
    cut = client.stream_cut_tail(stream)
    client.stream(stream).scale(3)
    fill(client, stream, range(100, 150))
    everything = list(range(150))
    assert numbers(load(stream=stream, start="earliest", end="latest")) == everything
    assert numbers(load(stream=stream, end=str(cut))) == everything[:100]
    assert numbers(load(stream=stream, start=str(cut))) == everything[100:]
    assert load(stream=stream, start="-20").count() == 20
    assert load(stream=stream, start="-120").count() == 120
    assert numbers(load(stream=stream, start="-1000")) == everything
    # Rounded down, to the last recorded cut.
    assert numbers(load(stream=stream, start="-1 hour")) == everything
    both = json.dumps({stream: str(cut)})
    assert numbers(load(streams=stream, start=both)) == everything[100:]


def test_several_streams_and_a_pattern(client, load, scope):
    for name, first in (("logs-1", 0), ("logs-2", 100), ("other", 200)):
        client.create_stream(f"{scope}/{name}", segments=2)
        fill(client, f"{scope}/{name}", range(first, first + 100))
    assert numbers(load(streams="logs-2,other", scope=scope)) == list(range(100, 300))
    frame = load(streamPattern=f"{scope}/logs-.*")
    assert numbers(frame) == list(range(200))
    counts = {row.stream: row["count"] for row in frame.groupBy("stream").count().collect()}
    assert counts == {"logs-1": 100, "logs-2": 100}


def test_partitions_of_a_large_segment(client, load, scope):
    stream = f"{scope}/large"
    client.create_stream(stream, segments=1)
    fill(client, stream, range(4000), size=4000)
    one = load("event binary, offset long", stream=stream)
    many = load("event binary, offset long", stream=stream, minPartitions="5")
    limited = load("event binary, offset long", stream=stream, maxBytesPerPartition=str(4 * MIB))
    assert one.rdd.getNumPartitions() == 1
    assert 5 <= many.rdd.getNumPartitions() <= 8
    assert 4 <= limited.rdd.getNumPartitions() <= 6
    rows = [sorted((row.offset, bytes(row.event)) for row in frame.collect()) for frame in (one, many, limited)]
    assert len(rows[0]) == 4000
    assert rows[0] == rows[1] == rows[2]


def test_bounded_read_is_repeatable_to_the_byte(client, load, scope):
    stream = f"{scope}/repeated"
    client.create_stream(stream, segments=2)
    fill(client, stream, range(200))
    columns = "event binary, segment_id long, offset long, cut string"
    first = load(columns, stream=stream, includeCut="true").collect()
    (cut,) = {row.cut for row in first}
    fill(client, stream, range(200, 300))
    client.stream(stream).scale(3)
    fill(client, stream, range(300, 400))
    assert load(columns, stream=stream, end=cut, includeCut="true").collect() == first
    assert load(stream=stream, includeCut="true").columns[-1] == "cut"
    assert numbers(load(stream=stream, start=cut)) == list(range(200, 400))


def test_frame_has_the_same_events_in_each_query_of_a_session(spark, client, load, scope):
    """A `where` is no new plan: `tail` stays where it was."""
    assert sarit.spark.session().conf.get(PUSHDOWN) == "false"
    stream = f"{scope}/planned"
    client.create_stream(stream, segments=2)
    fill(client, stream, range(50))
    frame = load(stream=stream)
    before = frame.count()
    fill(client, stream, range(50, 60))
    assert (before, frame.where("offset >= 0").count(), frame.count()) == (50, 50, 50)
    assert load(stream=stream).where("offset >= 0").count() == 60


def test_cut_as_end_holds_where_spark_plans_each_where_again(spark, client, load, scope):
    stream = f"{scope}/planned"
    client.create_stream(stream, segments=2)
    fill(client, stream, range(50))
    spark.conf.set(PUSHDOWN, "true")
    try:
        frame = load(stream=stream, end=str(client.stream_cut_tail(stream)))
        before = frame.count()
        fill(client, stream, range(50, 60))
        assert (before, frame.where("offset >= 0").count(), frame.count()) == (50, 50, 50)
    finally:
        spark.conf.unset(PUSHDOWN)


def test_filters_give_the_same_rows_and_read_less(client, load, scope, pushdown):
    for name in ("x", "y"):
        client.create_stream(f"{scope}/{name}", segments=3)
        fill(client, f"{scope}/{name}", range(600), size=100)
    both = f"{scope}/x,{scope}/y"
    rows = load(streams=both).collect()
    second = SegmentId(0, 1).packed
    some = rows[70].offset
    cases = {
        f"segment_id in ({second}, 0) and offset >= {some}": (
            lambda row: row.segment_id in (0, second) and row.offset >= some,
            4,
        ),
        f"offset < {some} and stream like 'y%'": (lambda row: row.offset < some and row.stream == "y", 6),
        f"scope = '{scope}' and stream = 'none'": (lambda row: False, 1),
        "stream = 'x' or segment_id = 0": (lambda row: row.stream == "x" or row.segment_id == 0, 6),
    }
    shared = load(streams=both)
    for condition, (expected, parts) in cases.items():
        filtered = load(streams=both, pushFilters="true").where(condition)
        assert sorted(filtered.collect()) == sorted(filter(expected, rows)), condition
        assert filtered.rdd.getNumPartitions() == (parts if pushdown else 6), condition
        # Without the option a frame may be used many times.
        assert shared.where(condition).count() == len(list(filter(expected, rows))), condition
    assert shared.count() == 1200
    assert shared.where("stream = 'y'").union(shared.where("stream = 'x'")).count() == 1200


def test_search_leaves_the_events_that_a_query_finds(client, load, scope):
    """Tasks of a real Spark search the events; a `where` of Spark's own comes on top."""
    stream = f"{scope}/log"
    client.create_stream(stream, segments=3)
    with client.writer(stream) as writer:
        for number in range(3000):
            level = "error" if number % 100 == 0 else "info"
            writer.write(f'{{"n": {number}, "level": "{level}", "text": "it took {number} ms"}}', key=str(number))
    frame = load("n bigint", stream=stream, format="json", search="level:error", minPartitions="4")
    assert sorted(row.n for row in frame.collect()) == list(range(0, 3000, 100))
    assert frame.where("n >= 2900").count() == 1
    assert load(stream=stream, search='"took 17 ms" OR "took 18 ms"').count() == 2
    with pytest.raises(Exception, match=r"option search, for stream .*: .*levle"):
        load(stream=stream, search="levle:error").count()


def test_sealed_and_empty_streams(client, load, scope):
    client.create_stream(f"{scope}/empty", segments=2)
    assert load(stream=f"{scope}/empty").count() == 0
    assert load(stream=f"{scope}/empty", start="-5").count() == 0
    client.create_stream(f"{scope}/sealed", segments=2)
    fill(client, f"{scope}/sealed", range(50))
    client.stream(f"{scope}/sealed").scale(3)
    fill(client, f"{scope}/sealed", range(50, 60))
    client.seal_stream(f"{scope}/sealed")
    assert numbers(load(stream=f"{scope}/sealed")) == list(range(60))
    assert load(stream=f"{scope}/sealed", start="tail").count() == 0
    assert load(stream=f"{scope}/sealed", start="-15").count() == 15


def test_truncated_data_fails_a_read_or_is_left_out(client, load, scope):
    from pyspark.errors import PySparkException

    stream = f"{scope}/truncated"
    client.create_stream(stream, segments=2)
    fill(client, stream, range(50))
    begin = str(client.stream_cut_head(stream))
    client.truncate_stream(stream, cut=client.stream_cut_tail(stream))
    fill(client, stream, range(50, 70))
    assert numbers(load(stream=stream)) == list(range(50, 70))
    with pytest.raises(PySparkException) as failure:
        load(stream=stream, start=begin).count()
    assert "begins at offset" in first_lines(failure)
    assert 'option("failOnDataLoss", "false")' in first_lines(failure)
    assert numbers(load(stream=stream, start=begin, failOnDataLoss="false")) == list(range(50, 70))


def first_lines(failure):
    """What a user sees of an error first, without the stack traces' frames."""
    lines = [line for line in str(failure.value).splitlines() if not line.startswith("  ")]
    return "\n".join(lines[:3])


def test_wrong_input_is_explained(client, load, scope):
    from pyspark.errors import PySparkException

    for name in ("x", "y"):
        client.create_stream(f"{scope}/{name}", segments=2)
        fill(client, f"{scope}/{name}", range(20))
    x, y = f"{scope}/x", f"{scope}/y"
    tail, head = str(client.stream_cut_tail(x)), str(client.stream_cut_head(x))
    for given, text in (
        ({"stream": f"{scope}/none"}, f"stream {scope}/none does not exist"),
        ({"stream": "x"}, "'x' is not SCOPE/STREAM"),
        ({"streams": f"{x},{scope}/none"}, f"stream {scope}/none does not exist"),
        ({"streamPattern": f"{scope}/z.*"}, f"no stream of scope {scope} matches streamPattern 'z.*': it has 2"),
        ({"streamPattern": "nowhere/z.*"}, "nowhere does not exist"),
        ({"stream": x, "streams": y}, "option stream (or load(...)), streams, streamPattern: give one"),
        ({"stream": y, "start": tail}, f"option start is a cut of {x}, not of {y}"),
        ({"stream": y, "start": json.dumps({x: tail})}, f"option start names {x}, but not {y}"),
        ({"stream": x, "start": tail, "end": head}, "of segment 0.#epoch.0, and end before it, at 0"),
        ({"stream": x, "start": "soon"}, "option start is 'soon': give head (earliest), tail (latest)"),
        ({"stream": x, "minPartition": "3"}, "unknown option minpartition; did you mean minPartitions? known are"),
        ({"stream": x, "minPartitions": "many"}, "option minPartitions is 'many': give a whole number of at least 1"),
        ({"stream": x, "columns": "event string, key long"}, "column key bigint"),
        ({"stream": x, "columns": "event long"}, "column event bigint"),
    ):
        with pytest.raises(PySparkException) as failure:
            load(**given).count()
        assert text in str(failure.value), given
        print(first_lines(failure))


def test_store_away_is_an_error_with_its_address(load):
    from pyspark.errors import PySparkException

    address = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(PySparkException) as failure:
        load(controller=address, stream="a/b", waitSeconds="3").count()
    assert address in str(failure.value)
    assert "waitSeconds" in str(failure.value)
