"""Append blocks: the stored bytes of blocks by Java's and by the Rust client, and the protocol's rules."""

import gc
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.wire import commands as w
from sarit.wire.commands import ProtocolError
from sarit.wire.frames import AppendAssembler, FrameReader, append_block_end_header, data_appended, read_data_appended
from sarit.wire.limits import MAX_WIRE_PAYLOAD_BYTES
from tests.limits import examples

WRITER = bytes(range(16))
OTHER = bytes(range(1, 17))


def _payload(command):
    return w.encode(command)[8:]


def _block(data, writer=WRITER):
    return _payload(w.AppendBlock(writer, data))


def _end(data=b"", whole=0, events=1, last=9, request_id=7, writer=WRITER):
    return _payload(w.AppendBlockEnd(writer, whole, data, events, last, request_id))


def _event(data):
    return w.encode(w.Event(data))


def _stored(append):
    data = b"".join(append.parts)
    assert append.length == len(data)
    assert all(len(part) for part in append.parts)
    return data


def _java(block, end):
    assembler = AppendAssembler()
    assembler.block(block)
    append = assembler.block_end(end)
    assert not assembler.open
    return append


# -- what is stored ----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=4, max_size=4), st.binary(max_size=9))
def test_data_appended_is_read_as_the_table_of_commands_reads_it(numbers, later):
    payload = data_appended(WRITER, *numbers)[8:] + later
    assert read_data_appended(payload) == w.decode(w.DataAppended.code, payload) == w.DataAppended(WRITER, *numbers)


@pytest.mark.parametrize("size", [0, 16, 47])
def test_data_appended_that_is_too_short_is_refused(size):
    with pytest.raises(ProtocolError):
        read_data_appended(bytes(size))


def test_rust_sends_the_whole_block_with_its_end():
    data = _event(b"one") + _event(b"two")
    append = AppendAssembler().block_end(_end(data, whole=len(data), events=2, last=11, request_id=3))
    assert _stored(append) == data
    assert (append.writer_id, append.events, append.last_event_number, append.request_id) == (WRITER, 2, 11, 3)
    assert WRITER.hex() in repr(append)


def test_the_size_of_whole_events_means_nothing_without_a_block():
    assert _stored(AppendAssembler().block_end(_end(b"data", whole=-5))) == b"data"


def test_an_append_without_a_byte():
    append = AppendAssembler().block_end(_end(b""))
    assert (append.parts, append.length, append.events) == ((), 0, 1)


def test_java_fills_a_block_exactly():
    data = _event(b"one") + _event(b"two")
    assert _stored(_java(_block(data), _end(whole=len(data)))) == data


def test_java_ends_a_block_with_padding():
    data = _event(b"one")
    for padding in (b"", b"\0" * 5, b"\xff" * 100):
        assert _stored(_java(_block(data + w.encode(w.Padding(padding))), _end(whole=len(data)))) == data


def test_java_splits_an_event():
    first, second = _event(b"one"), _event(b"second")
    for cut in range(len(second) + 1):
        block = _block(first + w.encode(w.PartialEvent(second[:cut])))
        assert _stored(_java(block, _end(second[cut:], whole=len(first)))) == first + second


def test_java_splits_its_only_event():
    event = _event(b"x" * 100)
    assert _stored(_java(_block(w.encode(w.PartialEvent(event[:40]))), _end(event[40:]))) == event


def test_data_after_a_full_block_is_retained():
    data = _event(b"one")
    assert _stored(_java(_block(data), _end(b"rest", whole=len(data)))) == data + b"rest"


def test_a_block_of_padding_alone_holds_nothing():
    append = _java(_block(w.encode(w.Padding(b"\0" * 9))), _end())
    assert (append.parts, append.length) == ((), 0)


