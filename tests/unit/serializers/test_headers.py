"""Headers that name a schema: bytes as Confluent's serializers write them, and bytes from outside."""

from __future__ import annotations

import io

import pytest
from confluent_kafka.schema_registry._sync.protobuf import ProtobufSerializer
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.errors import Invalid
from sarit.core.names import StreamName
from sarit.serializers.headers import (
    confluent_header,
    confluent_id,
    default_subject,
    message_indexes,
    parse_message_indexes,
    pravega_header,
    pravega_id,
)
from sarit.serializers.limits import HEADER_BYTES


@pytest.mark.parametrize(
    ("schema_id", "indexes", "header"),
    [
        (1, None, "00 00000001"),
        (0xFFFFFFFF, None, "00 ffffffff"),
        (7, [0], "00 00000007 00"),
        (7, [1], "00 00000007 02 02"),
        (7, [2, 0], "00 00000007 04 04 00"),
        (7, [300], "00 00000007 02 d8 04"),
    ],
)
def test_golden_bytes_of_confluent(schema_id, indexes, header):
    made = bytes.fromhex(header)
    assert confluent_header(schema_id, indexes) == made
    assert confluent_id(made + b"payload") == schema_id
    if indexes is not None:
        assert parse_message_indexes(made + b"payload") == (tuple(indexes), len(made))


def test_golden_bytes_of_pravega():
    assert pravega_header(5) == bytes.fromhex("01 00000005")
    assert pravega_id(bytes.fromhex("01 7fffffff") + b"x") == 0x7FFFFFFF


def test_default_subject():
    assert default_subject(StreamName.parse("shop/orders")) == "shop.orders"


INDEXES = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=32)


@given(st.integers(0, 2**32 - 1), INDEXES, st.binary(max_size=20))
def test_headers_come_back(schema_id, indexes, payload):
    event = confluent_header(schema_id, indexes) + payload
    assert confluent_id(event) == schema_id
    found, at = parse_message_indexes(event)
    assert found == tuple(indexes)
    assert event[at:] == payload


@given(INDEXES)
def test_indexes_are_those_of_confluents_serializer(indexes):
    buffer = io.BytesIO()
    if indexes == [0]:
        buffer.write(b"\0")
    else:
        ProtobufSerializer._write_varint(buffer, len(indexes))
        for one in indexes:
            ProtobufSerializer._write_varint(buffer, one)
    assert message_indexes(indexes) == buffer.getvalue()


@given(st.binary(max_size=40))
def test_bytes_from_outside_are_refused_or_parsed(event):
    for parse in (confluent_id, pravega_id, parse_message_indexes):
        try:
            found = parse(event)
        except Invalid:
            continue
        if parse is parse_message_indexes:
            indexes, at = found
            assert 1 <= len(indexes) <= 32
            assert HEADER_BYTES < at <= len(event)


@pytest.mark.parametrize(
    ("parse", "event", "message"),
    [
        (confluent_id, b"", "0 bytes, fewer than its header of 5"),
        (confluent_id, b"\0\0\0\0", "4 bytes"),
        (confluent_id, b"\1\0\0\0\1", "begins with 01 00 00 00 01, not with 00.*`confluent`.*schema-header"),
        (confluent_id, b'{"a": 1}', "begins with 7b 22"),
        (pravega_id, b"\0\0\0\0\1", "not with 01.*`pravega`"),
        (pravega_id, b"\1\xff\xff\xff\xff", "encoding id -1 of the event is negative"),
        (parse_message_indexes, b"\0\0\0\0\1", "ends within the message indexes"),
        (parse_message_indexes, b"\0\0\0\0\1\x04\x00", "ends within the message indexes"),
        (parse_message_indexes, b"\0\0\0\0\1\x02\x01", "message index -1 of the header is negative"),
        (parse_message_indexes, b"\0\0\0\0\1\x01", "-1 message indexes follow"),
        (parse_message_indexes, b"\0\0\0\0\1\xfe\xff\xff\xff\x0f", "2147483647 message indexes follow"),
        (parse_message_indexes, b"\0\0\0\0\1" + b"\xff" * 1000, "longer than five bytes"),
    ],
)
def test_wrong_headers_are_named(parse, event, message):
    with pytest.raises(Invalid, match=message):
        parse(event)


@pytest.mark.parametrize(
    "make",
    [
        lambda: confluent_header(-1),
        lambda: confluent_header(2**32),
        lambda: confluent_header(1, []),
        lambda: confluent_header(1, [-1]),
        lambda: confluent_header(1, [0] * 33),
        lambda: pravega_header(-1),
        lambda: pravega_header(2**31),
    ],
)
def test_impossible_headers_are_not_made(make):
    with pytest.raises(Invalid):
        make()
