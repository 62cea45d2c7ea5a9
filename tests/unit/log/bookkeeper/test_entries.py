"""Frames as entries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.errors import Corrupt, Invalid
from sarit.log.bookkeeper.entries import HEADER_BYTES, FrameJoiner, parse, split, without_frame


def joined(parts):
    return memoryview(b"".join(parts))


@given(st.lists(st.binary(max_size=200), max_size=8), st.integers(HEADER_BYTES + 1, 120))
def test_entries_of_a_frame_give_it_again(payload, entry_bytes):
    entries = split(7, 3, 12, payload, entry_bytes)
    assert all(sum(map(len, entry)) <= entry_bytes for entry in entries)
    joiner = FrameJoiner()
    assert joiner.add(parse(joined(without_frame(7, 3, 11)), 7)) is None
    found = [joiner.add(parse(joined(entry), 7)) for entry in entries]
    assert found[:-1] == [None] * (len(entries) - 1)
    assert found[-1] == b"".join(payload)


def test_missing_part_is_corrupt_and_incomplete_end_is_dropped():
    entries = [parse(joined(each), 7) for each in split(7, 3, 12, [b"x" * 100], 60)]
    assert len(entries) == 3
    joiner = FrameJoiner()
    joiner.add(entries[0])
    with pytest.raises(Corrupt, match="lacks"):
        joiner.add(entries[2])
    joiner = FrameJoiner()
    joiner.add(entries[0])
    assert [joiner.add(each) for each in entries][-1] == b"x" * 100


def test_entries_of_others_are_refused():
    entry = b"".join(split(7, 3, 12, [b"x"])[0])
    with pytest.raises(Corrupt, match="container 8"):
        parse(memoryview(entry), 8)
    with pytest.raises(Corrupt, match="too short"):
        parse(memoryview(entry[:10]), 7)
    with pytest.raises(Invalid, match="format 2"):
        parse(memoryview(b"\x02" + entry[1:]), 7)
