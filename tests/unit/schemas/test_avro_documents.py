"""Avro data as documents: equal to what the reference library reads, and bounded for bytes of anybody."""

from __future__ import annotations

import base64
import io
import json
import math
import random
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import fastavro
import pytest

from sarit.core.errors import Invalid
from sarit.schemas.avro_definition import parse_avro
from sarit.schemas.avro_documents import avro_document
from sarit.schemas.limits import MAX_DOCUMENT_LEVELS, MAX_DOCUMENT_VALUES

LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}


def document(schema, data: bytes):
    return avro_document(parse_avro(json.dumps(schema)).root, data)


def written(schema, value) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -(1 << 31), -(1 << 31)),
        ("long", (1 << 63) - 1, (1 << 63) - 1),
        ("float", 0.1, 0.1),
        ("float", 16777216.0, 16777216.0),
        ("double", 1e300, 1e300),
        ("double", math.nan, "NaN"),
        ("float", -math.inf, "-Infinity"),
        ("string", "ä\n", "ä\n"),
        ("bytes", b"\x00\xff", base64.b64encode(b"\x00\xff").decode()),
        ({"type": "array", "items": "int"}, [1, 2, 3], [1, 2, 3]),
        ({"type": "map", "values": "string"}, {"a": "b"}, {"a": "b"}),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"\x01\x02", "AQI="),
        (["null", "string"], "x", "x"),
        (["null", "string"], None, None),
        (LIST, {"next": {"next": None}}, {"next": {"next": None}}),
        ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, Decimal("-12.50"), "-12.50"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 3},
            Decimal("123456789012345678901234567890123456789012.345"),
            "123456789012345678901234567890123456789012.345",
        ),
        ({"type": "int", "logicalType": "date"}, date(2026, 1, 31), "2026-01-31"),
        ({"type": "int", "logicalType": "time-millis"}, time(12, 0, 0, 5000), "12:00:00.005000"),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            datetime(2026, 1, 31, 12, 0, 0, 7, UTC),
            "2026-01-31T12:00:00.000007Z",
        ),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1 << 62, 1 << 62),
        ({"type": "string", "logicalType": "uuid"}, UUID(int=5), str(UUID(int=5))),
        (
            {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
            UUID(int=5 << 90).bytes,
            str(UUID(int=5 << 90)),
        ),
        ({"type": "int", "logicalType": "unknown"}, 5, 5),
    ],
)
def test_each_type_is_shown_as_json(schema, value, shown):
    found = document(schema, written(schema, value))
    assert found == shown
    json.dumps(found, allow_nan=False)


def test_drawn_data_are_what_the_reference_library_reads():
    schema = {
        "type": "record", "name": "R",
        "fields": [
            {"name": "a", "type": ["null", "long", {"type": "array", "items": "string"}]},
            {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
            {"name": "inner", "type": {"type": "record", "name": "I", "fields": [{"name": "b", "type": "boolean"}]}},
            {"name": "again", "type": ["I", "null"]},
        ],
    }  # fmt: skip
    rng = random.Random(5)
    for _ in range(300):
        value = {
            "a": rng.choice([None, rng.randrange(-(1 << 63), 1 << 63), ["x" * rng.randrange(200)] * rng.randrange(4)]),
            "m": {str(n): [rng.random()] * rng.randrange(3) for n in range(rng.randrange(3))},
            "inner": {"b": rng.random() < 0.5},
            "again": rng.choice([None, {"b": True}]),
        }
        assert document(schema, written(schema, value)) == value


def test_blocks_that_give_their_size_are_read():
    # Three ints in a block of three bytes, as other libraries write it, then one in a block without a size.
    data = bytes([5, 6, 2, 4, 6, 2, 8, 0])
    assert document({"type": "array", "items": "int"}, data) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("schema", "data", "message"),
    [
        ("int", b"", "byte 0: 1 bytes are to follow, and 0 are left"),
        ("int", b"\x02\x02", "1 bytes are left over after the datum"),
        ("int", b"\xff\xff\xff\xff\x7f", "byte 5: a number is larger than its type"),
        ("long", b"\xff" * 11, "a number is larger than its type"),
        ("boolean", b"\x02", "a boolean is neither 0 nor 1"),
        ("string", b"\x01", "a length is negative"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "bytes are to follow, and 0 are left"),
        ("string", b"\x02\xff", "a string is no UTF-8"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "an enum has no symbol 1"),
        (["null", "int"], b"\x04", "a union has no branch 2"),
        (["null", "int"], b"\x01", "a union has no branch -1"),
        (
            {"type": "array", "items": "null"},
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            f"it has more than {MAX_DOCUMENT_VALUES:,} values",
        ),
        (LIST, b"\x02" * (MAX_DOCUMENT_LEVELS + 5), f"it has more than {MAX_DOCUMENT_LEVELS} levels"),
    ],
)
def test_data_of_anybody_are_refused_within_bounds(schema, data, message):
    with pytest.raises(Invalid) as caught:
        document(schema, data)
    assert message in str(caught.value)


def test_any_bytes_are_a_datum_or_refused():
    schema = {
        "type": "record", "name": "R",
        "fields": [
            {"name": "a", "type": {"type": "array", "items": ["null", "string", "R"]}},
            {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4}},
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
            {"name": "u", "type": {"type": "long", "logicalType": "time-micros"}},
            {"name": "f", "type": "float"},
        ],
    }  # fmt: skip
    rng, read = random.Random(7), 0
    for _ in range(3000):
        data = bytes(rng.choice((0, 1, 2, 3, rng.randrange(256))) for _ in range(rng.randrange(40)))
        try:
            json.dumps(document(schema, data), allow_nan=False)
            read += 1
        except Invalid:
            pass
    assert read


def test_long_decimal_is_shown_as_bytes():
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 4}
    data = b"\x7f" * 2000
    assert document(schema, written("bytes", data)) == base64.b64encode(data).decode()
