"""MurmurHash3, x64, 128 bit, with seeds as Java has them: a negative seed is sign-extended to 64 bit.

The `mmh3` package accepts only 32-bit seeds, which gives another hash when the seed is negative.  Source: naming.md
par. 3 (the router of key-value tables), Guava `Hashing.murmur3_128`; A. Appleby's description of MurmurHash3.
"""

from __future__ import annotations

import struct
from typing import Final

_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK: Final = struct.Struct("<QQ")


def murmur3_low_64_bits(data: bytes, seed: int) -> int:
    """The first half of the hash, as an unsigned number; `seed` is an int32."""
    h1 = h2 = seed & _MASK
    size = len(data)
    whole = size - size % _BLOCK.size
    for at in range(0, whole, _BLOCK.size):
        k1, k2 = _BLOCK.unpack_from(data, at)
        h1 ^= _mix_block(k1, _C1, 31, _C2)
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mix_block(k2, _C2, 33, _C1)
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    if whole < size:
        k1, k2 = _BLOCK.unpack(data[whole:].ljust(_BLOCK.size, b"\0"))
        h1 ^= _mix_block(k1, _C1, 31, _C2)
        h2 ^= _mix_block(k2, _C2, 33, _C1)
    h1 ^= size
    h2 ^= size
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return (_mixed(h1) + _mixed(h2)) & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _mix_block(block: int, first: int, bits: int, second: int) -> int:
    return _rotated(block * first & _MASK, bits) * second & _MASK


def _mixed(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
