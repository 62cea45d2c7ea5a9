"""Positions of primary keys in the key space, as the published Java client computes them (naming.md par. 3)."""

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.client.tables.layout import key_position
from sarit.core import murmur


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"", 0.42352702020022215),
        (b"a", 0.6272098046731807),
        (bytes.fromhex("00000001"), 0.7869216576677149),
        (b"key1", 0.011579266115581355),
    ],
)
def test_positions_equal_those_of_java(key, expected):
    assert key_position(key) == expected


@given(st.binary(max_size=80), st.integers(0, 2**31 - 1))
def test_seeds_that_are_not_negative_hash_as_everywhere(data, seed):
    assert murmur.murmur3_low_64_bits(data, seed) == mmh3.mmh3_x64_128_uintdigest(data, seed) & (2**64 - 1)
