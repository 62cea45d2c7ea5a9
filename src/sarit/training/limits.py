"""Bounds and sizes of readers for training."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import MIB

TRAINING_PIECE_BYTES: Final = 32 * MIB  # of a piece of an epoch, unless the caller says otherwise
MIN_TRAINING_PIECE_BYTES: Final = 1024
MAX_TRAINING_PIECES: Final = 1_000_000  # of one epoch
TRAINING_BATCH_ROWS: Final = 1024  # handed out at once, unless the caller says otherwise
TRAINING_BLOCK_ROWS: Final = 16_384  # read at once where nothing is shuffled
TRAINING_BLOCK_BYTES: Final = 128 * MIB  # the most of a block, of whatever many events
TRAINING_INTERLEAVE: Final = 4  # pieces that are mixed with each other in a shuffled block
MAX_TRAINING_INTERLEAVE: Final = 64
MAX_TRAINING_SHARDS: Final = 1_000_000
# Where a piece begins: how far back a boundary is asked for at first, in steps of a quarter of it, and how much is read
# at once on the way from there.
TRAINING_SEARCH_BYTES: Final = MIB
TRAINING_WALK_BYTES: Final = MIB
TRAINING_READ_BYTES: Final = 4 * MIB  # of a byte stream, read at once
MAX_TRAINING_FRAME_BYTES: Final = 256 * MIB
