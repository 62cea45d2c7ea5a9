"""Bounds, intervals and sizes of the index of a container."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# -- SQLite -----------------------------------------------------------------------------------------
INDEX_CACHE_BYTES: Final = 8 * MIB  # of SQLite, for both connections of an index
INDEX_WAL_COPY_BYTES: Final = 8 * MIB  # of pages in SQLite's WAL before they are copied into the database
MAX_INDEX_WAL_FILE_BYTES: Final = 64 * MIB
INDEX_CHECKSUM_BYTES: Final = 4  # CRC-32C before each value
INDEX_EXAMINED_BYTES: Final = 64 * MIB  # an index file up to this size is examined whenever it is opened
INDEX_HEADER_BYTES: Final = 100  # of SQLite's database file
INDEX_LOCK_TIMEOUT_SECONDS: Final = 10.0
INDEX_REWRITE_BYTES: Final = 4 * MIB  # of a WAL, read and written again at once when an index is opened
FREE_INDEX_BYTES: Final = 4 * MIB  # of an index file, free for the next commits; more is given back
INDEX_SHRINK_STEP_BYTES: Final = 2 * MIB  # given back at once: a commit waits for no more than that

# -- an object store --------------------------------------------------------------------------------
INDEX_BLOCK_CACHE_BYTES: Final = 64 * MIB  # for all containers of a process
INDEX_READ_AHEAD_BYTES: Final = 256 * KIB  # in a scan
# Of a call.  SlateDB would retry for minutes.
INDEX_REQUEST_SECONDS: Final = 30
INDEX_CLOSE_SECONDS: Final = 5
INDEX_WARM_SECONDS: Final = 5  # of an opening, at most
INDEX_SNAPSHOT_SECONDS: Final = 3600  # a snapshot whose reader died keeps objects for so long
INDEX_SNAPSHOT_RENEWAL_SECONDS: Final = 300  # between two renewals; some may fail
INDEX_POLL_SECONDS: Final = 120  # between two checks for compaction
INDEX_WORK_SECONDS: Final = 30  # until a compaction that was decided on begins, at most
INDEX_DONE_SECONDS: Final = 10  # between two checks whether it is done, two requests each
# Objects that nobody needs are deleted when they are that old; also the interval of these deletions.
INDEX_COLLECTION_SECONDS: Final = 3600
