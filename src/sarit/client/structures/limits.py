"""Bounds of the shared data structures, by name, unit last."""

from __future__ import annotations

from typing import Final

# The least and the largest value of a counter: those of a signed number of 64 bits.
MIN_COUNTER_VALUE: Final = -(1 << 63)
MAX_COUNTER_VALUE: Final = (1 << 63) - 1
