"""Bounds and sizes of long-term storage, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# -- cache, flush, long-term storage ---------------------------------------------------------
CHUNK_TARGET_BYTES: Final = 32 * MIB

# -- log, storage, index -----------------------------------------------------------------------
CHECKSUM_BLOCK_BYTES: Final = 256 * KIB  # of a chunk, with one CRC-32C; storage/checksums.py says why
CHECKSUM_BYTES: Final = 4  # CRC-32C
APPEND_START_BYTES: Final = 4
SCRUB_READ_BYTES: Final = 1 * MIB  # of a chunk, at once
CHECKSUM_JOIN_BYTES: Final = 16 * KIB  # smaller parts of a chunk are joined before their checksum is computed
MAX_CHUNK_NAME_BYTES: Final = 900
MAX_CHUNK_PART_BYTES: Final = 200  # of a chunk's name, between two `/`
CLAIM_NAME_BYTES: Final = 8  # random, of the name of a claim in `.incoming/`
CHUNK_PIECE_BYTES: Final = 1 * MIB  # of a chunk file, written and synced at once where no rate limiter decides
SMALL_EXTENT_BYTES: Final = 1 * MIB  # extents below this are worth compacting
S3_CONNECT_SECONDS: Final = 5
S3_REQUEST_SECONDS: Final = 60
S3_MAX_RETRY_SECONDS: Final = 10
S3_JOIN_ON_THREAD_BYTES: Final = 1 * MIB  # a larger chunk is joined on a thread: the join holds up the event loop
HDFS_CLOSE_SECONDS: Final = 10.0
HDFS_CALL_SECONDS: Final = 60.0  # a write of 32 MiB among others takes seconds
HDFS_PIECE_BYTES: Final = 1 * MIB  # of a chunk, given to the client at once
# A file that a write left behind is deleted when it is that old.
HDFS_ABANDONED_WRITE_MS: Final = 24 * 3600 * 1000
