"""Commands against the bytes of the published Java client, and against invalid bytes."""

import copy
import dataclasses
import random
import struct
import typing
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.store.server.access import NEEDS
from sarit.wire import commands as w
from sarit.wire import primitives
from sarit.wire.commands import append, internal, segment, session, table
from sarit.wire.limits import MAX_SEGMENT_NAME_BYTES, MAX_WIRE_PAYLOAD_BYTES, MAX_WIRE_STRING_BYTES, NO_VERSION
from tests.limits import examples
from tests.unit.wire.golden import GOLDEN, SHORTER, WRITER
from tests.unit.wire.golden_internal import INTERNAL

PAYLOADS = [
    pytest.param(command, bytes.fromhex(hexed), id=type(command).__name__) for command, hexed in GOLDEN + INTERNAL
]
OPEN_ENDED = {w.Padding, w.PartialEvent, w.Event, w.AppendBlock}  # the last field is all the rest


@pytest.mark.parametrize(("command", "payload"), PAYLOADS)
def test_golden_bytes_both_ways(command, payload):
    frame = struct.pack(">ii", command.code, len(payload)) + payload
    assert w.encode(command).hex() == frame.hex()
    assert b"".join(w.encode_parts(command)) == frame
    assert w.decode(command.code, payload) == command
    assert w.decode(command.code, memoryview(bytearray(payload))) == command


def test_every_command_has_its_vector():
    assert {command.code for command, _ in GOLDEN + INTERNAL} | {w.Event.code} == set(w.CODES)
    assert all(command.code >= w.FIRST_INTERNAL for command, _ in INTERNAL)
    assert all(command.code < w.FIRST_INTERNAL for command, _ in GOLDEN)
    assert all(made.code == code for code, made in w.CODES.items())


def test_commands_are_values():
    one = w.SegmentCreated(1, "s")
    assert one == w.SegmentCreated(request_id=1, segment="s")
    assert hash(one) == hash(w.SegmentCreated(1, "s"))
    assert one != w.SegmentCreated(2, "s")
    assert one != w.SegmentSealed(1, "s")
    assert repr(one) == "SegmentCreated(request_id=1, segment='s')"
    assert copy.copy(one) == dataclasses.replace(one, request_id=1) == one
    assert w.CreateSegment(1, "s", 0, 0, "").rollover_size_bytes == 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.segment = "t"
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.segment
    with pytest.raises(TypeError):
        w.SegmentCreated(1)


def test_an_event_is_its_own_frame():
    # vectors.md: writing the fields of Java's Event gives 00000000 00000002 aabb, header included
    assert w.encode(w.Event(b"\xaa\xbb")).hex() == "0000000000000002aabb"
    assert w.decode(0, b"\xaa\xbb") == w.Event(b"\xaa\xbb")
    conditional = w.ConditionalAppend(WRITER, 9, 64, b"\xaa\xbb", 7)
    assert w.event_bytes(conditional) == w.encode(w.Event(b"\xaa\xbb"))


@pytest.mark.parametrize(("command", "payload"), PAYLOADS)
def test_cut_short_at_every_byte(command, payload):
    without = SHORTER.get(command.code, {})
    for missing in range(1, len(payload) + 1):
        short = payload[:-missing]
        if missing in without:
            assert w.decode(command.code, short) == dataclasses.replace(command, **without[missing])
        elif type(command) in OPEN_ENDED and len(short) >= len(payload) - len(command.data):
            assert w.decode(command.code, short) == dataclasses.replace(command, data=command.data[:-missing])
        else:
            with pytest.raises(w.ProtocolError, match=type(command).__name__):
                w.decode(command.code, short)


@pytest.mark.parametrize(("command", "payload"), PAYLOADS)
def test_fields_of_a_newer_peer_are_skipped(command, payload):
    if type(command) not in OPEN_ENDED:
        assert w.decode(command.code, payload + b"more") == command


@pytest.mark.parametrize("code", [6, 54, 72, 73, 99, 101, -7, -128, 2**31 - 1])
def test_unknown_commands_are_refused(code):
    with pytest.raises(w.ProtocolError, match=str(code)):
        w.decode(code, b"")


