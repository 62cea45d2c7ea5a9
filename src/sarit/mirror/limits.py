"""Bounds and intervals of links, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# The version of the messages between the two sides of a link.
MIRROR_PROTOCOL: Final = 1

# The random ids of links and of promotions.
LINK_ID_BYTES: Final = 16

# How many bytes one read or write between the sides carries ...
MIRROR_BATCH_BYTES: Final = MIB
# ... and how many streams one call names.
MAX_MIRROR_STREAMS_PER_CALL: Final = 500
# The longest round of a stream without transactions.
MIRROR_ROUND_BYTES: Final = 64 * MIB
# A round is appended at once, and not staged, if it is of one segment and at most so long.
MAX_DIRECT_BYTES: Final = 256 * KIB
# By how much the epochs of a promoted mirror are behind all that its source ever had.
PROMOTED_EPOCHS: Final = 1_000_000
