"""What a read of a stream's Iceberg table and the stream's tail plans, and the errors that it names."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from sarit.core.cuts import StreamCut, to_text
from sarit.core.errors import Invalid, NotFound, Truncated
from sarit.core.names import StreamName
from sarit.lake import cuts
from sarit.lake.cuts import Snapshot
from sarit.lake.ports import TableView
from sarit.lake.problems import TableProblem
from sarit.spark.iceberg.options import is_view, parse_view, refuse_view
from sarit.spark.iceberg.planning import planned
from sarit.spark.iceberg.reader import fitted_tail
from sarit.spark.iceberg.values import tail_columns, widest
from sarit.spark.source.options import parse_read
from sarit.spark.source.ranges import Range
from tests.unit.spark.fake_stream import LEFT, RIGHT, A, B, FakeStream, S

NAME = "lake.shop.orders"
OPTIONS = parse_read({"stream": "s/t"})
SCHEMA = pa.schema([("sarit", pa.struct([("segment", pa.int64())])), ("value", pa.binary())])


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


def committed(stream: FakeStream, position: dict, *, number: int = 1, **properties: str) -> TableView:
    """A table whose newest snapshot holds what is below a position."""
    text = to_text(StreamCut(stream.stream, position))
    marks = {cuts.COMMIT: f"c{number}"}
    summary = {**marks, cuts.CUT_TO: text, cuts.INGESTED: str(1000 * number)}
    stated = {
        cuts.FORMAT: cuts.TABLE_FORMAT, cuts.STREAM: "s/t", cuts.STREAM_ID: bytes(16).hex(), cuts.CUT: text, **marks,
    }  # fmt: skip
    return TableView("u", 2, number, [Snapshot(number, None, summary, number)], {**stated, **properties}, SCHEMA, "")


def parts(plan):
    return [part for group in plan.tail for part in group]


def test_tail_begins_exactly_at_the_cut_of_the_snapshot(stream):
    stream.events |= {A: [10, 10], B: [10, 10]}
    table = committed(stream, {A: 10, B: 20}, number=3)
    plan = planned(NAME, OPTIONS, lambda: table, stream)
    assert plan.table is table
    assert parts(plan) == [Range(S, A, 10, 20)]
    assert plan.ingested_ms == 3000


def test_tail_goes_on_in_the_segments_of_a_scale(stream):
    stream.events |= {A: [10], B: [10, 10]}
    table = committed(stream, {A: 10, B: 10})
    stream.split_b()
    stream.events |= {LEFT: [5], RIGHT: [7]}
    plan = planned(NAME, OPTIONS, lambda: table, stream)
    assert parts(plan) == [Range(S, B, 10, 20), Range(S, LEFT, 0, 5), Range(S, RIGHT, 0, 7)]


def test_table_that_has_everything_leaves_no_tail(stream):
    stream.events |= {A: [10], B: [10]}
    assert not planned(NAME, OPTIONS, lambda: committed(stream, {A: 10, B: 10}), stream).tail


def test_snapshots_of_others_have_the_cut_of_their_ancestor(stream):
    stream.events |= {A: [10, 10], B: []}
    table = committed(stream, {A: 10, B: 0})
    compacted = replace(table, head=2, snapshots=[*table.snapshots, Snapshot(2, 1, {"operation": "replace"}, 2)])
    assert parts(planned(NAME, OPTIONS, lambda: compacted, stream)) == [Range(S, A, 10, 20)]


def test_tail_that_was_truncated_is_found_in_a_later_snapshot(stream):
    stream.events |= {A: [10, 10, 10], B: []}
    stream.starts[A] = 20
    tables = [committed(stream, {A: 10, B: 0}), committed(stream, {A: 20, B: 0}, number=2)]
    plan = planned(NAME, OPTIONS, lambda: tables.pop(0), stream)
    assert plan.table.head == 2
    assert parts(plan) == [Range(S, A, 20, 30)]


def test_tail_that_was_truncated_and_committed_nowhere_is_named(stream):
    stream.events |= {A: [10, 10, 10], B: []}
    stream.starts[A] = 20
    table = committed(stream, {A: 10, B: 0})
    with pytest.raises(
        Truncated, match=r"truncated above what table lake.shop.orders has: those events are in neither"
    ):
        planned(NAME, OPTIONS, lambda: table, stream)
    # What is allowed to be lost is not missed.
    allowed = replace(OPTIONS, fail_on_data_loss=False)
    assert parts(planned(NAME, allowed, lambda: table, stream)) == [Range(S, A, 20, 30)]
    del stream.events[A]
    with pytest.raises(NotFound, match="truncated above what table"):
        planned(NAME, OPTIONS, lambda: table, stream)


@pytest.mark.parametrize(
    ("properties", "name", "text"),
    [
        ({cuts.STREAM_ID: "ab" * 16}, "other-stream", "is the table of s/t, or of one of this name that was deleted"),
        ({cuts.STREAM_ID: "ab" * 16, cuts.STREAM: "a/b"}, "other-stream", "is the table of a/b, not of s/t"),
        ({cuts.FORMAT: "2"}, "foreign-table", "newer version"),
    ],
)
def test_table_of_another_stream_is_refused(stream, properties, name, text):
    with pytest.raises(TableProblem, match=text) as refused:
        planned(NAME, OPTIONS, lambda: committed(stream, {A: 0, B: 0}, **properties), stream)
    assert refused.value.name == name


def test_table_of_no_stream_and_one_without_a_commit_are_refused(stream):
    table = committed(stream, {A: 0, B: 0})
    with pytest.raises(TableProblem, match="is not the table of a stream"):
        planned(NAME, OPTIONS, lambda: replace(table, properties={}), stream)
    new = {name: value for name, value in table.properties.items() if name not in (cuts.CUT, cuts.COMMIT)}
    with pytest.raises(Invalid, match="no commit of s/t yet"):
        planned(NAME, OPTIONS, lambda: replace(table, head=None, snapshots=[], properties=new), stream)


@pytest.fixture
def catalogs(tmp_path) -> str:
    file = tmp_path / "catalogs.toml"
    file.write_text('[lake]\nuri = "sqlite:////tmp/x.db"\n')
    file.chmod(0o600)
    return str(file)


def test_options_name_the_table_and_its_catalog(catalogs):
    given = {"stream": "s/t", "Iceberg": NAME, "icebergCatalogs": catalogs, "minPartitions": "3"}
    found = parse_view(given)
    assert (found.catalog, found.identifier, found.read.min_partitions) == ("lake", ("shop", "orders"), 3)
    assert is_view(given)
    with pytest.raises(Invalid, match=r"option iceberg is for spark\.read"):
        refuse_view(given)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"start": "tail"}, "option start has no meaning with iceberg"),
        ({"format": "json"}, "option format has no meaning with iceberg"),
        ({"iceberg": "orders"}, "is not CATALOG.NAMESPACE.TABLE"),
        ({"streams": "a/b"}, "give one"),
        ({"icebergTable": "x"}, "unknown option icebergTable"),
        ({"icebergCatalogs": "/nowhere"}, "option icebergCatalogs"),
    ],
)
def test_wrong_options_are_named(catalogs, more, text):
    with pytest.raises(Invalid, match=text):
        parse_view({"stream": "s/t", "iceberg": NAME, "icebergCatalogs": catalogs, **more})


def test_catalogs_are_found_by_the_environment(catalogs, monkeypatch):
    with pytest.raises(Invalid, match="which catalog is lake"):
        parse_view({"stream": "s/t", "iceberg": NAME})
    monkeypatch.setenv("SARIT_CATALOGS", catalogs)
    assert list(parse_view({"stream": "s/t", "iceberg": NAME}).catalogs) == ["lake"]


def test_tail_is_decoded_into_the_columns_of_the_table():
    stream = StreamName("s", "t")
    plain = tail_columns(NAME, pa.schema([("value", pa.binary())]), stream, {}, None)
    assert plain.schema.names == ["value"]
    values = pa.schema([("n", pa.int32()), ("at", pa.timestamp("us")), ("l", pa.list_(pa.float32()))])
    assert widest(values).types[:2] == [pa.int64(), pa.timestamp("us", tz="UTC")]
    read = tail_columns(NAME, values, stream, {}, None).read(pa.array([b'{"n": 5000000000}', b"{"]))
    assert read.columns[0].to_pylist()[0] == 5_000_000_000
    assert list(read.bad) == [False, True]
    with pytest.raises(Invalid, match=r'give .option\("schemaRegistry"'):
        tail_columns(NAME, values, stream, {"schema-header": "confluent"}, None)


def test_values_that_need_wider_columns_are_named():
    found = pa.record_batch([pa.array([1, 5_000_000_000])], names=["n"])
    assert fitted_tail(NAME, found.slice(0, 1), pa.schema([("n", pa.int32())])).column(0).to_pylist() == [1]
    with pytest.raises(Invalid, match="above what table lake.shop.orders has need wider columns"):
        fitted_tail(NAME, found, pa.schema([("n", pa.int32())]))
