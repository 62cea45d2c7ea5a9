"""Where appends began: thinned, packed, joined and found."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sarit.core.limits import BOUNDARY_STEP_BYTES
from sarit.storage.limits import APPEND_START_BYTES, CHUNK_TARGET_BYTES
from sarit.storage.starts import FIRST, NONE, first_at_or_after, join, pack, thin, unpack

STEP = 10
lengths_of_appends = st.lists(st.integers(1, 25), max_size=60)


def starts_of(lengths: list[int]) -> tuple[list[int], int]:
    at, starts = 0, []
    for length in lengths:
        starts.append(at)
        at += length
    return starts, at


def check_steps(known: list[int], starts: list[int], end: int) -> None:
    """No step is longer than STEP, unless no append began within it."""
    assert set(known) <= set(starts)
    for before, after in pairwise([*known, end]):
        assert after - before <= STEP or not [start for start in starts if before < start < after]


@given(lengths_of_appends)
def test_steps_are_short_and_places_are_few(lengths):
    starts, end = starts_of(lengths)
    kept = list(unpack(thin(starts, end, STEP)))
    assert kept[:1] == starts[:1]
    check_steps(kept, starts, end)
    assert len(kept) <= 2 * end / STEP + 1
    assert all(third - first > STEP for first, third in zip(kept, kept[2:], strict=False))


@given(st.lists(lengths_of_appends, max_size=9), st.integers(1, 4))
def test_joining_again_and_again_does_not_lengthen_steps(runs, group):
    placed, whole, end = [], [], 0
    for lengths in runs:
        starts, length = starts_of(lengths)
        whole += [end + start for start in starts]
        placed.append((end, length, thin(starts, length, STEP)))
        end += length
    while len(placed) > 1:
        first, placed = placed[: group + 1], placed[group + 1 :]
        begin, length = first[0][0], sum(one[1] for one in first)
        joined = join(((at - begin, packed) for at, _, packed in first), length, STEP)
        placed.insert(0, (begin, length, joined))
    known = [at + start for at, _, packed in placed for start in unpack(packed)]
    check_steps(known, whole, end)


@given(st.sets(st.integers(0, 1 << 32 - 1), max_size=50), st.integers(-3, 1 << 32))
def test_the_first_place_at_or_after_an_offset_is_found(places, offset):
    starts = sorted(places)
    expected = min((start for start in starts if start >= offset), default=None)
    assert first_at_or_after(pack(starts), offset) == expected
    for near in starts[:5]:
        assert first_at_or_after(pack(starts), near) == near
    assert list(unpack(pack(starts))) == starts


def test_one_place_and_none():
    assert unpack(FIRST) == (0,)
    assert unpack(NONE) == ()
    assert first_at_or_after(FIRST, 0) == 0
    assert first_at_or_after(FIRST, 1) is None
    assert first_at_or_after(NONE, 0) is None
    assert first_at_or_after(NONE, -5) is None


def test_a_chunk_of_small_appends_has_4_bytes_a_step():
    starts = list(range(0, CHUNK_TARGET_BYTES, 108))
    packed = thin(starts, CHUNK_TARGET_BYTES, BOUNDARY_STEP_BYTES)
    assert len(packed) <= APPEND_START_BYTES * (CHUNK_TARGET_BYTES // BOUNDARY_STEP_BYTES + 1)
