"""The frame reader: the same frames however the bytes arrive, no copies of large payloads, no trust in claimed
lengths."""

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.limits import KIB, MIB
from sarit.wire.commands import ProtocolError
from sarit.wire.frames import FrameReader, Window
from sarit.wire.limits import (
    COPIED_FRAME_BYTES,
    FIRST_RECEIVE_WINDOW_BYTES,
    FRAME_PIECE_BYTES,
    LARGE_FRAME_BYTES,
    MAX_WIRE_PAYLOAD_BYTES,
    RECEIVE_WINDOW_BYTES,
    SMALL_RECEIVE_WINDOW_BYTES,
)
from tests.limits import examples

SIZES = [
    0, 1, 7, 8, 100,
    LARGE_FRAME_BYTES - 9, LARGE_FRAME_BYTES - 1, LARGE_FRAME_BYTES, LARGE_FRAME_BYTES + 1,
    SMALL_RECEIVE_WINDOW_BYTES, RECEIVE_WINDOW_BYTES - 8, RECEIVE_WINDOW_BYTES,
    FRAME_PIECE_BYTES - 1, FRAME_PIECE_BYTES, FRAME_PIECE_BYTES + 1, 2 * FRAME_PIECE_BYTES, 5 * FRAME_PIECE_BYTES + 3,
]  # fmt: skip
POOL = random.Random(7).randbytes(6 * FRAME_PIECE_BYTES)


def _frame(code, size, at=0):
    payload = POOL[at : at + size]
    return (code, payload), struct.pack(">ii", code, size) + payload


def _stream(sizes):
    made = [_frame(code, size, code) for code, size in enumerate(sizes)]
    return [frame for frame, _ in made], b"".join(raw for _, raw in made)


def _receive(reader, raw, reads):
    """Feed as a socket does: at most the buffer offered, at most what the network has."""
    frames, at = [], 0
    while at < len(raw):
        buffer = reader.get_buffer(-1)
        assert len(buffer) > 0
        count = min(len(buffer), len(raw) - at, next(reads))
        buffer[:count] = raw[at : at + count]
        at += count
        frames += reader.received(count)
    return frames


def _forever(size):
    while True:
        yield size


def _plain(frames):
    return [(code, bytes(payload)) for code, payload in frames]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("read", [1000, 64 * KIB, 1 << 30])
def test_frames_of_every_size_are_parsed_at_every_read_length(size, read):
    expected, raw = _stream([size, 3, size, size])
    reader = FrameReader()
    frames = _receive(reader, raw, _forever(read))
    assert _plain(frames) == expected
    assert reader.buffered_bytes == 0


def test_byte_by_byte():
    expected, raw = _stream([0, 5, LARGE_FRAME_BYTES, 0, 0, 2])
    assert _plain(_receive(FrameReader(), raw, _forever(1))) == expected


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(SIZES[:-3]) | st.integers(0, 3 * LARGE_FRAME_BYTES), max_size=12), st.randoms())
def test_frames_are_parsed_from_any_pieces(sizes, chance):
    expected, raw = _stream(sizes)
    reads = iter(lambda: chance.choice([1, 7, 8, 9, 100, 5000, 70_000, 1 << 20]), None)
    reader = FrameReader()
    assert _plain(_receive(reader, raw, reads)) == expected
    assert reader.buffered_bytes == 0


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.lists(st.sampled_from(SIZES[:-3]) | st.integers(0, 3 * LARGE_FRAME_BYTES), max_size=8),
        min_size=2,
        max_size=4,
    ),
    st.randoms(),
)
def test_readers_sharing_a_window_do_not_mix_frames(streams, chance):
    window = Window()
    made = [_stream(sizes) for sizes in streams]
    readers = [FrameReader(window) for _ in made]
    found, sent = [[] for _ in made], [0] * len(made)
    while left := [at for at, (_, raw) in enumerate(made) if sent[at] < len(raw)]:
        at = chance.choice(left)
        part = made[at][1][sent[at] : sent[at] + chance.choice([1, 7, 9, 100, 5000, 70_000, 1 << 20])]
        buffer = readers[at].get_buffer(-1)
        part = part[: len(buffer)]
        buffer[: len(part)] = part
        found[at] += readers[at].received(len(part))
        sent[at] += len(part)
    assert [_plain(frames) for frames in found] == [expected for expected, _ in made]
    assert [reader.buffered_bytes for reader in readers] == [0] * len(made)


@pytest.mark.parametrize("size", [2 * LARGE_FRAME_BYTES, COPIED_FRAME_BYTES])
def test_copied_frame_needs_one_read(size):
    """As a socket gives it: the second read, that finds nothing more, is made when the first filled its buffer."""
    expected, raw = _stream([size] * 5)
    reader, frames = FrameReader(), []
    for at in range(0, len(raw), 8 + size):
        rest, reads = raw[at : at + 8 + size], 0
        while rest:
            buffer = reader.get_buffer(-1)
            part, rest = rest[: len(buffer)], rest[len(buffer) :]
            buffer[: len(part)] = part
            frames += reader.received(len(part))
            reads += 1 + (len(part) == len(buffer) and not rest)
        assert reads == 1 or at == 0
    assert _plain(frames) == expected


@pytest.mark.parametrize("sizes", [[100] * 5000, [LARGE_FRAME_BYTES] * 40, [256 * KIB] * 8])
def test_feeding_all_at_once(sizes):
    expected, raw = _stream(sizes)
    assert _plain(FrameReader().feed(raw)) == expected


