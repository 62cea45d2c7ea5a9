"""Bounds of the command line."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# -- command line and Spark --------------------------------------------------------------------
STDIN_READ_BYTES: Final = 64 * KIB
# A ready pipe takes that much without blocking (PIPE_BUF).
PIPE_WRITE_BYTES: Final = 4 * KIB
FILE_WRITE_BYTES: Final = 1 * MIB
# Between two checks for Ctrl-C while standard output is not ready.
INTERRUPT_POLL_SECONDS: Final = 0.1

# Of text.  An event of 8 MiB in JSON has six times as many where all of it is escaped.
MAX_LINE_BYTES: Final = 64 * MIB
MAX_BACKUP_WAIT_SECONDS: Final = 48 * 3600.0

# -- sarit group lag ---------------------------------------------------------------------------------
# Ages that are asked one after the other, so that a group that keeps up costs one call, each with the time between two
# cuts that a node keeps of a stream from then.
LAG_AGES_SECONDS: Final = (
    (120, 60), (300, 60), (600, 60), (1800, 60), (3600, 60), (7200, 600), (21_600, 600), (43_200, 600), (86_400, 600),
    (172_800, 3600), (604_800, 3600), (2_592_000, 86_400),
)  # fmt: skip

# -- sarit doctor, sarit top ------------------------------------------------------------------------
TOP_HTTP_SECONDS: Final = 2.0  # for an answer of a process to `sarit top`

# -- sarit lake --------------------------------------------------------------------------------------
MAX_DEAD_LETTERS_SHOWN: Final = 1000
LAKE_POLL_SECONDS: Final = 0.5  # between two looks of `sarit lake wait`

# -- sarit link ---------------------------------------------------------------------------------------
PROMOTION_POLL_SECONDS: Final = 0.5  # between two looks of `sarit link promote --wait`

# -- sarit query ------------------------------------------------------------------------------------
QUERY_CELL_CHARS: Final = 60  # of a cell on a terminal
QUERY_WIDTH_ROWS: Final = 1000  # by which the widths of columns are chosen
PROGRESS_POLL_SECONDS: Final = 0.2

# -- sarit continuous -------------------------------------------------------------------------------
MAX_SHOWN_QUERY_CHARACTERS: Final = 60  # of a query in a list
