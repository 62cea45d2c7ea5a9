"""Bounds of the controller."""

from __future__ import annotations

from typing import Final

CREATION_ID_BYTES: Final = 16
# A clock that is further from the newest recorded cut of a stream at a start may be wrong ...
MAX_CLOCK_GAP_MS: Final = 3_600_000
# ... so retention by time does not follow it for so long: time for somebody to read the warning.
CLOCK_DOUBT_MS: Final = 3_600_000
# Each stream of a group may be a subscription, which its creation writes.
MAX_STREAMS_OF_GROUP: Final = 1000