# -- any value, any bytes ----------------------------------------------------------------------------------------

longs = st.integers(-(1 << 63), (1 << 63) - 1)
ints = st.integers(-(1 << 31), (1 << 31) - 1)
octets = st.integers(-128, 127)
uuids = st.binary(min_size=16, max_size=16)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
blobs = st.binary(max_size=40)
rates = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
keys = st.builds(w.TableKey, st.binary(min_size=1, max_size=9), longs) | st.just(w.TableKey(b"", NO_VERSION))
entries = st.builds(lambda key, value: w.TableEntry(*key, value), keys, blobs)


def _codec(alias):
    return alias.__metadata__[0]


def _tuples(item):
    return st.lists(item, max_size=4).map(tuple)


STRATEGIES = {
    id(_codec(alias)): strategy
    for alias, strategy in [
        (primitives.Long, longs),
        (primitives.Int, ints),
        (primitives.Byte, octets),
        (primitives.Flag, st.booleans()),
        (primitives.Uuid, uuids),
        (primitives.Text, texts),
        (primitives.Name, texts),
        (primitives.Names, _tuples(texts)),
        (primitives.Prose, texts),
        (primitives.Blob, blobs),
        (primitives.Rest, blobs),
        (primitives.Texts, _tuples(texts)),
        (primitives.Longs, _tuples(longs)),
        (table.Keys, _tuples(keys)),
        (table.Entries, _tuples(entries)),
        (table.Args, st.builds(w.IteratorArgs, blobs, blobs, blobs)),
        (append.EmbeddedEvent, blobs),
        (segment.AttributeUpdates, _tuples(st.builds(w.AttributeUpdate, uuids, octets, longs, longs))),
        (segment.MergedSources, _tuples(st.builds(w.MergedSource, texts, longs))),
        (
            internal.TableChanges,
            _tuples(st.builds(w.TableChange, blobs, longs, st.booleans(), st.booleans(), blobs)),
        ),
        (internal.RatesOfSegments, _tuples(st.builds(w.SegmentRates, *[rates] * 9))),
        (internal.OffsetWrites, _tuples(st.builds(w.OffsetWrite, texts, longs, blobs))),
        (internal.SegmentRanges, _tuples(st.builds(w.SegmentRange, texts, longs, ints))),
        (internal.BatchOutcomes, _tuples(st.builds(w.BatchOutcome, octets, longs, blobs, texts))),
        (
            internal.SegmentStates,
            _tuples(st.builds(w.SegmentState, st.booleans(), longs, longs, st.booleans(), longs)),
        ),
        (internal.ScaleRequestList, _tuples(st.builds(w.ScaleRequest, texts, octets))),
        (session.StorageChunks, _tuples(st.builds(w.StorageChunk, longs, longs, longs, texts, st.booleans()))),
    ]
}


def _any(made):
    annotations = typing.get_type_hints(made, include_extras=True)
    return st.builds(made, *(STRATEGIES[id(_codec(annotations[field.name]))] for field in dataclasses.fields(made)))


anything = st.sampled_from(sorted(w.CODES)).flatmap(lambda code: _any(w.CODES[code]))


@settings(max_examples=examples(400))
@given(anything)
def test_any_command_comes_back(command):
    frame = w.encode(command)
    code, length = struct.unpack_from(">ii", frame)
    assert length == len(frame) - 8
    assert w.decode(code, frame[8:]) == command
    assert b"".join(w.encode_parts(command)) == frame


@settings(max_examples=examples(300))
@given(anything, st.data())
def test_a_changed_byte_is_harmless(command, data):
    payload = bytearray(w.encode(command)[8:])
    if payload:
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    _decode_or_refuse(command.code, bytes(payload))


@settings(max_examples=examples(300))
@given(st.sampled_from(sorted(w.CODES)), st.binary(max_size=80))
def test_random_bytes_are_harmless(code, payload):
    _decode_or_refuse(code, payload)


def test_many_random_bytes_are_harmless():
    chance = random.Random(1)
    for code in sorted(w.CODES):
        for _ in range(300):
            _decode_or_refuse(code, bytes(map(chance.choice, [b"\0\0\0\0\0\x01\x02\x08\xff"] * chance.randrange(60))))


