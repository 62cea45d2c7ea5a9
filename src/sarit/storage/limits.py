"""Bounds and sizes of long-term storage, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# -- cache, flush, long-term storage ---------------------------------------------------------
CHUNK_TARGET_BYTES: Final = 32 * MIB

# -- log, storage, index -----------------------------------------------------------------------
CHECKSUM_BLOCK_BYTES: Final = 256 * KIB  # the block of a chunk for one CRC-32C; storage/checksums.py gives the reason
CHECKSUM_BYTES: Final = 4  # the length of a CRC-32C
APPEND_START_BYTES: Final = 4
SCRUB_READ_BYTES: Final = 1 * MIB  # what the scrub reads of a chunk at once
CHECKSUM_JOIN_BYTES: Final = 16 * KIB  # smaller parts of a chunk are joined before their checksum is computed
MAX_CHUNK_NAME_BYTES: Final = 900
MAX_CHUNK_PART_BYTES: Final = 200  # the part of a chunk's name between two `/`
CLAIM_NAME_BYTES: Final = 8  # the random bytes in the name of a claim in `.incoming/`
CHUNK_PIECE_BYTES: Final = 1 * MIB  # what is written to a chunk file and synced at once without a rate limiter
SMALL_EXTENT_BYTES: Final = 1 * MIB  # extents below this are worth compacting
S3_CONNECT_SECONDS: Final = 5
S3_REQUEST_SECONDS: Final = 60
S3_MAX_RETRY_SECONDS: Final = 10
S3_JOIN_ON_THREAD_BYTES: Final = 1 * MIB  # a larger chunk is joined on a thread, as that would block the event loop
HDFS_CLOSE_SECONDS: Final = 10.0
HDFS_CALL_SECONDS: Final = 60.0  # a write of 32 MiB beside others takes seconds
HDFS_PIECE_BYTES: Final = 1 * MIB  # how much of a chunk is passed to the client at once
# The age at which a file is deleted that an interrupted write left.
HDFS_ABANDONED_WRITE_MS: Final = 24 * 3600 * 1000
