"""The key space among lanes."""

import pytest

from sarit.client.writer.key_ranges import CACHED_KEYS, Slots
from sarit.core.errors import Corrupt
from sarit.core.keyspace import hash_key


def test_a_key_goes_where_its_hash_falls_and_a_bound_belongs_below() -> None:
    slots = Slots([(0.5, 1.0, "b"), (0.0, 0.5, "a")])
    assert (slots.at(0.0), slots.at(0.5), slots.at(0.5000001), slots.at(1.0)) == ("a", "a", "b", "b")
    for key in ("a", "key", "pravega", "日本"):
        assert slots.of_key[key] == ("a" if hash_key(key) <= 0.5 else "b")
    assert slots.only is None
    assert Slots([(0.0, 1.0, "x")]).only == "x"


@pytest.mark.parametrize(
    "ranges", [[(0.0, 0.4, "a"), (0.5, 1.0, "b")], [(0.0, 0.5, "a")], [(0.0, 0.6, "a"), (0.5, 1.0, "b")]]
)
def test_a_stream_with_a_hole_is_refused(ranges) -> None:
    with pytest.raises(Corrupt):
        Slots(ranges)


def test_a_split_hands_a_lane_to_its_successors() -> None:
    slots = Slots([(0.0, 0.5, "a"), (0.5, 1.0, "b")])
    assert slots.of_key["a"] == "b"
    slots.replace("b", [(0.5, 0.75, "c"), (0.75, 1.0, "d")])
    assert [slots.at(place) for place in (0.2, 0.6, 0.9)] == ["a", "c", "d"]
    assert slots.of_key["a"] == "d"


def test_a_merge_moves_only_the_lane_known_to_be_sealed() -> None:
    slots = Slots([(0.0, 0.5, "a"), (0.5, 1.0, "b")])
    slots.replace("a", [(0.0, 1.0, "c")])
    assert [slots.at(place) for place in (0.2, 0.7)] == ["c", "b"]
    assert slots.only is None
    slots.replace("b", [(0.0, 1.0, "c")])
    assert [slots.at(place) for place in (0.2, 0.7)] == ["c", "c"]
    assert slots.only == "c"


def test_two_scales_seen_in_the_wrong_order() -> None:
    slots = Slots([(0.0, 0.5, "a"), (0.5, 1.0, "b")])
    slots.replace("a", [(0.0, 1.0, "c")])
    slots.replace("c", [(0.0, 0.25, "d"), (0.25, 1.0, "e")])
    assert [slots.at(place) for place in (0.2, 0.3, 0.7)] == ["d", "e", "b"]
    slots.replace("b", [(0.0, 1.0, "c2")])
    assert slots.at(0.7) == "c2"


def test_recent_keys_are_bounded() -> None:
    slots = Slots([(0.0, 1.0, "x")])
    for number in range(CACHED_KEYS + 10):
        assert slots.of_key[str(number)] == "x"
    assert len(slots.of_key) <= CACHED_KEYS