def test_partial_frames_are_buffered():
    reader = FrameReader()
    _, raw = _frame(9, 5 * FRAME_PIECE_BYTES)
    for cut in (4, 8, 1000, LARGE_FRAME_BYTES, FRAME_PIECE_BYTES + 8, 3 * FRAME_PIECE_BYTES):
        reader = FrameReader()
        assert reader.feed(raw[:cut]) == []
        assert reader.buffered_bytes == (cut if cut < 8 else cut - 8)
        ((code, payload),) = reader.feed(raw[cut:])
        assert (code, payload) == (9, raw[8:])


def test_returned_payloads_are_not_modified():
    sizes = [10, LARGE_FRAME_BYTES, 2 * LARGE_FRAME_BYTES, 3 * FRAME_PIECE_BYTES, 10]
    expected, raw = _stream(sizes)
    reader = FrameReader()
    kept = reader.feed(raw)
    for _ in range(3):
        reader.feed(struct.pack(">ii", 1, 300_000) + b"\xff" * 300_000)
        reader.feed(struct.pack(">ii", 1, 10) * 1 + b"\xff" * 10)
    assert _plain(kept) == expected


def test_large_payload_is_received_into_its_own_buffer():
    reader = FrameReader()
    size = 200 * KIB
    (_, payload), raw = _frame(3, size)
    # What a connection has delivered once, it gets at once.
    reader.feed(raw)
    assert reader.feed(raw[:100]) == []
    buffer = reader.get_buffer(-1)
    assert len(buffer) == size - 92
    ((_, received),) = reader.feed(raw[100:])
    assert received.obj is buffer.obj
    assert isinstance(received, memoryview)
    assert len(received.obj) == size
    assert received == payload


def test_small_payloads_are_bytes():
    (frame,) = FrameReader().feed(_frame(1, LARGE_FRAME_BYTES - 1)[1])
    assert type(frame[1]) is bytes


def test_the_window_grows_for_small_frames_and_shrinks_for_large_ones():
    reader = FrameReader()
    assert len(reader.get_buffer(-1)) == FIRST_RECEIVE_WINDOW_BYTES
    reader.feed(_stream([100] * 20_000)[1])
    assert len(reader.get_buffer(-1)) == RECEIVE_WINDOW_BYTES
    reader.feed(_frame(1, RECEIVE_WINDOW_BYTES + 1)[1])
    assert len(reader.get_buffer(-1)) == SMALL_RECEIVE_WINDOW_BYTES
    reader.feed(_frame(1, COPIED_FRAME_BYTES)[1])
    assert len(reader.get_buffer(-1)) == 2 * COPIED_FRAME_BYTES


def test_announced_length_allocates_no_memory():
    reader = FrameReader()
    reader.feed(struct.pack(">ii", 3, MAX_WIRE_PAYLOAD_BYTES))
    assert len(reader.get_buffer(-1)) <= MIB
    reader.feed(bytes(3 * MIB))
    assert len(reader.get_buffer(-1)) <= MIB
    assert reader.buffered_bytes == 3 * MIB


@pytest.mark.parametrize("delivered", [0, 100 * KIB])
def test_memory_of_an_incomplete_frame_follows_the_bytes_that_came(delivered):
    """1 MiB was allocated for a frame that had announced it, whatever came of it."""
    reader = FrameReader()
    reader.feed(_frame(1, delivered)[1])
    reader.feed(struct.pack(">ii", 3, MAX_WIRE_PAYLOAD_BYTES))
    for came in (0, 1000, 20_000, 50_000, 300_000, 900_000, 2_500_000):
        reader.feed(bytes(came - reader.buffered_bytes))
        assert reader.buffered_bytes == came
        least = max(LARGE_FRAME_BYTES, delivered)
        assert came <= reader.held_bytes <= max(least, came + min(max(2 * came, least), FRAME_PIECE_BYTES))
    reader.feed(bytes(MAX_WIRE_PAYLOAD_BYTES - reader.buffered_bytes))
    assert reader.held_bytes == 0
    reader.feed(struct.pack(">ii", 3, 100_000) + bytes(50_000))
    reader.release()
    assert reader.held_bytes == reader.buffered_bytes == 0


def test_the_longest_frame():
    ((code, payload),) = FrameReader().feed(
        struct.pack(">ii", 3, MAX_WIRE_PAYLOAD_BYTES) + bytes(MAX_WIRE_PAYLOAD_BYTES)
    )
    assert (code, len(payload)) == (3, MAX_WIRE_PAYLOAD_BYTES)


@pytest.mark.parametrize("length", [-1, -(1 << 31), MAX_WIRE_PAYLOAD_BYTES + 1, (1 << 31) - 1])
@pytest.mark.parametrize("before", [b"", struct.pack(">ii", 100, 0)])
def test_lengths_out_of_bounds_end_it(length, before):
    reader = FrameReader()
    with pytest.raises(ProtocolError, match=str(length)):
        reader.feed(before + struct.pack(">ii", 3, length))
    with pytest.raises(ProtocolError):
        reader.feed(struct.pack(">ii", 100, 0))
    assert "failed" in repr(reader)


@pytest.mark.parametrize("greeting", [b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\xff" * 64])
def test_other_protocols_are_refused_at_once(greeting):
    with pytest.raises(ProtocolError):
        FrameReader().feed(greeting)


@settings(max_examples=examples(200))
@given(st.binary(max_size=300))
def test_random_bytes_are_harmless(raw):
    reader = FrameReader()
    try:
        frames = reader.feed(raw)
    except ProtocolError:
        return
    whole = sum(8 + len(payload) for _, payload in frames)
    assert whole <= len(raw)
    assert raw.startswith(b"".join(struct.pack(">ii", code, len(payload)) + payload for code, payload in frames))
