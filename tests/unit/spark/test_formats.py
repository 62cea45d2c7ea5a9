"""Columns of plain events and envelopes, both ways; options of formats; schemas that do not fit."""

from __future__ import annotations

import datetime
import pickle
import re

import pyarrow as pa
import pytest

from sarit.core.envelope import Envelope
from sarit.core.errors import Invalid
from sarit.spark.formats.columns import Projection, read_schema
from sarit.spark.formats.encoders import encoder
from sarit.spark.formats.options import parse_formats
from sarit.spark.source.ranges import Range
from tests.unit.spark.fake_stream import B, S
from tests.unit.spark.schemas import schema_of

PART = Range(S, B, 0, 100)
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
FULL = bytes(Envelope("full", key="k", event_time=NOON, headers=[("h", b"v")]))
BARE = bytes(Envelope(b"\xff"))
HEADERS = "array<struct<key:string,value:binary>>"
ENVELOPE = f"key string, event_time timestamp, headers {HEADERS}, payload binary"


def projected(schema, events, **options):
    projection = pickle.loads(pickle.dumps(Projection(schema_of(schema), parse_formats(options))))
    offsets = pa.array(range(0, 8 * len(events), 8), pa.int64())
    return projection.batch(pa.array(events, pa.binary()), offsets, PART)


def rows(schema, events, **options):
    return [tuple(row.values()) for row in projected(schema, events, **options).to_pylist()]


def encoded(schema, data, key_column=None, apart=(), **options):
    made = pickle.loads(
        pickle.dumps(encoder(schema_of(schema), parse_formats(options), key_column=key_column, apart=apart))
    )
    events, keys = made.encode(pa.RecordBatch.from_pydict(data))
    return events.to_pylist(), keys if keys is None else keys.to_pylist()


# -- plain events -----------------------------------------------------------------------------------


def test_plain_events_have_their_place():
    assert read_schema(parse_formats({})).simpleString() == (
        "struct<event:binary,scope:string,stream:string,segment_id:bigint,offset:bigint>"
    )
    wanted = "event binary, scope string, stream string, segment_id bigint, offset bigint"
    assert rows(wanted, [b"a", b"\xff"]) == [(b"a", "s", "t", 1, 0), (b"\xff", "s", "t", 1, 8)]
    assert rows("offset bigint, event string", [b"a"]) == [(0, "a")]


def test_plain_events_are_not_copied():
    events = pa.array([b"abc", b"d"], pa.binary())
    batch = Projection(schema_of("event binary")).batch(events, pa.array([0, 1], pa.int64()), PART)
    assert batch.column("event").buffers()[2].address == events.buffers()[2].address


def test_event_wanted_as_text_that_is_not_utf8_is_named():
    with pytest.raises(
        Invalid, match=re.escape("offset 8 of segment 1.#epoch.0 of s/t is not UTF-8: read column event")
    ):
        rows("event string", [b"a", b"\xff"])


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ("event int", "column event int: reading gives event binary, scope string"),
        ("key string", 'column key string.*need .option\\("format", "json"\\)'),
        ("offset int", "column offset int: reading gives .* offset bigint"),
    ],
)
def test_column_that_plain_events_do_not_have_is_refused(schema, named):
    with pytest.raises(Invalid, match=named):
        Projection(schema_of(schema))


def test_plain_rows_become_events_with_keys():
    assert encoded("event string", {"event": ["a", None]}) == ([b"a", None], None)
    rows = {"event": [b"a", b"b"], "routing_key": ["x", None]}
    assert encoded("event binary, routing_key string", rows) == ([b"a", b"b"], ["x", None])
    rows = {"event": [b"a"], "user": ["x"], "stream": ["s"]}
    assert encoded("event binary, user string, stream string", rows, "user", ["stream"]) == ([b"a"], ["x"])


@pytest.mark.parametrize(
    ("schema", "options", "named"),
    [
        ("evnt binary", {}, "column evnt binary: writing takes event"),
        ("event int", {}, "column event int: writing takes event \\(binary or string\\)"),
        ("routing_key string", {}, "there is no column event"),
        ("event binary, routing_key int", {}, "column routing_key int: a routing key is a string"),
        ("event binary, key string", {}, "column key string.*JSON of them with to_json"),
        ("payload binary, key int", {"envelope": "sarit"}, "column key int: a routing key"),
        ("payload binary, event_time string", {"envelope": "sarit"}, "column event_time string: writing takes payload"),
        ("event binary", {"envelope": "sarit"}, "column event binary: writing takes payload"),
    ],
)
def test_columns_that_a_write_does_not_take_are_refused(schema, options, named):
    with pytest.raises(Invalid, match=named):
        encoder(schema_of(schema), parse_formats(options))


def test_key_column_that_is_missing_is_refused_with_the_columns():
    with pytest.raises(Invalid, match="no column user for the routing key: columns are event, name"):
        encoder(schema_of("event binary, name string"), key_column="user")


# -- envelopes --------------------------------------------------------------------------------------


def test_envelope_gives_its_columns():
    found = read_schema(parse_formats({"envelope": "sarit"}))
    assert found.simpleString().startswith(
        f"struct<key:string,event_time:timestamp,headers:{HEADERS},payload:binary,scope:string"
    )
    assert rows(ENVELOPE, [FULL, BARE], envelope="sarit") == [
        ("k", NOON, [{"key": "h", "value": b"v"}], b"full"),
        (None, None, [], b"\xff"),
    ]
    some = rows("offset bigint, event_time bigint, event binary", [FULL, BARE], envelope="sarit")
    assert some == [(0, 1_767_268_800_000_000, FULL), (8, None, BARE)]


