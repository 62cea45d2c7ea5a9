"""Frames of byte streams, and the plan of an epoch."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.errors import Corrupt, Invalid
from sarit.core.names import StreamName
from sarit.training.frames import FixedFrames, PrefixedFrames, frame_batch
from sarit.training.plan import Part, Plan, plan_of
from tests.limits import examples

NAME = StreamName("s", "t")


def plan(parts, piece_bytes: int = 1024, frame_bytes: int = 0) -> Plan:
    return plan_of(NAME, ("head", "tail"), "", parts, piece_bytes, frame_bytes)


@settings(max_examples=examples(100))
@given(st.lists(st.binary(max_size=300), max_size=20), st.sampled_from([2, 4, 8]), st.booleans(), st.data())
def test_prefixed_frames_come_back_from_any_pieces(values, prefix, big, data) -> None:
    frames = PrefixedFrames(prefix, "big" if big else "little")
    stream = b"".join(len(value).to_bytes(prefix, frames.byteorder) + value for value in values)
    found, offsets, rest, at = [], [], b"", 100
    while stream or rest:
        cut = data.draw(st.integers(1, 200))
        rest, stream = rest + stream[:cut], stream[cut:]
        batch, used = frame_batch(frames, rest, at, 5)
        rest, at = rest[used:], at + used
        if batch is not None:
            found += batch.column(0).to_pylist()
            offsets += batch.column(2).to_pylist()
    assert found == values
    assert offsets == [100 + sum(len(value) + prefix for value in values[:n]) for n in range(len(values))]


def test_fixed_frames_leave_the_rest() -> None:
    batch, used = frame_batch(FixedFrames(3), b"abcdefgh", 6, 1)
    assert batch is not None
    assert (batch.column(0).to_pylist(), batch.column(2).to_pylist(), used) == ([b"abc", b"def"], [6, 9], 6)
    assert frame_batch(FixedFrames(3), b"ab", 6, 1) == (None, 0)


def test_length_that_no_frame_may_have_is_refused() -> None:
    with pytest.raises(Corrupt, match="a frame of 4294967295 bytes, and 268435456 are allowed"):
        frame_batch(PrefixedFrames(), b"\xff" * 10, 0, 0)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: FixedFrames(0), "frames of 0 bytes"),
        (lambda: FixedFrames(1 << 40), "frames of"),
        (lambda: PrefixedFrames(3), "give 1, 2, 4 or 8"),
        (lambda: PrefixedFrames(4, "none"), "give big or little"),
        (lambda: PrefixedFrames(max_frame_bytes=-1), "frames of up to -1"),
        (lambda: plan([Part(0, 5, 5), Part(0, 0, 9), Part(0, 9, 12)]), "names a segment twice"),
        (lambda: plan([Part(0, 9, 5)]), "from 9 to 5"),
        (lambda: plan([Part(0, 0, 10)], frame_bytes=3), "no whole frames of 3"),
        (lambda: plan([Part(0, 0, 1 << 60)]), "is too long"),
        (lambda: plan([], 5), "too short"),
        (lambda: plan([]).piece(0), "piece 0 of a plan of 0"),
    ],
)
def test_wrong_choices_are_refused(make, text) -> None:
    with pytest.raises(Invalid, match=text):
        make()


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 50_000)), max_size=5, unique_by=lambda p: p[0]))
def test_pieces_tile_the_parts(parts) -> None:
    made = plan([Part(segment, segment % 7, segment % 7 + length) for segment, length in parts])
    pieces = [made.piece(number) for number in range(len(made))]
    for before, after in itertools.pairwise(pieces):
        assert before.high == after.low if before.part == after.part else before.high == before.part.end
    assert sum(piece.high - piece.low for piece in pieces) == made.total_bytes
    assert all(0 < piece.high - piece.low <= 1024 for piece in pieces)
    assert Plan.from_dict(made.to_dict()) == made


def test_pieces_divide_no_frame() -> None:
    made = plan([Part(0, 5, 5 + 700 * 30)], frame_bytes=700)
    assert all((made.piece(n).low - 5) % 700 == 0 for n in range(len(made)))
    assert len(made) == 30
    assert len(plan([Part(0, 5, 50_000)], frame_bytes=-1)) == 1
