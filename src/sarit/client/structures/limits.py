"""Bounds of the shared data structures, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import MIB

# The least and the largest value of a counter: those of a signed number of 64 bits.
MIN_COUNTER_VALUE: Final = -(1 << 63)
MAX_COUNTER_VALUE: Final = (1 << 63) - 1
# All of a map or a set, which each of its processes holds in memory: its keys and values, and 16 bytes more for each.
MAX_SHARED_STATE_BYTES: Final = 4 * MIB
# The key of a map, or the item of a set, encoded.
MAX_SHARED_KEY_BYTES: Final = 1024
# Characters of a key or a value that an error shows.
SHOWN_VALUE_CHARS: Final = 60
