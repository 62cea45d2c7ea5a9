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
# Operations of a list or a queue that its head remembers, for callers whose reply was lost.
HEAD_OPERATIONS: Final = 32
# The random id of an operation, and of the taker of an item.
OPERATION_ID_BYTES: Final = 8
TAKER_TOKEN_BYTES: Final = 16
# Items appended or put at once, as one change.
MAX_ITEMS_AT_ONCE: Final = 255
# From one poll of a watcher, or of a taker that waits, to the next; doubles with each poll that finds nothing.
FIRST_WAITER_POLL_SECONDS: Final = 0.01
MAX_WAITER_POLL_SECONDS: Final = 0.5
# The lease of a queue's items, unless its first process chose another one.
DEFAULT_ITEM_LEASE_SECONDS: Final = 30.0
# Rows of a queue in one request, and taken items that one poll passes before it ends.
QUEUE_PAGE_ROWS: Final = 64
MAX_TAKEN_ITEMS: Final = 1024
