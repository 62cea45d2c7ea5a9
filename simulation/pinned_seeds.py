"""Seeds that found a bug when it existed: `make prove` runs them before the fresh ones."""

from __future__ import annotations

from typing import Final

# Seed and number of stores (0: one node) -> the bug.
PINNED: Final = {
    (8, 0): "a table read missed keys that a checkpoint moved to the index meanwhile",
    (17, 0): "a stop during a checkpoint lost the segments in its snapshot",
    (30, 0): "a note of time was refused in the middle of a scale",
    (2891700047, 0): "a lost call of the controller left its task counted as cancelled",
    (1247284, 0): "a cancelled scan was checked as if it were complete",
    (13, 3): "a controller's request was repeated without a pause for ever when rounding left a rest of its time",
}
