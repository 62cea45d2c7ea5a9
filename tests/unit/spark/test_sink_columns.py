"""Rows of a write to events of streams, and the rows that are refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from sarit.core.errors import Invalid
from sarit.spark.formats.options import parse_formats
from sarit.spark.sink.columns import LARGEST_EVENT_BYTES, RowsToEvents
from sarit.spark.sink.options import parse_write


def rows_to_events(columns, **options):
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    return RowsToEvents(schema, parse_write(options), parse_formats(options))


def batch(**columns):
    return pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})


def parts(made, rows, first_row=0):
    return [
        (stream, events.to_pylist(), keys and keys.to_pylist())
        for stream, events, keys in made.parts(rows, 3, first_row)
    ]


def test_rows_of_one_stream_keep_their_order():
    made = rows_to_events({"event": BinaryType(), "routing_key": StringType()}, stream="s/a")
    rows = batch(event=[b"1", b"2", b"3"], routing_key=["x", None, "x"])
    assert parts(made, rows) == [("s/a", [b"1", b"2", b"3"], ["x", None, "x"])]


def test_column_names_the_stream_of_each_row():
    made = rows_to_events({"event": StringType(), "stream": StringType()}, scope="s")
    rows = batch(event=["1", "2", "3", "4"], stream=["a", "t/b", "a", "s/a"])
    assert parts(made, rows) == [
        ("s/a", [b"1", b"3"], None),
        ("t/b", [b"2"], None),
        ("s/a", [b"4"], None),
    ]


def test_row_without_stream_goes_to_that_of_the_option():
    made = rows_to_events({"event": StringType(), "stream": StringType()}, stream="s/rest")
    rows = batch(event=["1", "2", "3"], stream=["a", None, None])
    assert parts(made, rows) == [("s/a", [b"1"], None), ("s/rest", [b"2", b"3"], None)]


def test_routing_key_is_of_the_column_that_the_option_names():
    made = rows_to_events({"event": StringType(), "who": StringType()}, stream="s/a", routingKey="who")
    assert parts(made, batch(event=["1"], who=["x"])) == [("s/a", [b"1"], ["x"])]


def test_no_rows_are_no_parts_of_streams_by_column():
    made = rows_to_events({"event": StringType(), "stream": StringType()}, scope="s")
    assert (
        parts(
            made, pa.RecordBatch.from_pydict({"event": pa.array([], pa.string()), "stream": pa.array([], pa.string())})
        )
        == []
    )


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (batch(event=["1", "2", None], stream=["a", "b", "b"]), "row 12 of partition 3 has a null event"),
        (batch(event=["1", "2", "3"], stream=["a", None, "b"]), "row 11 of partition 3 has no stream"),
        (
            batch(event=["1", "2", "x" * (LARGEST_EVENT_BYTES + 1)], stream=["a", "b", "b"]),
            f"row 12 of partition 3 has an event of {LARGEST_EVENT_BYTES + 1} bytes.*at most {LARGEST_EVENT_BYTES}",
        ),
    ],
)  # fmt: skip
def test_wrong_row_is_named(rows, text):
    made = rows_to_events({"event": StringType(), "stream": StringType()}, scope="s")
    with pytest.raises(Invalid, match=text):
        parts(made, rows, first_row=10)


def test_stream_without_scope_is_refused():
    made = rows_to_events({"event": StringType(), "stream": StringType()}, stateTable="s/state")
    with pytest.raises(Invalid, match="no scope"):
        parts(made, batch(event=["1"], stream=["a"]))


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ({"event": IntegerType()}, {"stream": "s/a"}, "event int"),
        ({"word": StringType()}, {"stream": "s/a"}, "word"),
        ({"event": StringType(), "stream": IntegerType()}, {"stream": "s/a"}, "column stream int"),
        ({"event": StringType()}, {"scope": "s"}, "which stream"),
        ({"event": StringType()}, {"stream": "s/a", "routingKey": "who"}, "no column who"),
        ({"event": StringType(), "routing_key": IntegerType()}, {"stream": "s/a"}, "routing_key int"),
    ],
)
def test_wrong_columns_are_refused(columns, options, text):
    with pytest.raises(Invalid, match=text):
        rows_to_events(columns, **options)
