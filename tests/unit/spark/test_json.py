"""JSON payloads: the fast and the exact way agree, malformed documents, and back to JSON."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sarit.core.errors import Invalid
from sarit.schemas.json_reader import JsonReader
from sarit.spark.formats.columns import Projection, read_schema
from sarit.spark.formats.encoders import encoder
from sarit.spark.formats.options import parse_formats
from sarit.spark.formats.types import arrow_schema
from tests.limits import examples
from tests.unit.spark.schemas import schema_of
from tests.unit.spark.test_formats import rows

UTC = datetime.UTC
ALL = (
    "a bigint, b string, c double, d boolean, e timestamp, f date, g array<int>, h struct<x:int,y:decimal(10,2)>, "
    "i smallint, j timestamp_ntz, k array<struct<z:string>>"
)


def read(schema, payloads, time_zone="UTC"):
    return JsonReader(arrow_schema(schema_of(schema)), time_zone).read(pa.array(payloads, pa.binary()))


def values(schema, payloads, **options):
    found = read(schema, payloads, **options)
    return [tuple(column[at].as_py() for column in found.columns) for at in range(len(payloads))], found.bad.tolist()


def one(kind, text, **options):
    """The value of a member of a type, and whether the document is malformed."""
    found, bad = values(f"v {kind}", [b'{"v": %s}' % text.encode()], **options)
    return found[0][0], bad[0]


# -- the two ways -----------------------------------------------------------------------------------

numbers = st.integers(-(1 << 65), 1 << 65) | st.floats() | st.sampled_from([0, -1, 1.5, 1e400])
moments = st.datetimes().map(lambda t: t.isoformat() + "Z") | st.datetimes().map(str) | st.dates().map(str)
leaves = st.none() | st.booleans() | numbers | st.text(max_size=5) | moments
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner)
)
fitting = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(-(1 << 63), (1 << 63) - 1), "b": st.text(max_size=5),
        "c": st.floats(allow_nan=False, allow_infinity=False),
        "d": st.booleans(), "e": moments, "f": st.dates().map(str),
        "g": st.lists(st.none() | st.integers(0, 9), max_size=3),
        "h": st.fixed_dictionaries({}, optional={"x": st.integers(0, 9), "y": st.integers(0, 9)}), "extra": anything,
        "i": st.integers(-9, 9), "k": st.lists(st.fixed_dictionaries({"z": st.text(max_size=2)}), max_size=2),
    },
)  # fmt: skip
documents = st.one_of(fitting, fitting, st.dictionaries(st.sampled_from("abcdefghijkl"), anything), anything)
payloads = documents.map(lambda found: json.dumps(found).encode()) | st.sampled_from(
    [b"", b" ", b"{}", b" { } ", b"{", b"}", b'{"a":1}{"a":2}', b'{"a":[{"x":1},', b'{"a":2}]}',
     b"\xff", b'{"b":"\xff"}',
     b'{"a":1,"a":2}', b'{"a":1}\n', b'\n{"a":\n1}', b'{"row":7}', b'{"a":1} x', b'\xef\xbb\xbf{"a":1}',
     b'{"b":"a\nb"}', b'{"x":[', b'{"y":1}]}{"row":1,"a":5}', b'{"y":1}]}{"row":2,"a":5}', b'{"x":"}', b'{"a":1}]}',
     b'{"f":"0000-02-29"}', b'{"j":"0000-12-31T23:59:59"}', b'{"e":"0000-01-01T00:00:00+18:00"}',
     b'{"e":"2026-01-01T00:00:00+18:01"}', b'{"e":"9999-12-31T23:59:59-23:00"}', b'{"c":1e400}', b'{"a":-0,"c":-0}']
)  # fmt: skip


def is_same(one: pa.Array, other: pa.Array) -> bool:
    """Whether two short columns are equal; if they are not by value, by their texts: NaN is not equal to itself."""
    return one.equals(other) or (one.type == other.type and one.to_string() == other.to_string())


@given(st.lists(payloads, min_size=1, max_size=6))
@settings(max_examples=examples(400))
def test_fast_way_gives_what_the_exact_way_gives(made):
    reader = JsonReader(arrow_schema(schema_of(ALL)))
    array = pa.array(made, pa.binary())
    fast, exact = reader._read_fast(array), reader._read_exactly(array)
    if fast is not None:
        assert not exact.bad.any()
        for one, other in zip(fast.columns, exact.columns, strict=True):
            assert is_same(one, other), (one, other)


def test_fast_way_is_taken_for_ordinary_documents():
    reader = JsonReader(arrow_schema(schema_of(ALL)))
    document = {
        "a": 1, "b": "x", "c": 1.5, "d": True, "e": "2026-01-01T00:00:00.5Z", "f": "2026-01-01", "g": [1, None],
        "h": {"x": 1, "y": 1.25}, "i": 3, "j": "2026-01-01 00:00:00", "k": [{"z": "q"}, None], "more": {"a": [1]},
    }  # fmt: skip
    made = [json.dumps(document).encode(), b"{}", b' {"a": 1}', json.dumps(document, indent=1).encode()]
    array = pa.array([*made, b"left out"], pa.binary())[:4]
    assert reader._read_fast(array) is not None
    assert [column.type for column in reader.read(array).columns] == list(arrow_schema(schema_of(ALL)).types)


def test_one_bad_document_among_many_is_the_only_one():
    made = [b'{"a": %d}' % at for at in range(5000)]
    made[1234] = b'{"a": "x"}'
    found, bad = values("a bigint", made)
    assert [at for at, one in enumerate(bad) if one] == [1234]
    assert [row[0] for row in found] == [None if at == 1234 else at for at in range(5000)]


def test_two_payloads_that_make_one_document_are_two_bad_rows():
    made = [b'{"a":[{"x":1},', b'{"y":2}]}', b'{"a":1}{"a":2}', b""]
    assert values("a bigint", made) == ([(None,)] * 4, [True] * 4)
    made = [b'{"x":[', b'{"y":1}]}{"row":1,"a":5}']
    assert values("a bigint", made) == ([(None,)] * 2, [True] * 2)


@given(st.lists(payloads, min_size=2, max_size=4))
@example([b"{}", b'{"a": null, "c": NaN}'])
@settings(max_examples=examples(200))
def test_payload_is_decoded_whatever_stands_beside_it(made):
    reader = JsonReader(arrow_schema(schema_of(ALL)))
    whole, alone = reader.read(pa.array(made, pa.binary())), [reader.read(pa.array([one], pa.binary())) for one in made]
    assert whole.bad.tolist() == [bool(one.bad[0]) for one in alone]
    for at, column in enumerate(whole.columns):
        assert is_same(column, pa.concat_arrays([one.columns[at] for one in alone]))


def test_year_0_is_a_year():
    for made in ([b'{"v":"0000-02-29"}'], [b'{"v":"0000-02-29"}', b""]):
        assert read("v date", made).columns[0].cast(pa.int32())[0].as_py() == -719_469
        moment = read("v timestamp", [one.replace(b"29", b"29T00:00:00.5Z") for one in made]).columns[0]
        assert moment.cast(pa.int64())[0].as_py() == -719_469 * 86_400_000_000 + 500_000


def test_batch_is_divided_where_it_is_large(monkeypatch):
    monkeypatch.setattr("sarit.schemas.json_reader.MAX_JSON_BATCH_BYTES", 100)
    found, bad = values("a bigint", [b'{"a": %d}' % at for at in range(100)])
    assert [row[0] for row in found] == list(range(100))
    assert not any(bad)


def test_no_payloads_give_no_rows():
    found = read(ALL, [])
    assert [len(column) for column in found.columns] == [0] * 11
    assert len(found.bad) == 0


# -- single types -----------------------------------------------------------------------------------

NOON = datetime.datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("bigint", "9223372036854775807", (1 << 63) - 1),
        ("tinyint", "-128", -128),
        ("double", "1", 1.0),
        ("double", '"NaN"', math.nan),
        ("double", "NaN", math.nan),
        ("double", '"-Infinity"', -math.inf),
        ("double", '"+INF"', math.inf),
        ("double", "1e400", math.inf),
        ("float", "0.1", float(np.float32(0.1))),
        ("decimal(10,2)", "1.005", Decimal("1.01")),
        ("decimal(10,2)", '"1,234.5"', Decimal("1234.50")),
        ("decimal(38,0)", "12345678901234567890123456789012345678", Decimal("12345678901234567890123456789012345678")),
        ("string", "1.50", "1.50"),
        ("string", "true", "true"),
        ("string", '{"a": [1, null]}', '{"a":[1,null]}'),
        ("string", r'"\ud800"', "?"),
        ("string", r'"\ud83d\ude00"', "\U0001f600"),
        ("string", "null", None),
        ("binary", '"aGk="', b"hi"),
        ("date", '"2026-07-01"', NOON.date()),
        ("date", '"2026-7-1T10:00"', NOON.date()),
        ("timestamp", '"2026-07-01T12:00:00Z"', NOON),
        ("timestamp", '"2026-07-01 14:00:00+02:00"', NOON),
        ("timestamp", '"2026-07-01T14:00:00 Europe/Berlin"', NOON),
        ("timestamp", '"2026-07-01T12:00:00.1234567Z"', NOON.replace(microsecond=123_456)),
        ("timestamp", '"2026-07-01"', NOON.replace(hour=0)),
        ("timestamp", str(int(NOON.timestamp())), NOON),
        ("timestamp_ntz", '"2026-07-01 12:00:00.5"', NOON.replace(tzinfo=None, microsecond=500_000)),
        ("map<string,bigint>", '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        ("array<array<int>>", "[[1], [], null]", [[1], [], None]),
    ],
)
def test_value_is_taken(kind, text, value):
    found, bad = one(kind, text)
    assert not bad
    assert found == value or (value != value and found != found)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("bigint", "9223372036854775808"), ("bigint", "1.0"), ("bigint", '"1"'), ("bigint", "true"), ("bigint", '""'),
        ("tinyint", "128"), ("boolean", "1"), ("boolean", '"true"'), ("double", '"1.5"'), ("double", "true"),
        ("decimal(4,2)", "100"), ("decimal(4,2)", '"x"'), ("decimal(4,2)", '"1_0"'), ("decimal(4,2)", "1e999999999"),
        ("binary", '"~"'), ("binary", "5"), ("date", '"yesterday"'), ("date", '"2026-02-30"'), ("date", "20000"),
        ("timestamp", '"2026-13-01T00:00:00Z"'), ("timestamp", '"2026-07-01T12:00:00 Nowhere"'), ("timestamp", "1.5"),
        ("timestamp", "99999999999999999"), ("timestamp_ntz", '"2026-07-01T12:00:00Z"'), ("timestamp_ntz", "5"),
        ("array<int>", '{"a": 1}'), ("map<string,int>", "[1]"), ("struct<x:int>", "[1]"), ("struct<x:int>", "1"),
    ],
)  # fmt: skip
def test_value_of_another_type_is_null_and_malformed(kind, text):
    assert one(kind, text) == (None, True)


def test_malformed_members_leave_the_others_their_values():
    payload = (
        b'{"a": "x", "b": 1, "s": {"x": 1, "y": "q"}, "l": [1, "z"], '
        b'"m": {"k": {"x": "v"}}, "o": [{"x": 1}, {"x": 2.5}]}'
    )
    wanted = "a int, b int, s struct<x:int,y:int>, l array<int>, m map<string,struct<x:int>>, o array<struct<x:int>>"
    found, bad = values(wanted, [payload])
    assert found == [(None, 1, {"x": 1, "y": None}, None, [("k", {"x": None})], [{"x": 1}, {"x": None}])]
    assert bad == [True]


def test_times_without_a_zone_are_of_the_given_one():
    assert one("timestamp", '"2026-07-01T14:00:00"', time_zone="Europe/Berlin") == (NOON, False)
    assert one("timestamp", '"2026-07-01T14:00:00"', time_zone="+02:00") == (NOON, False)
    with pytest.raises(Invalid, match="'Mars' is no time zone"):
        Projection(schema_of("v timestamp"), parse_formats({"format": "json", "timeZone": "Mars"}))


def test_missing_members_are_null_and_extra_ones_ignored():
    made = [b'{"a": 1, "b": {"x": 2}}', b"{}", b'{"b": null, "z": 5}']
    expected = [(1, {"x": 2, "y": None}), (None, None), (None, None)]
    assert values("a int, b struct<x:int,y:int>", made) == (expected, [False] * 3)


def test_last_of_two_members_of_one_name_counts():
    assert values("a int", [b'{"a": 1, "a": 2}']) == ([(2,)], [False])


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        (b"", "it is not JSON: Expecting value at character 0"),
        (b"\xff", "it is not UTF-8 at byte 0"),
        (b"[1]", "it is not a JSON object: [1]"),
        (b'"' + b"x" * 99 + b'"', 'it is not a JSON object: "' + "x" * 59 + "..."),
        (b'{"a": "x"}', 'a is "x", which is no int'),
        (b'{"s": {"x": true}}', "s.x is true, which is no int"),
        (b'{"l": [1, {}]}', "l[] is {}, which is no int"),
        (b'{"l": ' + b"[" * 100_000, "it is not JSON that can be read: too many levels"),
    ],
)
def test_failfast_says_what_is_wrong_with_which_event(payload, named):
    with pytest.raises(Invalid) as raised:
        rows("a int, s struct<x:int>, l array<int>", [b"{}", payload], format="json", mode="FAILFAST")
    text = str(raised.value)
    assert text.startswith(f"the event at offset 8 of segment 1.#epoch.0 of s/t is malformed: {named}; .option"), text


def test_modes_keep_offsets_with_their_rows():
    made = [b'{"a": 1}', b"bad", b'{"a": 3}']
    wanted = "offset bigint, a int, _corrupt_record string"
    assert rows(wanted, made, format="json") == [(0, 1, None), (8, None, "bad"), (16, 3, None)]
    assert rows(wanted, made, format="json", mode="DROPMALFORMED") == [(0, 1, None), (16, 3, None)]


def test_json_without_a_schema_is_refused():
    with pytest.raises(Invalid, match=r"needs the columns to read: \.schema"):
        read_schema(parse_formats({"format": "json"}))


def test_map_with_other_keys_is_refused():
    with pytest.raises(Invalid, match="column m map<int,int>: the names of a JSON object are strings"):
        Projection(schema_of("m map<int,int>"), parse_formats({"format": "json"}))


# -- payloads beside the other columns --------------------------------------------------------------


def test_payload_column_holds_fields_that_have_names_of_other_columns():
    made = [b'{"offset": 5, "key": "k"}']
    wanted = "data struct<offset:bigint,key:string>, offset bigint"
    options = {"format": "json", "payloadColumn": "data"}
    assert rows(wanted, made, **options) == [({"offset": 5, "key": "k"}, 0)]
    with pytest.raises(Invalid, match="the fields are in the struct data"):
        rows("a int", made, **options)


# -- writing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "column"), [({}, "event"), ({"envelope": "sarit"}, "payload")])
def test_writing_json_says_how_spark_makes_it(options, column):
    with pytest.raises(Invalid, match=rf'to_json\(struct\("\*"\)\)\.alias\("{column}"\)'):
        encoder(schema_of("a int"), parse_formats({"format": "json", **options}))
