"""Java's compact numbers, versioned objects and strings, from the bytes of the published client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.errors import Invalid
from sarit.core.versioned_objects import (
    Cursor,
    decode_java,
    encode_java,
    pack_int,
    pack_long,
    pack_signed,
    pack_single,
    pack_text,
)


@pytest.mark.parametrize(
    ("pack", "read", "value", "hexed"),
    [
        (pack_int, Cursor.compact_int, 0, "00"),
        (pack_int, Cursor.compact_int, 0x7F, "7f"),
        (pack_int, Cursor.compact_int, 0x80, "8080"),
        (pack_int, Cursor.compact_int, 0x3FFF, "bfff"),
        (pack_int, Cursor.compact_int, 0x4000, "c0004000"),
        (pack_int, Cursor.compact_int, 0x3FFFFFFF, "ffffffff"),
        (pack_long, Cursor.compact_long, 0x3F, "3f"),
        (pack_long, Cursor.compact_long, 0x40, "4040"),
        (pack_long, Cursor.compact_long, 0x3FFF, "7fff"),
        (pack_long, Cursor.compact_long, 0x4000, "80004000"),
        (pack_long, Cursor.compact_long, 0x3FFFFFFF, "bfffffff"),
        (pack_long, Cursor.compact_long, 1 << 32 | 3, "c000000100000003"),
        (pack_long, Cursor.compact_long, (1 << 62) - 1, "ffffffffffffffff"),
        (pack_long, Cursor.compact_long, (1 << 62) - 2, "fffffffffffffffe"),
        (pack_signed, Cursor.compact_signed, 10, "0a"),
        (pack_signed, Cursor.compact_signed, 0x1F, "1f"),
        (pack_signed, Cursor.compact_signed, 0x20, "2020"),
        (pack_signed, Cursor.compact_signed, 300_000, "400493e0"),
        (pack_signed, Cursor.compact_signed, 1 << 29, "6000000020000000"),
        (pack_signed, Cursor.compact_signed, -1, "80"),
        (pack_signed, Cursor.compact_signed, -33, "a020"),
        (pack_signed, Cursor.compact_signed, -0x2001, "c0002000"),
        (pack_signed, Cursor.compact_signed, -(1 << 61), "ffffffffffffffff"),
    ],
)
def test_compact_numbers(pack, read, value, hexed):
    assert pack(value).hex() == hexed
    assert read(Cursor(bytes.fromhex(hexed))) == value


@given(st.integers(0, (1 << 62) - 1), st.integers(0, (1 << 30) - 1), st.integers(-(1 << 61), (1 << 61) - 1))
def test_any_compact_number_comes_back(long, small, signed):
    cursor = Cursor(pack_long(long) + pack_int(small) + pack_signed(signed))
    assert (cursor.compact_long(), cursor.compact_int(), cursor.compact_signed()) == (long, small, signed)
    assert cursor.at_end


@pytest.mark.parametrize(
    ("pack", "value"),
    [
        (pack_int, -1), (pack_int, 1 << 30), (pack_long, -1), (pack_long, 1 << 62),
        (pack_signed, 1 << 61), (pack_signed, -(1 << 61) - 1), (pack_text, "x" * 65_536),
    ],
)  # fmt: skip
def test_values_out_of_bounds(pack, value):
    with pytest.raises(Invalid):
        pack(value)


def test_the_event_pointer_of_java():
    golden = bytes.fromhex("0000010000000012000e732f742f302e2365706f63682e30100d")
    payload = pack_text("s/t/0.#epoch.0") + pack_long(16) + pack_int(13)
    assert pack_single(0, {0: payload}) == golden
    version, revisions = Cursor(golden).single()
    cursor = Cursor(revisions[0])
    assert (version, cursor.text(), cursor.compact_long(), cursor.compact_int()) == (0, "s/t/0.#epoch.0", 16, 13)


def test_two_revisions_in_order():
    packed = pack_single(3, {1: b"later", 0: b"first"})
    assert packed.hex() == "000302" + "0000000005" + b"first".hex() + "0100000005" + b"later".hex()
    assert Cursor(packed).single() == (3, {0: b"first", 1: b"later"})


@pytest.mark.parametrize(
    "read", [Cursor.compact_int, Cursor.compact_long, Cursor.compact_signed, Cursor.text, Cursor.single]
)
@pytest.mark.parametrize("data", [b"", b"\xff", b"\0\1\1\0\xff\xff\xff\xff"])
def test_bytes_that_end_too_soon(read, data):
    if data[:1] == b"\0" and read is not Cursor.single:
        data = b"\xff\xff"
    with pytest.raises(Invalid):
        read(Cursor(data))


@pytest.mark.parametrize(
    ("text", "hexed"),
    [
        ("", ""),
        ("abc", "616263"),
        ("é", "c3a9"),
        ("\0", "c080"),
        ("a\0b", "61c08062"),
        ("日", "e697a5"),
        ("\uffff", "efbfbf"),
        ("\U0001f40d", "eda0bdedb08d"),
        ("x\U00010000\0", "78eda080edb080c080"),
    ],
)
def test_java_strings(text, hexed):
    assert encode_java(text).hex() == hexed
    assert decode_java(bytes.fromhex(hexed)) == text


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.just("\0") | st.characters(min_codepoint=0x10000)))
def test_any_string_comes_back_from_both_kinds(text):
    assert decode_java(encode_java(text)) == text
    assert decode_java(text.encode()) == text
    assert b"\0" not in encode_java(text)


@pytest.mark.parametrize("raw", ["ff", "c3", "80", "eda0bd", "edb08d", "edb08deda0bd", "c0", "c1bf", "f8888080"])
def test_invalid_strings_are_refused(raw):
    with pytest.raises(Invalid):
        decode_java(bytes.fromhex(raw))


@pytest.mark.parametrize("text", ["\ud83d", "a\udc0d\ud83d"])
def test_half_a_surrogate_pair_is_no_string(text):
    with pytest.raises(Invalid):
        encode_java(text)


@given(st.binary(max_size=30))
def test_random_bytes_are_harmless(raw):
    try:
        text = decode_java(raw)
    except Invalid:
        return
    assert decode_java(encode_java(text)) == text
