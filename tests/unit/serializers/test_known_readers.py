"""Readers by the number in headers: kept, dropped within a bound, unknown for a while."""

from __future__ import annotations

from sarit.serializers.known_readers import KnownReaders, NoReader
from sarit.serializers.limits import UNKNOWN_SCHEMA_SECONDS
from tests.unit.serializers.test_formats import SetClock


def test_unknown_numbers_are_asked_for_again_after_a_while():
    clock = SetClock()
    known = KnownReaders[str](clock)
    assert known.get(7) is None
    assert known.add_missing(7, "not there") == known.get(7) == NoReader("not there", UNKNOWN_SCHEMA_SECONDS)
    clock.seconds = UNKNOWN_SCHEMA_SECONDS - 0.001
    assert isinstance(known.get(7), NoReader)
    clock.seconds = UNKNOWN_SCHEMA_SECONDS
    assert known.get(7) is None
    known.add_missing(7, "still not there")
    assert known.add(7, "reader") == known.get(7) == "reader"


def test_without_a_clock_they_are_never():
    known = KnownReaders[str]()
    known.add_missing(7, "not there")
    assert known.get(7) == NoReader("not there")


def test_numbers_are_bounded_and_unknown_ones_drive_out_no_reader():
    known = KnownReaders[str](most=3)
    for number in range(5):
        known.add(number, f"r{number}")
    assert [known.get(number) for number in range(5)] == [None, None, "r2", "r3", "r4"]
    for number in range(100, 200):
        known.add_missing(number, "")
    assert known.get(2) == "r2"
    assert repr(known) == "<KnownReaders, 3 schemas, 3 unknown>"
