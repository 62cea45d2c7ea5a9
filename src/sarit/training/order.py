"""The order of an epoch, drawn from numbers: the same on every machine and with every version of numpy (pure).

The hash is SplitMix64, written out here: orders must not change with a library, or no position of an older version
would be right.
"""

from __future__ import annotations

from typing import Any, Final

_GOLDEN: Final = 0x9E3779B97F4A7C15
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB
_LOW_64_BITS: Final = (1 << 64) - 1


def mixed(*numbers: int) -> int:
    """Return a number of 63 bits drawn from several numbers, in their order."""
    found = 0
    for number in numbers:
        found = (found + (number & _LOW_64_BITS) + _GOLDEN) & _LOW_64_BITS
        found = ((found ^ (found >> 30)) * _FIRST) & _LOW_64_BITS
        found = ((found ^ (found >> 27)) * _SECOND) & _LOW_64_BITS
        found ^= found >> 31
    return found >> 1


def hashes(values: Any) -> Any:
    """Return the hash of each value of a numpy array of unsigned integers of 64 bits."""
    import numpy as np

    found = values + np.uint64(_GOLDEN)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(_FIRST)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(_SECOND)
    return found ^ (found >> np.uint64(31))


def row_hashes(key: int, segments: Any, offsets: Any) -> Any:
    """Return what events are ordered by in a shuffled block: a hash of the key, and of where each is stored."""
    import numpy as np

    drawn = hashes(hashes(segments.view(np.uint64) ^ np.uint64(key)) ^ offsets.view(np.uint64))
    return drawn >> np.uint64(1)  # 63 bits: a position has one of them, and not every format has unsigned numbers


def permutation(count: int, key: int) -> list[int]:
    """Return the numbers below `count` in an order that the key decides."""
    import numpy as np

    drawn = hashes(np.arange(count, dtype=np.uint64) ^ np.uint64(key))
    found: list[int] = np.argsort(drawn, kind="stable").tolist()
    return found
