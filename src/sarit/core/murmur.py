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
_M1: Final = 0xFF51AFD7ED558CCD
_M2: Final = 0xC4CEB9FE1A85EC53
_UNPACK: Final = struct.Struct("<QQ").unpack_from


def murmur3_low_64_bits(data: bytes, seed: int) -> int:
    """Return the first half of the hash, as an unsigned number; `seed` is an int32."""
    # Written out, without a function for each step: the client hashes every key of a batch.  Bits above the 64th are
    # masked only where they would come down again.
    h1 = h2 = seed & _MASK
    size = len(data)
    at = 0
    while size - at >= 16:
        k1, k2 = _UNPACK(data, at)
        at += 16
        k1 = k1 * _C1 & _MASK
        h1 ^= (k1 << 31 | k1 >> 33) * _C2 & _MASK
        h1 = ((h1 << 27 & _MASK | h1 >> 37) + h2) * 5 + 0x52DCE729 & _MASK
        k2 = k2 * _C2 & _MASK
        h2 ^= (k2 << 33 | k2 >> 31) * _C1 & _MASK
        h2 = ((h2 << 31 & _MASK | h2 >> 33) + h1) * 5 + 0x38495AB5 & _MASK
    if at < size:
        k1 = int.from_bytes(data[at : at + 8], "little") * _C1 & _MASK
        h1 ^= (k1 << 31 | k1 >> 33) * _C2 & _MASK
        k2 = int.from_bytes(data[at + 8 :], "little") * _C2 & _MASK
        h2 ^= (k2 << 33 | k2 >> 31) * _C1 & _MASK
    h1 ^= size
    h2 ^= size
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    h1 = (h1 ^ h1 >> 33) * _M1 & _MASK
    h1 = (h1 ^ h1 >> 33) * _M2 & _MASK
    h2 = (h2 ^ h2 >> 33) * _M1 & _MASK
    h2 = (h2 ^ h2 >> 33) * _M2 & _MASK
    return (h1 ^ h1 >> 33) + (h2 ^ h2 >> 33) & _MASK