def test_little_data_does_not_keep_a_large_block_of_padding():
    append = _java(_block(b"data" + w.encode(w.Padding(bytes(100_000)))), _end(whole=4))
    assert append.parts == (b"data",)
    assert len(memoryview(append.parts[0]).obj) == 4


def test_an_old_client_leaves_out_the_request_id():
    append = AppendAssembler().block_end(_end(b"data")[:-8])
    assert (_stored(append), append.request_id) == (b"data", -1)


def test_block_data_is_not_copied():
    block, end = (
        bytearray(_block(b"x" * 50 + w.encode(w.PartialEvent(b"y" * 20)))),
        bytearray(_end(b"z" * 30, whole=50)),
    )
    append = _java(memoryview(block), memoryview(end))
    assert [part.obj for part in append.parts] == [block, block, end]
    assert append.parts[0].obj is block
    assert append.parts[2].obj is end


@pytest.mark.parametrize("ways", ["rust", "java"])
def test_small_append_is_not_tracked_by_garbage_collection(ways):
    frames = w.encode(w.AppendBlockEnd(WRITER, 0, b"x" * 1000, 1, 9, 7))
    if ways == "java":
        frames = w.encode(w.AppendBlock(WRITER, b"x" * 1000)) + w.encode(w.AppendBlockEnd(WRITER, 1000, b"", 1, 9, 7))
    assembler, append = AppendAssembler(), None
    for code, payload in FrameReader().feed(frames):
        if code == 3:
            assembler.block(payload)
        else:
            append = assembler.block_end(payload)
    assert append.parts == (b"x" * 1000,)
    gc.collect()  # the first collection untracks a tuple of objects that cannot be in a cycle
    assert [gc.is_tracked(held) for held in (append.parts, *append.parts)] == [False, False]


def test_a_large_append_is_not_copied():
    ((_, payload),) = FrameReader().feed(w.encode(w.AppendBlockEnd(WRITER, 0, bytes(100_000), 1, 9, 7)))
    (part,) = AppendAssembler().block_end(payload).parts
    assert part.obj is payload.obj


def _java_blocks(events, size, chance):
    """Send events as Java's CommandEncoder does: blocks of a fixed size, an event split or padding after them."""
    frames, at, number = [], 0, 0
    while at < len(events):
        block, end, count = b"", b"", 0
        while at < len(events) and len(block) + len(events[at]) <= size:
            block += events[at]
            at, count = at + 1, count + 1
        whole = len(block)
        space = size - whole
        if at < len(events) and (chance.random() < 0.7 or not count):
            block += w.encode(w.PartialEvent(events[at][:space]))
            end = events[at][space:]
            at, count = at + 1, count + 1
        elif space or chance.random() < 0.5:
            block += w.encode(w.Padding(bytes(space)))
        number += count
        frames.append((_block(block), _end(end, whole=whole, events=count, last=number)))
    return frames


@settings(max_examples=examples(150))
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=40), st.integers(8, 200), st.integers(0, 1 << 32))
def test_any_events_in_any_blocks(datas, size, seed):
    events = [_event(data) for data in datas]
    assembler = AppendAssembler()
    stored, count = b"", 0
    for block, end in _java_blocks(events, size, random.Random(seed)):
        assembler.block(block)
        append = assembler.block_end(end)
        stored += _stored(append)
        count += append.events
        assert append.last_event_number == count
    assert stored == b"".join(events)
    assert count == len(events)


# -- rules -------------------------------------------------------------------------------------------------------


def test_only_the_end_may_follow_a_block():
    assembler = AppendAssembler()
    assembler.check_closed()
    assembler.block(_block(b"data"))
    assert assembler.open
    assert "4 bytes" in repr(assembler)
    with pytest.raises(ProtocolError, match="end of the append block"):
        assembler.check_closed()
    with pytest.raises(ProtocolError, match="end of the append block"):
        assembler.block(_block(b"data"))


