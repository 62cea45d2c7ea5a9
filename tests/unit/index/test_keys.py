"""Index keys: golden bytes, order, and parsers that refuse foreign keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.errors import Corrupt
from sarit.index import keys

ID = 0x0102
WRITER = bytes(range(16))
HEAD = "0000000000000102"

ids = st.integers(0, keys.MAX_SEGMENT_ID)
numbers = st.integers(0, (1 << 63) - 1)

# Vectors of docs/formats/sqlite-index.md.
GOLDEN = [
    (keys.segment_key(ID), "73" + HEAD),
    (keys.name_key("s/é"), "6e732fc3a9"),
    (keys.attribute_key(ID, WRITER), "61" + HEAD + WRITER.hex()),
    (keys.extent_key(ID, 4096), "63" + HEAD + "0000000000001000"),
    (keys.inlined_key(ID, 4096), "69" + HEAD + "0000000000001000"),
    (keys.entry_key(ID, b"key"), "6b" + HEAD + "6b6579"),
    (keys.version_key(ID, 77), "76" + HEAD + "000000000000004d"),
    (keys.garbage_key("c0/1/a"), "6763302f312f61"),
    (keys.piece_key("a/1-p@000000004096"), "70612f312d7040303030303030303034303936"),
    (keys.piece_value(ID, 8192, 3, 8192), HEAD + "0000000000002000" + "0000000000000003" + "0000000000002000"),
    (keys.meta_key("frame"), "6d6672616d65"),
    (keys.id_value(ID), HEAD),
    (keys.attribute_value(-2), "fffffffffffffffe"),
    (keys.entry_value(77, b"value"), "000000000000004d76616c7565"),
]


@pytest.mark.parametrize(("made", "golden"), GOLDEN, ids=[hexed[:2] + str(at) for at, (_, hexed) in enumerate(GOLDEN)])
def test_golden_bytes(made, golden):
    assert made.hex() == golden


@given(ids, numbers, st.binary(min_size=16, max_size=16), st.text(), st.binary(max_size=40))
def test_parsers_are_inverses(segment, number, attribute, text, key):
    assert keys.parse_segment_key(keys.segment_key(segment)) == segment
    assert keys.parse_name_key(keys.name_key(text)) == text
    assert keys.parse_attribute_key(keys.attribute_key(segment, attribute)) == (segment, attribute)
    assert keys.parse_extent_key(keys.extent_key(segment, number)) == (segment, number)
    assert keys.parse_inlined_key(keys.inlined_key(segment, number)) == (segment, number)
    assert keys.parse_entry_key(keys.entry_key(segment, key)) == (segment, key)
    assert keys.parse_version_key(keys.version_key(segment, number)) == (segment, number)
    assert keys.parse_garbage_key(keys.garbage_key(text)) == text
    assert keys.parse_piece_key(keys.piece_key(f"a-p@{number:012d}")) == f"a-p@{number:012d}"
    assert keys.parse_piece_value(keys.piece_value(segment, number, 1, 2)) == (segment, number, 1, 2)
    assert keys.parse_meta_key(keys.meta_key(text)) == text
    assert keys.parse_id_value(keys.id_value(segment)) == segment
    assert keys.parse_attribute_value(keys.attribute_value(-number - 1)) == -number - 1
    assert keys.parse_entry_value(keys.entry_value(number, key)) == (number, key)


@given(ids, ids, numbers, numbers)
def test_byte_order_is_numeric_order(one, other, first, second):
    assert (keys.extent_key(one, first) < keys.extent_key(other, second)) == ((one, first) < (other, second))


@given(ids, ids, st.binary(max_size=20))
def test_segment_range_holds_only_its_records(segment, other, key):
    start, end = keys.segment_range(keys.ENTRY, segment)
    assert start <= keys.entry_key(segment, key) < end
    assert (start <= keys.entry_key(other, key) < end) == (segment == other)
    assert not any(low <= keys.segment_key(segment) < high for low, high in keys.ranges_of_segment(segment))


def test_ranges_end_before_what_they_exclude():
    start, end = keys.offset_range(keys.EXTENT, ID, 10, 20)
    assert [start <= keys.extent_key(ID, at) < end for at in (9, 10, 19, 20)] == [False, True, True, False]
    start, end = keys.entry_range(ID, b"b", b"d")
    assert [start <= keys.entry_key(ID, key) < end for key in (b"a", b"b", b"cc", b"d")] == [False, True, True, False]
    start, end = keys.entry_range(ID, b"b")
    assert start <= keys.entry_key(ID, b"\xff" * 9) < end
    start, end = keys.kind_range(keys.GARBAGE)
    assert start <= keys.garbage_key("~") < end <= keys.inlined_key(0, 0)
    assert keys.entry_key(ID, b"b") < keys.after(keys.entry_key(ID, b"b")) <= keys.entry_key(ID, b"b\0")


@pytest.mark.parametrize(
    "parse",
    [
        keys.parse_segment_key, keys.parse_name_key, keys.parse_attribute_key, keys.parse_extent_key,
        keys.parse_inlined_key, keys.parse_entry_key, keys.parse_version_key, keys.parse_garbage_key,
        keys.parse_meta_key,
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", [b"", b"x", b"x" * 9, b"x" * 17, b"x" * 25, b"n\xff", b"g\xff", b"m\xff"])
def test_foreign_keys_are_corrupt(parse, key):
    with pytest.raises(Corrupt):
        parse(key)


@pytest.mark.parametrize("parse", [keys.parse_id_value, keys.parse_attribute_value, keys.parse_entry_value])
def test_short_values_are_corrupt(parse):
    with pytest.raises(Corrupt):
        parse(b"1234567")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (keys.segment_key(7), "segment 7"),
        (keys.name_key("s/é"), "the name s/é"),
        (keys.attribute_key(7, bytes(16)), f"attribute {bytes(16).hex()} of segment 7"),
        (keys.extent_key(7, 4096), "the extent at offset 4096 of segment 7"),
        (keys.inlined_key(7, 4096), "the extent at offset 4096 of segment 7"),
        (keys.entry_key(7, b"key"), "the entry with key 6b6579 of table segment 7"),
        (keys.version_key(7, 77), "the entry with version 77 of table segment 7"),
        (keys.garbage_key("c0/1/a"), "garbage chunk c0/1/a"),
        (keys.meta_key("frame"), "meta value frame"),
        (b"n\xff", r"the name \xff"),
        (b"s\x01", "an unknown kind (key 7301)"),
        (b"", "an unknown kind (key )"),
    ],
)
def test_a_key_is_described(key, text):
    assert keys.describe(key) == text