def test_plain_event_among_envelopes_follows_the_mode():
    events = [FULL, b"plain", BARE]
    with pytest.raises(Invalid, match="offset 8 of segment .* is malformed: the event has no envelope.*PERMISSIVE"):
        rows("payload binary", events, envelope="sarit")
    wanted = "offset bigint, payload binary, key string"
    assert rows(wanted, events, envelope="sarit", mode="permissive") == [
        (0, b"full", "k"), (8, None, None), (16, b"\xff", None),
    ]  # fmt: skip
    assert rows(wanted, events, envelope="sarit", mode="DROPMALFORMED") == [(0, b"full", "k"), (16, b"\xff", None)]


def test_corrupt_record_holds_the_event():
    wanted = "payload binary, _corrupt_record string"
    events = [FULL, b"pl\xffain"]
    assert rows(wanted, events, envelope="sarit", mode="PERMISSIVE") == [(b"full", None), (None, "pl\ufffdain")]
    assert rows(wanted, [FULL], envelope="sarit", mode="PERMISSIVE") == [(b"full", None)]
    named = {"columnNameOfCorruptRecord": "wrong", "mode": "PERMISSIVE"}
    assert rows("wrong binary", events, envelope="sarit", **named) == [(None,), (b"pl\xffain",)]


def test_payload_as_text_names_the_event_that_is_none():
    with pytest.raises(Invalid, match="offset 8 .* is not UTF-8: read column payload as binary"):
        rows("payload string", [FULL, BARE], envelope="sarit")


def test_null_in_a_column_that_takes_none_is_named():
    with pytest.raises(Invalid, match="column key is NOT NULL, and null for the event at offset 8"):
        rows("key string not null", [FULL, BARE], envelope="sarit")


@pytest.mark.parametrize("headers", ["map<string,binary>", "array<string>", "array<struct<key:string,value:string>>"])
def test_headers_of_another_type_are_refused(headers):
    with pytest.raises(Invalid, match=r"column headers .*array<struct<key: ?string"):
        Projection(schema_of(f"headers {headers}"), parse_formats({"envelope": "sarit"}))


def test_header_fields_may_have_other_names():
    (row,) = rows("headers array<struct<name:string,data:binary>>", [FULL], envelope="sarit")
    assert row == ([{"name": "h", "data": b"v"}],)


def test_rows_become_envelopes_and_their_key_routes():
    schema = schema_of(ENVELOPE)
    batch = projected(ENVELOPE, [FULL, BARE], envelope="sarit")
    events, keys = encoder(schema, parse_formats({"envelope": "sarit"})).encode(batch)
    assert events.to_pylist() == [FULL, BARE]
    assert keys.to_pylist() == ["k", None]
    data = {"payload": ["p", None], "key": ["k", "l"], "routing_key": ["r", "s"]}
    events, keys = encoded("payload string, key string, routing_key string", data, envelope="sarit")
    assert (events, keys) == ([bytes(Envelope("p", key="k")), None], ["r", "s"])
    assert encoded("payload string", {"payload": ["p"]}, envelope="sarit") == ([bytes(Envelope("p"))], None)


# -- options ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"format": "xml"}, "option format is 'xml': give bytes or json or avro or arrow"),
        ({"envelope": "kafka"}, "option envelope is 'kafka': give sarit or none"),
        ({"mode": "IGNORE", "format": "json"}, "option mode is 'IGNORE': give PERMISSIVE or"),
        ({"mode": "PERMISSIVE"}, "option mode is for events that are decoded"),
        ({"avroSchema": "{}"}, 'is for .option."format", "avro"'),
        ({"payloadColumn": "data"}, "is for typed payloads"),
    ],
)
def test_wrong_option_is_refused(options, named):
    with pytest.raises(Invalid, match=named):
        parse_formats(options)


@pytest.mark.parametrize(
    ("schema", "options"),
    [("payload string", {"envelope": "sarit"}), ("event string, v int", {"format": "json"}),
     ("event string, key string", {"envelope": "sarit"})],
)  # fmt: skip
def test_one_event_that_is_not_utf_8_follows_the_mode(schema, options):
    good, bad = (b'{"v": 1}', b'{"v": 2, "w": "\xff"}')
    if "envelope" in options:
        good, bad = b"good", bytes(Envelope(b"\xff"))
        if schema.startswith("payload"):
            good = bytes(Envelope("good"))
    events = [good, bad, good]
    if schema.startswith("event string, key"):
        options = {**options, "mode": "PERMISSIVE"}
        found = rows(f"{schema}, _corrupt_record binary", events, **options)
        assert found == [("good", None, good), (None, None, bad), ("good", None, good)]
        return
    found = rows(f"{schema}, _corrupt_record binary", events, **options, mode="PERMISSIVE")
    assert [row[0] is None for row in found] == [False, True, False]
    assert [row[-1] for row in found] == [None, bad, None]
    assert len(rows(schema, events, **options, mode="DROPMALFORMED")) == 2
    with pytest.raises(Invalid, match="offset 8 of .* is malformed: it is not UTF-8"):
        rows(schema, events, **options, mode="FAILFAST")
