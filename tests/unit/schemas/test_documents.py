"""Payloads of each format as documents."""

from __future__ import annotations

import json

import pytest

from sarit.core.errors import Invalid
from sarit.schemas.definitions import Kind
from sarit.schemas.documents import DocumentReader

SHAPES = """
syntax = "proto3";
package shapes;
import "base.proto";
message First { string name = 1; int64 number = 2; repeated Base bases = 3; }
message Outer { message Inner { bytes data = 1; Color color = 2; } Inner inner = 1; }
enum Color { RED = 0; BLUE = 1; }
"""
BASE = 'syntax = "proto3"; message Base { bool yes = 1; }'


def protobuf() -> DocumentReader:
    return DocumentReader(Kind.PROTOBUF, SHAPES, {"base.proto": BASE})


def test_protobuf_is_shown_as_its_library_prints_json():
    # name "a", number 5, bases with yes
    assert protobuf().read(b"\x0a\x01a\x10\x05\x1a\x02\x08\x01") == {
        "name": "a", "number": "5", "bases": [{"yes": True}],
    }  # fmt: skip
    assert protobuf().read(b"") == {}
    named = DocumentReader(Kind.PROTOBUF, SHAPES, {"base.proto": BASE}, "shapes.Outer.Inner")
    assert named.read(b"\x10\x01") == {"color": "BLUE"}
    with pytest.raises(Invalid, match="the schema has no message shapes.None"):
        DocumentReader(Kind.PROTOBUF, SHAPES, {"base.proto": BASE}, "shapes.None")
    # Of the second message the first one inside of it.
    assert protobuf().read(b"\x0a\x01\xff\x10\x01", (1, 0)) == {"data": "/w==", "color": "BLUE"}


@pytest.mark.parametrize(
    ("payload", "indexes", "why"),
    [
        (b"\x0a\x05a", (0,), "it is no message shapes.First"),
        (b"\x0a\x01\xff", (0,), "it is no message shapes.First"),
        (b"", (7,), "the schema has no message with the indexes [7]"),
        (b"", (0, 0), "the schema has no message with the indexes [0, 0]"),
    ],
)
def test_what_is_no_message_is_refused(payload, indexes, why):
    with pytest.raises(Invalid) as caught:
        protobuf().read(payload, indexes)
    assert why in str(caught.value)


def test_other_formats_are_shown_as_they_are():
    assert DocumentReader(Kind.JSON, "{}", {}).read(b'{"a": 1}') == {"a": 1}
    assert DocumentReader(Kind.OPAQUE, "", {}).read(b"\xff") == "/w=="
    assert DocumentReader(Kind.AVRO, json.dumps("long"), {}).read(b"\x02") == 1
    with pytest.raises(Invalid):
        DocumentReader(Kind.AVRO, "nonsense", {})
