"""Sealed values: golden bytes, and every flipped bit is noticed."""

import pytest

from sarit.core.errors import Corrupt
from sarit.index.keys import meta_key
from sarit.index.port import DamagedRecord
from sarit.index.record_seals import is_whole, seal, unseal

KEY, VALUE = meta_key("frame"), bytes(7) + b"\x11"


def test_golden_bytes():
    """The vector of docs/formats/sqlite-index.md."""
    assert seal(KEY, VALUE).hex() == "9147d35b0000000000000011"
    assert unseal(KEY, seal(KEY, VALUE)) == VALUE
    assert unseal(b"", seal(b"", b"")) == b""


def test_every_flipped_bit_of_key_and_value_is_noticed():
    for size in (0, 1, 8, 100):
        sealed = seal(KEY, bytes(size))
        for bit in range(8 * (len(KEY) + len(sealed))):
            both = bytearray(KEY + sealed)
            both[bit // 8] ^= 1 << bit % 8
            assert not is_whole(bytes(both[: len(KEY)]), bytes(both[len(KEY) :])), bit


def test_bytes_that_move_between_key_and_stored_value_are_noticed():
    assert not is_whole(b"a", b"b" + seal(b"ab", b"c"))
    assert not is_whole(b"ab" + seal(b"ab", b"c")[:1], seal(b"ab", b"c")[1:])


def test_the_error_names_the_record():
    with pytest.raises(DamagedRecord, match="meta value frame is damaged") as caught:
        unseal(KEY, b"abc")
    assert isinstance(caught.value, Corrupt)
    assert caught.value.key == KEY


@pytest.mark.parametrize("stored", [None, "text", 5, b"", b"abc", 1.5])
def test_what_is_no_sealed_value_is_not_whole(stored):
    assert not is_whole(KEY, stored)