@pytest.mark.parametrize(
    ("block", "end", "complaint"),
    [
        (b"data", _end(whole=4, writer=OTHER), "another writer"),
        (b"data", _end(whole=5), "whole events"),
        (b"data", _end(whole=-1), "whole events"),
        (b"data", _end(whole=3), "neither event nor padding"),
        (b"data" + bytes(7), _end(whole=4), "neither event nor padding"),
        (b"data" + w.encode(w.Padding(bytes(4))), _end(b"x", whole=4), "after padding"),
        (b"data" + struct.pack(">ii", -1, 5) + bytes(4), _end(whole=4), "type -1"),
        (b"data" + struct.pack(">ii", -1, -1) + bytes(4), _end(whole=4), "type -1"),
        (b"data" + struct.pack(">ii", -2, 5) + bytes(4), _end(b"x", whole=4), "type -2"),
        (b"data" + struct.pack(">ii", -2, 3) + bytes(4), _end(b"x", whole=4), "type -2"),
        (b"data" + struct.pack(">ii", -2, -1) + bytes(4), _end(b"x", whole=4), "type -2"),
        (b"data" + w.encode(w.Event(b"x")), _end(whole=4), "type 0"),
        (b"data", _end(whole=4, events=0), "events"),
        (b"data", _end(whole=4, events=-1), "events"),
    ],
)
def test_broken_blocks(block, end, complaint):
    with pytest.raises(ProtocolError, match=complaint):
        _java(_block(block), end)


@pytest.mark.parametrize("events", [0, -1, -(1 << 31)])
def test_an_append_has_events(events):
    with pytest.raises(ProtocolError, match="events"):
        AppendAssembler().block_end(_end(b"data", events=events))


def test_cut_short_at_every_byte():
    block, end = _block(b""), _end(b"data")
    for length in range(len(block)):
        with pytest.raises(ProtocolError, match="cut short"):
            AppendAssembler().block(block[:length])
    for length in set(range(len(end))) - {len(end) - 8}:
        with pytest.raises(ProtocolError, match="AppendBlockEnd"):
            AppendAssembler().block_end(end[:length])


@pytest.mark.parametrize("length", [-1, -(1 << 31), 5, 1 << 30, (1 << 31) - 1])
def test_wrong_data_lengths_are_refused(length):
    end = bytearray(_end(b"data"))
    end[20:24] = struct.pack(">i", length)
    with pytest.raises(ProtocolError, match="AppendBlockEnd"):
        AppendAssembler().block_end(bytes(end))


@settings(max_examples=examples(300))
@given(st.binary(max_size=80), st.binary(max_size=80), st.booleans())
def test_random_bytes_are_harmless(block, end, same_writer):
    assembler = AppendAssembler()
    try:
        if same_writer:
            block, end = WRITER + block, WRITER + end
        assembler.block(block)
        append = assembler.block_end(end)
    except ProtocolError:
        return
    assert append.events > 0
    assert len(_stored(append)) <= len(block) + len(end)


# -- frames made in a hurry --------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"x", b"x" * 100_000])
def test_the_header_of_a_whole_block(data):
    prefix, suffix = append_block_end_header(WRITER, len(data), 3, 42, 7)
    assert prefix + data + suffix == w.encode(w.AppendBlockEnd(WRITER, len(data), data, 3, 42, 7))


def test_a_block_too_long_is_refused():
    append_block_end_header(WRITER, MAX_WIRE_PAYLOAD_BYTES - 44, 1, 1, 1)
    with pytest.raises(ProtocolError, match="the most is"):
        append_block_end_header(WRITER, MAX_WIRE_PAYLOAD_BYTES - 43, 1, 1, 1)


@pytest.mark.parametrize("previous", [NULL_ATTRIBUTE_VALUE, 0, 41])
def test_an_acknowledgement(previous):
    assert data_appended(WRITER, 42, previous, 7, 1 << 40) == w.encode(w.DataAppended(WRITER, 42, previous, 7, 1 << 40))
