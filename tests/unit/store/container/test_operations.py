"""Frames of operations: the documented bytes, encoding and decoding, and what is refused."""

import pytest

from sarit.core.errors import Corrupt
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.store.container.operations import (
    FORMAT_VERSION,
    FRAME_HEADER,
    KIND_STREAM,
    KIND_TABLE_FIXED,
    NO_WRITER,
    Append,
    Create,
    Delete,
    Entry,
    Merge,
    Seal,
    SetAttributes,
    SetMirror,
    SetPolicy,
    Truncate,
    UpdateTable,
    decode_frame,
)

ID = b"0123456789abcdef"

OPERATIONS = [
    Append(7, 100, [b"ab", b"", b"cde"], 5, ID, 9, 3),
    Append(7, 105, [], 0, ID, 10, 1),
    Create(8, "s/t/0.#epoch.0", KIND_TABLE_FIXED, 16, 2, 100, 1 << 40),
    Create(9, "söt/t/0"),
    Seal(7),
    Truncate(7, 1 << 50),
    Delete(7),
    Merge(7, 8, 105, 33, 4, ((ID, -5),)),
    SetAttributes(7, ((ID, -(1 << 63)), (b"x" * 16, 1))),
    UpdateTable(8, 77, 2, (Entry(b"k", b"v", 0), Entry(b"gone", None, 19), Entry(b"e", b"", 30))),
    SetPolicy(7, 1, -3),
    Create(10, "s/m/0.#epoch.0", KIND_STREAM, 0, 2, 100, 1 << 40, 1 << 50, mirror=True),
    Create(11, "s/m/1.#epoch.0", offset=3),
    Create(12, "s/m/2.#epoch.0", mirror=True),
    Append(10, 1 << 50, [b"ab"], 2, NO_WRITER, NULL_ATTRIBUTE_VALUE, 0),
    SetMirror(11, True),
    SetMirror(10, False),
]


def frame(*operations):
    parts = [FRAME_HEADER.pack(FORMAT_VERSION, 1234, len(operations))]
    sizes = sum(operation.encode(parts) for operation in operations)
    payload = b"".join(parts)
    assert len(payload) == FRAME_HEADER.size + sizes
    return payload


def fields(operation):
    if isinstance(operation, Append):
        return (operation.segment, operation.offset, b"".join(map(bytes, operation.parts)), operation.length,
                operation.writer, operation.event_number, operation.events)  # fmt: skip
    return operation


def test_every_operation_survives_encode_and_decode():
    wall_ms, operations = decode_frame(memoryview(frame(*OPERATIONS)))
    assert wall_ms == 1234
    assert [fields(o) for o in operations] == [fields(o) for o in OPERATIONS]


def test_encoding_matches_documented_example():
    sealed = bytes.fromhex("01 0000000000000001 00000001 03 0000000000000007")
    wall_ms, operations = decode_frame(memoryview(sealed))
    assert (wall_ms, list(operations)) == (1, [Seal(7)])


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: type(o).__name__)
def test_frame_cut_anywhere_is_corrupt(operation):
    whole = frame(operation)
    for size in range(len(whole)):
        with pytest.raises(Corrupt):
            list(decode_frame(memoryview(whole[:size]))[1])


def test_unknown_version_type_and_trailing_bytes_are_corrupt():
    whole = frame(Seal(7))
    head = FRAME_HEADER.size
    for bad in (b"\x02" + whole[1:], whole + b"\0", whole[:head] + b"\x63" + whole[head + 1 :]):
        with pytest.raises(Corrupt):
            list(decode_frame(memoryview(bad))[1])


def test_creations_and_appends_have_the_documented_bytes():
    plain = bytes.fromhex("02 0000000000000007 00 00000000 00 00000000 0000000000000000 0001 61")
    at = bytes.fromhex("0a 0000000000000007 0000000000000009 01 00 00000000 00 00000000 0000000000000000 0001 61")
    append = bytes.fromhex("01 0000000000000007 0000000000000009 00000001" + "00" * 16 + "8000000000000000 00000000 61")
    for operation, documented in (
        (Create(7, "a"), plain),
        (Create(7, "a", offset=9, mirror=True), at),
        (Append(7, 9, [b"a"], 1, NO_WRITER, NULL_ATTRIBUTE_VALUE, 0), append),
        (SetMirror(7, True), bytes.fromhex("0b 0000000000000007 01")),
    ):
        parts = []
        operation.encode(parts)
        assert b"".join(map(bytes, parts)) == documented


@pytest.mark.parametrize("operation", [Create(7, "a", offset=9, mirror=True), SetMirror(7, True)], ids=str)
def test_unknown_flags_are_corrupt(operation):
    whole = bytearray(frame(operation))
    at = FRAME_HEADER.size + (17 if isinstance(operation, Create) else 9)
    assert whole[at] == 1
    whole[at] = 3
    with pytest.raises(Corrupt, match="unknown flags 3"):
        list(decode_frame(memoryview(bytes(whole)))[1])