def _decode_or_refuse(code, payload):
    """Nothing but a ProtocolError may come of bytes; what is accepted means the same when sent again."""
    try:
        command = w.decode(code, payload)
    except w.ProtocolError:
        return
    assert w.decode(code, w.encode(command)[8:]) == command


@pytest.mark.parametrize("count", [-1, -(1 << 31), 1 << 30, (1 << 31) - 1])
@pytest.mark.parametrize(
    "command",
    [
        w.SegmentRead("a", 0, False, False, b"", 7),
        w.TableEntriesUpdated(7, ()),
        w.TableRead(7, "a", ()),
        w.ReadTable(7, "a", "", ()),
        w.StorageChunksListed(7, ()),
        w.ChangeTable(7, "a", ()),
        w.GetRates(7, ()),
        w.RatesMeasured(7, ()),
        w.ScaleRequests(7, ()),
    ],
    ids=lambda command: type(command).__name__,
)
def test_wrong_counts_are_refused_at_once(command, count):
    frame = bytearray(w.encode(command)[8:])
    at = len(frame) - (12 if isinstance(command, w.SegmentRead) else 4)
    frame[at : at + 4] = struct.pack(">i", count)
    with pytest.raises(w.ProtocolError):
        w.decode(command.code, bytes(frame))


# -- fields ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        w.SegmentCreated(1 << 63, "a"),
        w.Hello(1 << 31, 0),
        w.CreateSegment(7, "a", 1, 128, ""),
        w.SetupAppend(7, b"short", "a", ""),
        w.SetupAppend(7, bytes(17), "a", ""),
        w.MergeSegments(7, "a", "b", "", (w.AttributeUpdate(b"", 1, 2, 3),)),
        w.TableEntriesUpdated(7, (1 << 63,)),
        w.ReadTable(7, "a", "", (w.TableKey(b"k", 1 << 63),)),
        w.RatesMeasured(7, (w.SegmentRates(*[float("nan")] * 9),)),
        w.RatesMeasured(7, (w.SegmentRates(*[-1.0] * 9),)),
        w.SegmentCreated(7, "\ud800"),
        w.SegmentCreated(7, "x" * (MAX_WIRE_STRING_BYTES + 1)),
        w.SegmentRead("a", 0, True, False, bytes(MAX_WIRE_PAYLOAD_BYTES), 7),
    ],
)
def test_values_that_do_not_fit_are_refused(command):
    with pytest.raises(w.ProtocolError, match=type(command).__name__):
        w.encode(command)
    with pytest.raises(w.ProtocolError):
        w.encode_parts(command)


def test_the_longest_string_and_the_longest_frame():
    name = "x" * MAX_WIRE_STRING_BYTES
    assert w.decode(21, w.encode(w.SegmentCreated(7, name))[8:]).segment == name
    overhead = len(w.encode(w.SegmentRead("a", 0, True, False, b"", 7))) - 8
    longest = w.SegmentRead("a", 0, True, False, bytes(MAX_WIRE_PAYLOAD_BYTES - overhead), 7)
    assert w.decode(10, w.encode(longest)[8:]) == longest


@pytest.mark.parametrize("letter", ["x", "é", "\0", "日", "\U0001f40d"])
def test_long_messages_are_clipped(letter):
    sent = w.ErrorMessage(7, "a", letter * 70_000, 0)
    received = w.decode(61, w.encode(sent)[8:]).message
    assert received
    assert sent.message.startswith(received)


def test_large_data_is_not_copied():
    data = bytearray(100_000)
    parts = w.encode_parts(w.SegmentRead("a", 0, True, False, data, 7))
    assert [part is data for part in parts] == [False, True, False]
    payload = memoryview(b"".join(parts))[8:]
    read = w.decode(10, payload)
    assert isinstance(read.data, memoryview)
    assert read.data.obj is payload.obj


