"""Bounds of queries, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import MIB

MAX_QUERY_CHARS: Final = MIB
QUERY_MEMORY_BYTES: Final = 1024 * MIB  # of the engine, before it spills to disk
QUERY_SPILL_BYTES: Final = 10 * 1024 * MIB
UNCONFIRMED_QUERY_BYTES: Final = 1024 * MIB  # that a query may read of streams, unless its caller has allowed more
QUERY_RESULT_BATCH_ROWS: Final = 65_536
# The most parts of one relation that are compared with a filter: each takes some 20 microseconds.
MAX_PARTS: Final = 20_000
