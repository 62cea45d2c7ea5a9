"""Watermarks: their bytes as Java has them, and when they are made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.controller.model.cuts import follows, is_cut
from sarit.controller.model.epochs import SegmentRange, first_epoch, known_segments, next_epoch
from sarit.controller.model.records import WriterRecord
from sarit.controller.model.watermarks import Noted, Watermark, decode, encode, encode_entry, last_entry, verdict
from sarit.core.errors import Corrupt
from sarit.core.keyspace import KeyRange
from tests.unit.controller.model.histories import histories

GOLDEN = bytes.fromhex(
    "00 00 01 00 00000039"  # versioned, version 0, one revision: number 0 of 57 bytes
    "0000000000000005 0000000000000009"  # lower, upper
    "01"  # one segment
    "00 00 01 00 00000018 0000000000000001 0000000000000000 3ff0000000000000"  # id 1, 0.0 to 1.0
    "000000000000004d"  # offset 77
)
TIME_OUT = 30.0
ONE = (first_epoch(1, 0, 0),)
WHOLE = SegmentRange(0.0, 1.0, 0)
NEW = (1 << 32) + 2


def noted(writer, time, position, idle=0.0, leaving=False):
    return Noted(writer, WriterRecord(time, position, leaving), idle)


def mark(lower, upper, **cut):
    return Watermark(lower, upper, ((WHOLE, cut["at"]),))


def test_the_bytes_are_javas():
    value = Watermark(5, 9, ((SegmentRange(0.0, 1.0, 1), 77),))
    assert encode(value) == GOLDEN
    assert decode(GOLDEN) == value
    assert encode_entry(value) == bytes.fromhex("00000000 00000041") + GOLDEN
    for bad in (b"", GOLDEN[:-1], b"\x01" + GOLDEN[1:], GOLDEN[:1] + b"\x01" + GOLDEN[2:]):
        with pytest.raises(Corrupt):
            decode(bad)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_watermark_or_corrupt(noise):
    for read in (decode, last_entry):
        try:
            read(noise)
        except Corrupt:
            continue


def test_the_last_whole_entry_is_found():
    first, second = mark(1, 2, at=3), mark(4, 5, at=6)
    run = encode_entry(first) + encode_entry(second)
    assert last_entry(b"") is None
    assert last_entry(run) == (len(encode_entry(first)), second)
    assert last_entry(run[:-1]) == (0, first)
    assert last_entry(run + b"\0\0\0") == (len(encode_entry(first)), second)
    with pytest.raises(Corrupt):
        last_entry(run + b"\0\0\0\1\0\0\0\1x")


def test_the_first_mark():
    got = verdict(None, [noted("a", 10, {0: 5}), noted("b", 7, {0: 9})], TIME_OUT, ONE)
    assert got.mark == mark(7, 10, at=9)
    assert got.gone == ()
    assert verdict(None, [], TIME_OUT, ONE).mark is None


def test_every_writer_that_counts_must_have_gone_on():
    last = mark(7, 10, at=9)
    slow = noted("b", 7, {0: 9}, idle=TIME_OUT - 1)
    assert verdict(last, [noted("a", 20, {0: 50}), slow], TIME_OUT, ONE).mark is None
    late = noted("b", 7, {0: 9}, idle=TIME_OUT)
    got = verdict(last, [noted("a", 20, {0: 50}), late], TIME_OUT, ONE)
    assert (got.mark, got.gone) == (mark(20, 20, at=50), ("b",))
    nobody = verdict(last, [late], TIME_OUT, ONE)
    assert (nobody.mark, nobody.gone) == (None, ("b",))


def test_a_writer_that_left_is_taken_in_once_more():
    left = noted("b", 12, {0: 80}, leaving=True)
    got = verdict(mark(7, 10, at=9), [noted("a", 20, {0: 50}), left], TIME_OUT, ONE)
    assert (got.mark, got.gone) == (mark(12, 20, at=80), ())
    got = verdict(got.mark, [noted("a", 21, {0: 51}), left], TIME_OUT, ONE)
    assert (got.mark, got.gone) == (mark(21, 21, at=80), ("b",))


def test_positions_across_a_scale():
    epochs = (ONE[0], next_epoch(ONE[0], [0], KeyRange(0.0, 1.0).split_evenly(2), 0))
    ranges = known_segments(epochs)
    first, second = sorted(s for s in ranges if s)
    got = verdict(mark(1, 1, at=5), [noted("a", 2, {first: 7}), noted("b", 3, {0: 9})], TIME_OUT, epochs)
    assert dict((s.segment, o) for s, o in got.mark.cut) == {first: 7, second: 0}
    old = verdict(mark(1, 1, at=5), [noted("b", 3, {0: 9})], TIME_OUT, epochs)
    assert dict((s.segment, o) for s, o in old.mark.cut) == {0: 9}


def test_positions_in_segments_that_are_no_more_are_let_pass():
    epochs = (first_epoch(1, 5, 0),)
    got = verdict(None, [noted("a", 2, {0: 7, 5: 3}), noted("b", 4, {1: 1})], TIME_OUT, epochs)
    assert got.mark == Watermark(2, 4, ((SegmentRange(0.0, 1.0, 5), 3),))
    assert verdict(None, [noted("b", 4, {1: 1})], TIME_OUT, epochs).mark is None


@given(histories(4), st.data())
def test_marks_go_on_in_time_and_place_and_are_never_above_what_was_noted(epochs, data):
    known = known_segments(epochs)
    positions = st.sampled_from(epochs).flatmap(
        lambda e: st.dictionaries(st.sampled_from(sorted(e.ids)), st.integers(0, 3), min_size=1)
    )
    last, times = None, {}
    for _ in range(data.draw(st.integers(1, 5))):
        for writer in data.draw(st.lists(st.sampled_from("abc"), unique=True)):
            before = times.get(writer)
            time = (0 if before is None else before.record.time) + data.draw(st.integers(0, 3))
            times[writer] = noted(
                writer, time, data.draw(positions), data.draw(st.sampled_from([0.0, 99.0])), data.draw(st.booleans())
            )
        got = verdict(last, list(times.values()), TIME_OUT, epochs)
        if got.mark is not None:
            cut = {s.segment: offset for s, offset in got.mark.cut}
            assert is_cut(known, cut)
            live = [w for w in times.values() if w.writer not in got.gone]
            assert all(got.mark.lower <= w.record.time <= got.mark.upper for w in live)
            assert all(follows(known, {s: o}, cut) for w in live for s, o in w.record.position.items())
            if last is not None:
                assert got.mark.lower > last.lower
                assert follows(known, {s.segment: offset for s, offset in last.cut}, cut)
            last = got.mark
        for writer in got.gone:
            del times[writer]