def test_the_envelope_of_a_read():
    for data in (b"", b"abc" * 1000):
        prefix, suffix = w.segment_read_envelope("s/é/0.#epoch.0", 64, True, False, len(data), 7)
        assert prefix + data + suffix == w.encode(w.SegmentRead("s/é/0.#epoch.0", 64, True, False, data, 7))
    with pytest.raises(w.ProtocolError):
        w.segment_read_envelope("a", 0, True, False, MAX_WIRE_PAYLOAD_BYTES, 7)


def test_an_empty_key_has_no_version():
    # wire.md par. 2, sub-structures: Java writes 12 and 0, and nothing else
    frame = w.encode(w.ReadTable(7, "a", "", (w.TableKey(b"", 5), w.TableKey(b"k", 5))))
    assert frame.hex().endswith("00000002" + "0000000c00000000" + "0000000d000000016b0000000000000005")
    assert w.decode(78, frame[8:]).keys == (w.TableKey(b"", NO_VERSION), w.TableKey(b"k", 5))


@pytest.mark.parametrize("size", [0, 12, 14, 1 << 30])
def test_a_key_must_fill_its_size(size):
    payload = w.encode(w.ReadTable(7, "a", "", (w.TableKey(b"k", 5),)))[8:]
    wrong = payload.replace(bytes.fromhex("0000000d00000001"), struct.pack(">ii", size, 1))
    with pytest.raises(w.ProtocolError, match="fill"):
        w.decode(78, wrong)


def test_a_value_must_fill_its_size():
    payload = w.encode(w.TableRead(7, "a", (w.TableEntry(b"k", 5, b"vw"),)))[8:]
    with pytest.raises(w.ProtocolError, match="fill"):
        w.decode(79, payload.replace(bytes.fromhex("0000000600000002"), bytes.fromhex("0000000700000002")))


@pytest.mark.parametrize("header", ["00000001", "ffffffff"])
def test_a_conditional_append_holds_an_event(header):
    payload = w.encode(w.ConditionalAppend(WRITER, 1, 2, b"data", 7))[8:]
    with pytest.raises(w.ProtocolError, match="event"):
        w.decode(5, payload[:32] + bytes.fromhex(header) + payload[36:])
    with pytest.raises(w.ProtocolError, match="event"):
        w.decode(5, payload[:36] + bytes.fromhex("ffffffff") + payload[40:])


@pytest.mark.parametrize(
    ("high", "low", "common"),
    [(17, 5, True), (16, 5, True), (15, 5, True), (5, 1, True), (99, 17, True), (4, 1, False), (99, 18, False)],
)
def test_versions(high, low, common):
    assert w.negotiate(w.Hello(high, low)) is common
    assert w.encode(w.OUR_HELLO).hex() == "ffffff81000000080000001100000005"


def test_a_string_that_could_not_be_sent_back_is_refused() -> None:
    """Plain UTF-8 has one byte for a zero and four for a character above U+FFFF, Java's form two and six."""
    for text in (b"\0" * 40_000, "\U0001f600".encode() * 12_000):
        with pytest.raises(w.ProtocolError, match="a string of [78]"):
            w.decode(21, bytes(8) + len(text).to_bytes(2) + text)
        fits = text[:32_000]
        answered = w.decode(21, bytes(8) + len(fits).to_bytes(2) + fits)
        assert w.decode(21, w.encode(answered)[8:]) == answered


@pytest.mark.parametrize("kind", NEEDS)
def test_name_of_a_segment_in_a_request_is_bounded_before_anything_is_done_with_it(kind) -> None:
    """Names of 64 kB were searched for, kept as keys of the cache of placements, sent back and logged."""
    annotated = get_type_hints(kind, include_extras=True)
    names = [name for name in ("segment", "target", "source", "sources", "parent_segment") if name in annotated]
    assert names
    for name in names:
        _, codec = get_args(annotated[name])
        many = name == "sources"
        for size, taken in ((MAX_SEGMENT_NAME_BYTES, True), (MAX_SEGMENT_NAME_BYTES + 1, False)):
            sent: list[Any] = []
            codec.write(("x" * size,) if many else "x" * size, sent)
            if taken:
                codec.read(b"".join(sent), 0)
                continue
            with pytest.raises(w.ProtocolError, match="a name of 4097 bytes; the most is 4096"):
                codec.read(b"".join(sent), 0)
