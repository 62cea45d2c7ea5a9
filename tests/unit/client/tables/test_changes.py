"""Keys, batches, and which changes are sent in one request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.client.core.values import SegmentRange
from sarit.client.limits import MAX_COALESCED_BYTES
from sarit.client.tables.changes import MAX_BATCH_KEYS, Insert, Put, Remove, Replace, batch_of, coalescible, item_of
from sarit.client.tables.layout import Entry, Layout, TableConfig, following
from sarit.core.errors import Invalid
from sarit.core.keyspace import split_evenly
from sarit.core.limits import MAX_TABLE_VALUE_BYTES, NOT_EXISTS
from sarit.core.names import SegmentId
from sarit.wire.limits import NO_VERSION


def layout(primary=2, secondary=0, partitions=1):
    ranges = split_evenly(partitions)
    segments = [SegmentRange(SegmentId(0, n), part.low, part.high) for n, part in enumerate(ranges)]
    return Layout(TableConfig(primary, secondary, partitions), segments)


def coalescible_of(*changes):
    return coalescible([batch_of(layout(), one if isinstance(one, list) else [one]) for one in changes])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Put(b"abc", b""), "have 2 bytes, not 3"),
        (Put("a", b""), "have 2 bytes, not 1"),
        (Put(("ab", "c"), b""), "secondary keys of this table have 0 bytes"),
        (Put(("ab", "c", "d"), b""), "not 3 parts"),
        (Put(12, b""), "not int"),
        (Put("ab", None), "not NoneType"),
        (Put("ab", bytes(MAX_TABLE_VALUE_BYTES + 1)), "at most"),
        (Replace("ab", b"", -1), "use insert"),
        (Remove("ab", -1), "no version"),
    ],
)
def test_invalid_changes_are_refused_before_sending(change, said):
    with pytest.raises(Invalid, match=said):
        item_of(layout(), change)


def test_conditions_have_the_values_of_the_protocol():
    found = [item_of(layout(), each).expected for each in (Put("ab", ""), Insert("ab", ""), Replace("ab", "", 7))]
    assert found == [NO_VERSION, NOT_EXISTS, 7]
    assert [item_of(layout(), Remove("ab", each)).expected for each in (None, 7)] == [NO_VERSION, 7]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([], "1 to 256 keys, not 0"),
        ([Put("ab", "")] * (MAX_BATCH_KEYS + 1), "not 257"),
        ([Put("ab", bytes(MAX_TABLE_VALUE_BYTES))] * 17, "bytes of keys and values"),
        ([Put("ab", ""), Remove("cd")], "either writes or removes"),
    ],
)
def test_invalid_batches_are_refused(changes, said):
    with pytest.raises(Invalid, match=said):
        batch_of(layout(), changes)


def test_batch_has_one_partition():
    many = layout(partitions=16)
    with pytest.raises(Invalid, match="several partitions"):
        batch_of(many, [Put(f"{n:02}", "") for n in range(16)])
    pairs = layout(2, 3, partitions=16)
    batch = batch_of(pairs, [Put(("ab", f"{n:03}"), "") for n in range(16)])
    assert batch.partition == pairs.partition(b"ab999")


def test_changes_are_coalesced_while_the_result_is_the_same():
    assert coalescible_of(Put("aa", ""), Put("bb", ""), Put("aa", "")) == 3
    assert coalescible_of(Put("aa", ""), Remove("bb"), Put("cc", "")) == 1
    assert coalescible_of(Remove("aa"), Remove("aa"), Put("cc", "")) == 2
    assert coalescible_of(Insert("aa", ""), Insert("bb", ""), Insert("aa", "")) == 2
    assert coalescible_of(Put("aa", ""), Insert("aa", "")) == 1
    assert coalescible_of(Replace("aa", "", 1), Put("bb", ""), Put("aa", "")) == 2
    assert coalescible_of([Put("aa", "")] * 200, [Put("bb", "")] * 57, Put("cc", "")) == 1
    assert coalescible_of(Put("aa", bytes(MAX_COALESCED_BYTES // 2)), Put("bb", bytes(MAX_COALESCED_BYTES // 2))) == 1


def test_repeatable_batches():
    assert batch_of(layout(), [Put("aa", "")]).repeatable
    assert batch_of(layout(), [Insert("aa", ""), Replace("bb", "", 4)]).repeatable
    assert not batch_of(layout(), [Insert("aa", "")]).repeatable
    assert not batch_of(layout(), [Put("bb", ""), Insert("aa", "")]).repeatable


def test_bounds_shorter_than_keys_are_prefixes():
    pairs = layout(2, 3)
    assert pairs.bounds(None, None, None, None) == (bytes(5), b"\xff" * 5)
    assert pairs.bounds(None, "b", "c", None) == (b"b\0\0\0\0", b"c\xff\xff\xff\xff")
    assert pairs.bounds("ab", None, "c", None) == (b"ab\0\0\0", b"abc\xff\xff")
    assert pairs.bounds("ab", None, None, "xy") == (b"abxy\0", b"abxy\xff")
    for wrong in (
        ("a", None, None, None),
        (None, "abc", None, None),
        (None, "a", None, "a"),
        ("ab", "xxxx", None, None),
    ):
        with pytest.raises(Invalid):
            pairs.bounds(*wrong)


@given(st.binary(min_size=1, max_size=6))
def test_following_key_is_adjacent(key):
    after = following(key)
    if after is None:
        assert set(key) == {255}
    else:
        assert len(after) == len(key)
        assert after > key
        assert int.from_bytes(after, "big") - int.from_bytes(key, "big") == 1


def test_entry_returns_its_key():
    assert Entry(b"a", b"b", b"", 1).key == (b"a", b"b")
    assert Entry(b"a", b"", b"", 1).key == b"a"
