"""Bounds, intervals and sizes of the index of a container."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# -- SQLite -----------------------------------------------------------------------------------------
INDEX_CACHE_BYTES: Final = 8 * MIB  # SQLite's cache for both connections of an index
INDEX_WAL_COPY_BYTES: Final = 8 * MIB  # pages in SQLite's WAL are copied into the database from this size on
MAX_INDEX_WAL_FILE_BYTES: Final = 64 * MIB
INDEX_CHECKSUM_BYTES: Final = 4  # the CRC-32C before each value
INDEX_EXAMINED_BYTES: Final = 64 * MIB  # an index file up to this size is examined whenever it is opened
INDEX_HEADER_BYTES: Final = 100  # the header of SQLite's database file
INDEX_LOCK_TIMEOUT_SECONDS: Final = 10.0
INDEX_REWRITE_BYTES: Final = 4 * MIB  # the bytes of a WAL that are rewritten at once when an index is opened
FREE_INDEX_BYTES: Final = 4 * MIB  # free bytes of an index file that stay for the next commits; others are released
INDEX_SHRINK_STEP_BYTES: Final = 2 * MIB  # free bytes that are released at once, for which a commit may have to wait

# -- an object store --------------------------------------------------------------------------------
INDEX_BLOCK_CACHE_BYTES: Final = 64 * MIB  # the cache of blocks for all containers of a process
INDEX_READ_AHEAD_BYTES: Final = 256 * KIB  # the readahead of a scan
# The time limit of a call, since SlateDB would retry for minutes.
INDEX_REQUEST_SECONDS: Final = 30
INDEX_CLOSE_SECONDS: Final = 5
INDEX_WARM_SECONDS: Final = 5  # an opening fills the cache no longer than this
INDEX_SNAPSHOT_SECONDS: Final = 3600  # a snapshot whose reader died keeps objects for so long
INDEX_SNAPSHOT_RENEWAL_SECONDS: Final = 300  # how often a snapshot is renewed: some renewals may fail
INDEX_POLL_SECONDS: Final = 120  # how often the index checks whether a compaction is necessary
INDEX_WORK_SECONDS: Final = 30  # the longest wait until a compaction begins
INDEX_DONE_SECONDS: Final = 10  # how often the index checks whether a compaction is done, by two requests
# Unneeded objects are deleted when they are this old; also the interval of these deletions.
INDEX_COLLECTION_SECONDS: Final = 3600
