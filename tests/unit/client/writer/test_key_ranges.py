"""Key ranges: the key space by appender."""

import pytest

from sarit.client.limits import MAX_CACHED_KEYS
from sarit.client.writer.partitioner import KeyRanges
from sarit.core.errors import Corrupt
from sarit.core.keyspace import hash_key


def test_key_maps_by_hash_and_an_upper_bound_is_inclusive() -> None:
    key_ranges = KeyRanges([(0.5, 1.0, "b"), (0.0, 0.5, "a")])
    assert (key_ranges.at(0.0), key_ranges.at(0.5), key_ranges.at(0.5000001), key_ranges.at(1.0)) == (
        "a",
        "a",
        "b",
        "b",
    )
    for key in ("a", "key", "pravega", "日本"):
        assert key_ranges.of_key[key] == ("a" if hash_key(key) <= 0.5 else "b")
    assert key_ranges.only is None
    assert KeyRanges([(0.0, 1.0, "x")]).only == "x"


@pytest.mark.parametrize(
    "ranges", [[(0.0, 0.4, "a"), (0.5, 1.0, "b")], [(0.0, 0.5, "a")], [(0.0, 0.6, "a"), (0.5, 1.0, "b")]]
)
def test_ranges_with_a_hole_raise_corrupt(ranges) -> None:
    with pytest.raises(Corrupt):
        KeyRanges(ranges)


def test_split_assigns_the_range_to_successors() -> None:
    key_ranges = KeyRanges([(0.0, 0.5, "a"), (0.5, 1.0, "b")])
    assert key_ranges.of_key["a"] == "b"
    key_ranges.replace("b", [(0.5, 0.75, "c"), (0.75, 1.0, "d")])
    assert [key_ranges.at(place) for place in (0.2, 0.6, 0.9)] == ["a", "c", "d"]
    assert key_ranges.of_key["a"] == "d"


def test_merge_replaces_only_the_appender_known_to_be_sealed() -> None:
    key_ranges = KeyRanges([(0.0, 0.5, "a"), (0.5, 1.0, "b")])
    key_ranges.replace("a", [(0.0, 1.0, "c")])
    assert [key_ranges.at(place) for place in (0.2, 0.7)] == ["c", "b"]
    assert key_ranges.only is None
    key_ranges.replace("b", [(0.0, 1.0, "c")])
    assert [key_ranges.at(place) for place in (0.2, 0.7)] == ["c", "c"]
    assert key_ranges.only == "c"


def test_two_scales_seen_out_of_order_keep_ranges_consistent() -> None:
    key_ranges = KeyRanges([(0.0, 0.5, "a"), (0.5, 1.0, "b")])
    key_ranges.replace("a", [(0.0, 1.0, "c")])
    key_ranges.replace("c", [(0.0, 0.25, "d"), (0.25, 1.0, "e")])
    assert [key_ranges.at(place) for place in (0.2, 0.3, 0.7)] == ["d", "e", "b"]
    key_ranges.replace("b", [(0.0, 1.0, "c2")])
    assert key_ranges.at(0.7) == "c2"


def test_key_cache_is_bounded() -> None:
    key_ranges = KeyRanges([(0.0, 1.0, "x")])
    for number in range(MAX_CACHED_KEYS + 10):
        assert key_ranges.of_key[str(number)] == "x"
    assert len(key_ranges.of_key) <= MAX_CACHED_KEYS
