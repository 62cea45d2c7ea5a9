"""The key space: the same doubles as the Java client, bounds shared to the bit, lookup by high bound."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.errors import Invalid
from sarit.core.keyspace import WHOLE, KeyRange, RangeMap, hash_key, merged, snapped, split_evenly, tiles

# vectors.md, made by the Java client 0.13.0
HASHES = {
    "": 0.24117842791623523,
    "a": 0.9433912753816884,
    "key": 0.8449093464660018,
    "0": 0.8056356837424186,
    "routingKey": 0.9115813645916913,
    "pravega": 0.10840220193269268,
    "é": 0.6688272069632242,
    "日本": 0.34924442974855974,
    "even": 0.5110254613934806,
    "odd": 0.2875225921429889,
}


@pytest.mark.parametrize(("key", "place"), HASHES.items())
def test_golden_hashes(key, place):
    assert hash_key(key) == place


@given(st.text())
def test_every_key_has_a_position(key):
    assert 0.0 <= hash_key(key) < 1.0


def test_key_with_half_a_surrogate_pair_has_a_position():
    assert 0.0 <= hash_key("\ud800") < 1.0


@pytest.mark.parametrize(("low", "high"), [(0.5, 0.5), (0.6, 0.5), (-0.1, 0.5), (0.5, 1.1), (float("nan"), 1.0)])
def test_invalid_ranges_are_refused(low, high):
    with pytest.raises(Invalid):
        KeyRange(low, high)


def test_a_bound_belongs_to_the_range_below():
    lower, upper = WHOLE.split_evenly(2)
    assert 0.0 in lower
    assert 0.5 in lower
    assert 0.5 not in upper
    assert 0.0 not in upper
    assert 1.0 in upper


def test_neighbours_do_not_overlap():
    lower, upper = WHOLE.split_evenly(2)
    assert not lower.overlaps(upper)
    assert not upper.overlaps(lower)
    assert lower.overlaps(KeyRange(0.4, 0.6))
    assert upper.overlaps(KeyRange(0.4, 0.6))
    assert WHOLE.overlaps(lower)


@given(st.integers(1, 2000))
def test_even_splits_tile(count):
    ranges = split_evenly(count)
    assert len(ranges) == count
    assert tiles(ranges)
    assert (ranges[0].low, ranges[-1].high) == (0.0, 1.0)
    assert all(one.high.hex() == other.low.hex() for one, other in itertools.pairwise(ranges))
    assert [part.low for part in ranges] == [part / count for part in range(count)]


places = st.floats(0.0, 1.0, exclude_max=True)


@given(st.lists(places, max_size=8), st.integers(1, 7), st.integers(0, 8))
def test_a_split_range_fits_where_it_was(inner, count, which):
    bounds = sorted({0.0, *inner, 1.0})
    ranges = [KeyRange(low, high) for low, high in itertools.pairwise(bounds)]
    old = ranges.pop(which % len(ranges))
    try:
        parts = old.split_evenly(count)
    except Invalid:
        assert old.high - old.low < 1e-12
        return
    assert merged(parts) == [old]
    assert tiles(ranges + parts)


@pytest.mark.parametrize("count", [0, -1])
def test_split_into_no_parts_is_refused(count):
    with pytest.raises(Invalid):
        split_evenly(count)


def test_a_range_too_narrow_cannot_be_split():
    with pytest.raises(Invalid):
        KeyRange(0.5, 0.5000000000000001).split_evenly(2)


@pytest.mark.parametrize(
    ("bounds", "whole"),
    [
        ([], False),
        ([(0.0, 1.0)], True),
        ([(0.5, 1.0), (0.0, 0.5)], True),
        ([(0.0, 0.5), (0.5000000000000001, 1.0)], False),
        ([(0.0, 0.5), (0.4, 1.0)], False),
        ([(0.0, 0.5), (0.5, 0.9)], False),
        ([(0.1, 0.5), (0.5, 1.0)], False),
        ([(0.0, 1.0), (0.0, 1.0)], False),
        ([(0.0, 1.0), (0.2, 0.3)], False),
    ],
)
def test_tiling(bounds, whole):
    ranges = [KeyRange(low, high) for low, high in bounds]
    assert tiles(ranges) is whole
    if whole:
        RangeMap((part, part) for part in ranges)
    else:
        with pytest.raises(Invalid):
            RangeMap((part, part) for part in ranges)


def test_merging_joins_neighbours_alone():
    a, b, c, d = WHOLE.split_evenly(4)
    assert merged([b, a, d]) == [KeyRange(0.0, 0.5), d]
    assert merged([a, c]) == [a, c]
    assert merged([]) == []
    with pytest.raises(Invalid, match="overlap"):
        merged([a, KeyRange(0.2, 0.3)])


@given(st.integers(1, 40), st.floats(0.0, 1.0))
def test_one_range_owns_every_position(count, place):
    ranges = split_evenly(count)
    owners = [part for part in ranges if place in part]
    assert owners == [RangeMap((part, part) for part in reversed(ranges)).at(place)]


def test_lookup_at_the_bounds():
    owners = RangeMap([(KeyRange(0.25, 1.0), "upper"), (KeyRange(0.0, 0.25), "lower")])
    assert [owners.at(place) for place in (0.0, 0.25, 0.25000000000000006, 1.0)] == ["lower", "lower", "upper", "upper"]
    assert owners.of_key("odd") == "upper"
    assert owners.of_key("pravega") == "lower"
    assert owners.overlapping(KeyRange(0.0, 0.25)) == ["lower"]
    assert owners.overlapping(KeyRange(0.2, 0.3)) == ["lower", "upper"]
    assert "lower" in repr(owners)


def pravegas(count):
    """The bounds of equal ranges, as Pravega computes them."""
    return [(part * (1.0 / count), (part + 1) * (1.0 / count)) for part in range(count)]


@pytest.mark.parametrize("count", range(1, 200))
def test_bounds_rounded_in_another_way_are_those_that_there_are(count):
    ours = split_evenly(count)
    assert snapped(pravegas(count), [keys.low for keys in ours]) == ours
    assert tiles(snapped(pravegas(count), ()))


@given(st.integers(1, 100), st.lists(st.floats(-9e-10, 9e-10), min_size=200, max_size=200))
def test_ranges_with_noise_tile(count, noise):
    noisy = [(low + noise[2 * at], high + noise[2 * at + 1]) for at, (low, high) in enumerate(pravegas(count))]
    # A bound that nobody has is the first one asked for, and the next may be twice as far from it.
    shared = [(low, noisy[at + 1][0] if at + 1 < count else high) for at, (low, high) in enumerate(noisy)]
    assert tiles(snapped(shared, ()))
    ours = split_evenly(count)
    assert snapped(noisy, [keys.low for keys in ours]) == ours


def test_bounds_that_differ_by_more_stay():
    assert snapped([(0.4, 0.5), (0.5 + 2e-9, 0.6)], [0.4, 0.6]) == [KeyRange(0.4, 0.5), KeyRange(0.5 + 2e-9, 0.6)]
    for wrong in [(-1e-8, 1.0), (0.0, 1.0 + 1e-8), (0.5, 0.5), (0.5, 0.4), (float("nan"), 1.0), (0.0, float("inf"))]:
        with pytest.raises(Invalid):
            snapped([wrong], ())
    with pytest.raises(Invalid, match="10000 segments at most"):
        snapped(pravegas(10_001), ())


@given(st.integers(1, 48), st.integers(2, 5))
def test_narrow_ranges_can_be_cut(halvings, parts):
    narrow = KeyRange(0.5, 0.5 + 2.0**-halvings / 2)
    cut = narrow.split_evenly(parts)
    assert snapped([(keys.low, keys.high) for keys in cut], [narrow.low, narrow.high]) == cut
