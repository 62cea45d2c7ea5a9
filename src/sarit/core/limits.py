"""Every bound of the system, by name, unit last.

What is a user's choice is in `node/settings.py`; these are the walls behind it.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# -- wire ---------------------------------------------------------------------------------
MAX_WIRE_PAYLOAD_BYTES: Final = 0x00FF_FFFF
MAX_WIRE_STRING_BYTES: Final = 0xFFFF
WIRE_VERSION: Final = 17
OLDEST_WIRE_VERSION: Final = 5
MAX_EVENT_BYTES: Final = 8 * MIB
EVENT_HEADER_BYTES: Final = 8
MAX_READ_BYTES: Final = 2 * MIB
PARKED_READ_SECONDS: Final = 15.0
MAX_PARKED_READS_PER_CONNECTION: Final = 10_000
MAX_CONNECTIONS: Final = 10_000
MAX_API_CONNECTIONS: Final = 5_000
MAX_CONNECTION_UNSENT_BYTES: Final = 8 * MIB
MAX_CONNECTION_UNACKED_BYTES: Final = 32 * MIB
MAX_REQUESTS_PER_CONNECTION: Final = 1000
MAX_WRITERS_PER_CONNECTION: Final = 10_000
REQUEST_OVERHEAD_BYTES: Final = 4 * KIB  # memory of a waiting request, beside its payload
CHUNK_READ_MEMORY_BYTES: Final = 4 * MIB  # of a read from chunks: two of their blocks

# -- container and durable log --------------------------------------------------------------
FRAME_TARGET_BYTES: Final = 1 * MIB
MAX_FRAME_BYTES: Final = 32 * MIB
MAX_APPEND_BYTES: Final = MAX_FRAME_BYTES - KIB  # what frame and operation say of it is less than that
MAX_FRAMES_IN_FLIGHT: Final = 2
LOG_FILE_BYTES: Final = 64 * MIB
LOG_GROUP_BYTES: Final = 8 * MIB
LOG_READ_BYTES: Final = 4 * MIB
LOG_WATERMARK_SECONDS: Final = 0.5
LOG_SPACE_TIMEOUT_SECONDS: Final = 10.0
LOG_SPACE_RETRY_SECONDS: Final = 0.25
MAX_RECYCLED_LOG_FILES: Final = 16
MAX_CONTAINERS: Final = 1024
MAX_SEGMENT_NAME_BYTES: Final = 4 * KIB
MAX_MERGE_ATTRIBUTES: Final = 0xFFFF

# -- cache, flush, long-term storage ---------------------------------------------------------
MAX_DIRTY_BYTES: Final = 768 * MIB
CACHE_BYTES: Final = 128 * MIB
CHUNK_TARGET_BYTES: Final = 32 * MIB
INLINE_BELOW_BYTES: Final = 32 * KIB
READ_BLOCK_BYTES: Final = 2 * MIB  # of a chunk, read at once and kept in memory
READAHEAD_BYTES: Final = 4 * MIB
FLUSH_INTERVAL_SECONDS: Final = 2.0
RETAINED_OWNERSHIP_TOKENS: Final = 16
MAX_UNSEEN_OWNERSHIP_TOKENS: Final = 64
MAX_CHUNK_DELETIONS_IN_FLIGHT: Final = 16
MAX_ATTRIBUTES_IN_MEMORY_PER_SEGMENT: Final = 10_000
MAX_CACHED_RANGES: Final = 64
MAX_CACHED_RANGE_ROWS: Final = 64
MAX_CACHED_RANGE_BYTES: Final = 4 * KIB

# -- tables ----------------------------------------------------------------------------------
MAX_TABLE_KEY_BYTES: Final = 8192
MAX_TABLE_VALUE_BYTES: Final = MIB - 8192
MAX_TABLE_BATCH_BYTES: Final = 32 * MIB
MAX_TABLE_PAGE_BYTES: Final = 2 * MIB

# -- the controller's API ----------------------------------------------------------------------
MAX_WRITER_ID_BYTES: Final = KIB  # part of a table's key
MAX_OUTCOME_WAIT_SECONDS: Final = 30.0
MAX_LISTED_TRANSACTIONS: Final = 500
MAX_STREAMS_COUNTED_FOR_PRUNING: Final = 10_000
MAX_CALLS: Final = 5_000  # under way, of some 40 kB each
MAX_CALLS_PER_NAME: Final = 500  # of those, that wait for one stream, group or table: the others go on beside it

# -- numbers the protocol gives a meaning ------------------------------------------------------
NULL_ATTRIBUTE_VALUE: Final = -(1 << 63)
NO_VERSION: Final = -(1 << 63)
NOT_EXISTS: Final = -1

# -- stopping -------------------------------------------------------------------------------
REPEATED_SIGNAL_SECONDS: Final = 1.0

# -- the interpreter ---------------------------------------------------------------------------
SWITCH_INTERVAL_SECONDS: Final = 0.0001
# Objects more than there were, then scans of the younger generation: for bursts, between those by the clock
# (node/gc_scheduler.py).
GC_THRESHOLDS: Final = (20_000, 0, 1_000)
GC_INTERVAL_SECONDS: Final = 0.25
# Behind each look so many times what it took, at least: where much is in flight they would take a tenth of the time.
GC_INTERVAL_FACTOR: Final = 50
MAX_GC_INTERVAL_SECONDS: Final = 1.0
FULL_GC_OBJECTS: Final = 2_000_000

# -- store: server -----------------------------------------------------------------------------
# After `close` the transport waits until the client has taken all that was sent; then it is aborted.
CONNECTION_CLOSE_SECONDS: Final = 10.0
SEND_BATCH_BYTES: Final = MIB  # more replies than this are written at once, not at the end of the loop's turn
# A shorter read reply is copied: a view of a few bytes would keep a whole block of a chunk in memory while it waits
# for a slow client.  Readers ask for a little less than 1 MiB, and that much is not copied.
ZERO_COPY_READ_BYTES: Final = MIB - 64 * KIB
MIN_READ_TIMER_SECONDS: Final = 0.01  # a shorter timer may be rounded to zero and fire before the deadline
# What TableRead adds to keys and values: lengths and a version for each, name and counts for all (wire.md 2 and 3).
TABLE_ENTRY_OVERHEAD_BYTES: Final = 24
TABLE_READ_OVERHEAD_BYTES: Final = MAX_WIRE_STRING_BYTES + 32
# The connection reaper: how often it looks at every connection, and after how long without progress it ends one.
REAP_INTERVAL_SECONDS: Final = 5.0
CONNECTION_STALLED_SECONDS: Final = 60.0
MAX_CONNECTIONS_MEMORY_BYTES: Final = 1024 * MIB  # unsent replies and incomplete frames of all connections
MIN_CONNECTION_UNSENT_BYTES: Final = 256 * KIB  # the share of one connection never falls below this
MIN_CONNECTION_UNACKED_BYTES: Final = 256 * KIB

# -- store: container and flow control ---------------------------------------------------------
CONTROL_LIMIT_TIMEOUT_SECONDS: Final = 10.0  # a change that waits longer for memory or disk ends its connection
# Many connections end at once when clients give up: throttled appends of ended sessions are swept together.
APPEND_GATE_SWEEP_SECONDS: Final = 0.5
# (bounds and intervals of this part)
# What memory holds for an append besides its payload: block, views, the frame it came in (measured: 610 to 660).
BLOCK_OVERHEAD_BYTES: Final = 640
# Reads of one segment that are further apart than this are rate limited as different readers.
READER_LOCALITY_BYTES: Final = 128 * MIB

# -- store: tiering ----------------------------------------------------------------------------
# (bounds and intervals of this part)

# -- log, storage, index -----------------------------------------------------------------------
# (bounds and intervals of this part)

# -- controller --------------------------------------------------------------------------------
# (bounds and intervals of this part)

# -- node, gRPC --------------------------------------------------------------------------------
# (bounds and intervals of this part)

# -- client: connections and retries -----------------------------------------------------------
# (bounds and intervals of this part)

# -- client: writer ----------------------------------------------------------------------------
# (bounds and intervals of this part)

# -- client: reader, groups, tables, transactions, shared state --------------------------------
# (bounds and intervals of this part)

# -- command line and Spark --------------------------------------------------------------------
# (bounds and intervals of this part)

# -- client: blocking --------------------------------------------------------------------------
# How long what was cancelled may take to end: an interrupted call, and all that runs when the loop ends.
CANCEL_GRACE_SECONDS: Final = 5.0
FULL_BUFFER_POLL_SECONDS: Final = 1.0  # a write at its bound checks that often that the loop's thread is alive
BYTE_WRITER_DRAIN_BYTES: Final = 4 * MIB  # written between two waits for acknowledgements
