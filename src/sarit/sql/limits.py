"""Bounds of queries, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

MAX_QUERY_CHARS: Final = MIB
QUERY_MEMORY_BYTES: Final = 1024 * MIB  # of the engine, before it spills to disk
QUERY_SPILL_BYTES: Final = 10 * 1024 * MIB
UNCONFIRMED_QUERY_BYTES: Final = 1024 * MIB  # that a query may read of streams, unless its caller has allowed more
QUERY_RESULT_BATCH_ROWS: Final = 16_384  # Ctrl-C is heard between two
# The most parts of one relation that are compared with a filter: each takes some 20 microseconds.
MAX_PARTS: Final = 20_000

# -- the process of one query of the console ---------------------------------------------------
MAX_QUERY_FRAME_BYTES: Final = 64 * MIB  # of one message between this process and the one that serves the console
QUERY_TEXT_BYTES: Final = 256 * KIB  # of rows as text, sent at once
QUERY_TEXT_ROWS: Final = 1024  # made text at once
QUERY_READ_BYTES: Final = 64 * KIB  # read from the pipe at once
MAX_QUERY_COLUMNS: Final = 1000  # of a result
MAX_QUERY_TYPE_CHARS: Final = 200  # of a type, as it is shown
MAX_QUERY_ERROR_CHARS: Final = 8 * KIB
MAX_QUERY_NAME_PARTS: Final = 3  # of a table's name
SHORT_CELL_CHARS: Final = 40  # of each cell of a row that would be too large with longer ones
