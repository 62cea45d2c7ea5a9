"""Fixed bounds, intervals and sizes of a store, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB
from sarit.log.limits import MAX_FRAME_BYTES
from sarit.wire.limits import MAX_WIRE_STRING_BYTES

# A new connection is closed if it brings no complete request (with a valid token, if tokens are required) in this time.
FIRST_REQUEST_SECONDS: Final = 30.0
# How many frames of one connection one turn of the event loop handles: as many as a log frame has operations.
FRAMES_PER_TURN: Final = 256
# How many frames that bring nothing (`connection_budget.py`) a connection without a request yet may send at once.
# Clients send one Hello, and a KeepAlive every few seconds.
STRANGER_FRAME_BUDGET: Final = 20
STRANGER_FRAMES_PER_SECOND: Final = 2.0  # how many such frames this connection may send per second in the long run
FRAME_BUDGET: Final = 200  # how many frames that bring nothing any other connection may send at once
FRAMES_PER_SECOND: Final = 20.0  # how many such frames any other connection may send per second in the long run
MAX_FRAME_WAIT_SECONDS: Final = 60.0
# How many refused tokens all connections of a host may send at once; each costs about 50 us.
HOST_REFUSALS: Final = 1000
HOST_REFUSALS_PER_SECOND: Final = 200.0
MAX_REFUSED_HOSTS: Final = 4096
# How many transient segments a connection may have: a large event takes one, and failed attempts leave some.
MAX_TRANSIENT_SEGMENTS: Final = 1000
# The time between two appends, and two frames, whose latency is measured: measuring costs a tenth of a small append.
SAMPLE_SECONDS: Final = 0.001

# -- backup -----------------------------------------------------------------------------------

BACKUP_ARRIVAL_SECONDS: Final = 30.0  # the wait until all flushers have ended their cycle, in which they also compact
BACKUP_HOLD_SECONDS: Final = 2.0  # a backup delays acknowledgements no longer: a store not released by then goes on
BACKUP_COMMIT_SECONDS: Final = 60.0  # the wait until a container has committed its checkpoint
BACKUP_CHECK_SECONDS: Final = 0.5  # how often a store checks whether a backup may go on
BACKUP_IDLE_SECONDS: Final = 30.0  # a backup session without a message for so long ends, and its hold on chunks
MAX_BACKUP_SECONDS: Final = 48 * 3600.0  # a backup session ends after this: it keeps chunks from being deleted

# -- wire ---------------------------------------------------------------------------------
MAX_READ_BYTES: Final = 2 * MIB
PARKED_READ_SECONDS: Final = 15.0
MAX_PARKED_READS_PER_CONNECTION: Final = 10_000
MAX_CONNECTIONS: Final = 10_000
MAX_CONNECTION_UNSENT_BYTES: Final = 8 * MIB
MAX_CONNECTION_UNACKED_BYTES: Final = 32 * MIB
MAX_REQUESTS_PER_CONNECTION: Final = 1000
MAX_WRITERS_PER_CONNECTION: Final = 10_000
REQUEST_OVERHEAD_BYTES: Final = 4 * KIB  # memory of a waiting request, beside its payload
CHUNK_READ_MEMORY_BYTES: Final = 4 * MIB  # the memory charged for a read from chunks: two blocks of a chunk

# -- container and durable log --------------------------------------------------------------
FRAME_TARGET_BYTES: Final = 1 * MIB
# A durable frame is applied and acknowledged in one turn of the event loop, which all other connections wait for.
MAX_FRAME_OPERATIONS: Final = 256
MAX_APPEND_BYTES: Final = MAX_FRAME_BYTES - KIB  # the headers of frame and operation take less than 1 KiB
# A small volume gets smaller log files, down to this size.
MIN_LOG_FILE_BYTES: Final = 4 * MIB
LOG_VOLUME_SHARE: Final = 64  # log files get smaller until one of each container takes 1/64 of the volume together
# How much of the log recovery replays at once: one get of the index loads all that these operations refer to.
RECOVERY_WINDOW_BYTES: Final = 8 * MIB
MAX_MERGE_ATTRIBUTES: Final = 0xFFFF
# The highest offset at which a segment may be created: beyond it there is room for as much again, in 63 bits.
MAX_START_OFFSET: Final = 1 << 62

# -- cache, flush, long-term storage ---------------------------------------------------------
MAX_DIRTY_BYTES: Final = 768 * MIB
CACHE_BYTES: Final = 128 * MIB
CHUNK_CACHE_BYTES: Final = 64 * MIB
INLINE_BELOW_BYTES: Final = 32 * KIB
PACK_GAP_BYTES: Final = 256 * KIB  # two pieces of a pack are read by one request if the gap between them is no longer
READAHEAD_BYTES: Final = 4 * MIB
FLUSH_INTERVAL_SECONDS: Final = 2.0
MAX_CHUNK_DELETIONS_IN_FLIGHT: Final = 16
MAX_ATTRIBUTES_IN_MEMORY_PER_SEGMENT: Final = 10_000
MAX_CACHED_RANGES: Final = 64
MAX_CACHED_RANGE_ROWS: Final = 64
MAX_CACHED_RANGE_BYTES: Final = 4 * KIB

# -- tables ----------------------------------------------------------------------------------
MAX_TABLE_BATCH_BYTES: Final = 32 * MIB
MAX_TABLE_PAGE_BYTES: Final = 2 * MIB
# The newest changes that a container keeps of all tables that are followed (`container/table_feeds.py`), ...
TABLE_FEED_BYTES: Final = 8 * MIB
# ... of how many tables, ...
MAX_FOLLOWED_TABLES: Final = 1000
# ... and how much each entry counts besides its key and value.
TABLE_FEED_OVERHEAD_BYTES: Final = 200

# -- store: server -----------------------------------------------------------------------------
# A closed connection has this time to take the replies that were sent; then it is aborted.
CONNECTION_CLOSE_SECONDS: Final = 10.0
SEND_BATCH_BYTES: Final = MIB  # replies beyond this are written at once, not at the end of the event loop's turn
# A shorter read reply is copied: a view of a few bytes would keep a whole block of a chunk in memory while it waits
# for a slow client.  Readers ask for a little less than 1 MiB, and that much is not copied.
ZERO_COPY_READ_BYTES: Final = MIB - 64 * KIB
MIN_READ_TIMER_SECONDS: Final = 0.01  # a shorter timer may be rounded to zero and fire before the deadline
# The bytes that a TableRead reply adds to each entry's key and value: their lengths and a version (wire.md 2 and 3).
TABLE_ENTRY_OVERHEAD_BYTES: Final = 24
TABLE_READ_OVERHEAD_BYTES: Final = MAX_WIRE_STRING_BYTES + 32  # the table name and counts of a TableRead reply
# How often the connection reaper examines every connection.
REAP_INTERVAL_SECONDS: Final = 5.0
CONNECTION_STALLED_SECONDS: Final = 60.0  # the reaper ends a connection after this time without progress
# Incomplete frames of all connections may take 1/2 of the memory for connections.  Above it the connections with the
# oldest incomplete frames are ended.
INCOMPLETE_FRAMES_SHARE: Final = 2
MIN_INCOMPLETE_FRAMES_BYTES: Final = 32 * MIB  # the least memory for incomplete frames: two of the greatest length
# The memory for unsent replies and incomplete frames of all connections; waiting appends and requests have as much
# again.  `--memory` replaces it by a share of that.
MAX_CONNECTIONS_MEMORY_BYTES: Final = 1024 * MIB
MIN_CONNECTION_UNSENT_BYTES: Final = 32 * KIB  # the share of one connection never falls below this
MIN_CONNECTION_UNACKED_BYTES: Final = 32 * KIB

# -- store: container and flow control ---------------------------------------------------------
MAX_CACHED_PLACEMENTS: Final = 4096  # segment names whose container is known; at most 16 MiB of names
CONTROL_LIMIT_TIMEOUT_SECONDS: Final = 10.0  # a change that waits longer for memory or disk ends its connection
# How often the throttled appends of ended sessions are removed, all together: many clients give up at the same time.
APPEND_GATE_SWEEP_SECONDS: Final = 0.5
# The memory of an append besides its payload: block, views, the frame that it came in (measured: 610 to 660).
BLOCK_OVERHEAD_BYTES: Final = 640
MAX_SEGMENTS_IN_MEMORY: Final = 12_500  # segments in memory per container: above it idle ones are evicted
METADATA_BYTES: Final = 40 * MIB  # the memory of a container's segments, with their attributes and extents
SEGMENT_OVERHEAD_BYTES: Final = 1280  # the memory of a segment besides its name (measured: 1,140)
ATTRIBUTE_OVERHEAD_BYTES: Final = 320  # the memory of an attribute (measured: 300 for a segment's first)
EXTENT_OVERHEAD_BYTES: Final = 224  # the memory of an extent besides its checksums (measured: 200)
TABLE_CACHE_BYTES: Final = 16 * MIB  # cached table entries of one container that are in the index
# The bytes by which a table entry moves its table's position besides key and value
# (Pravega's EntrySerializer: version byte, two lengths, entry version).
TABLE_ENTRY_HEADER_BYTES: Final = 17
# Reads of one segment that are further apart than this are rate limited as different readers.
READER_LOCALITY_BYTES: Final = 128 * MIB

# -- store: tiering ----------------------------------------------------------------------------
FLUSH_TRIGGER_BYTES: Final = 48 * MIB  # a checkpoint begins early when so many bytes are dirty
CHUNK_RETRY_SECONDS: Final = 0.5  # the pause after a chunk could not be written; doubles up to the maximum
MAX_CHUNK_RETRY_SECONDS: Final = 10.0
MAX_NOTED_DAMAGED_CHUNKS: Final = 10_000  # how many damaged chunks of a container get a line in the server's log
MAX_COMPACTED_BYTES_PER_CYCLE: Final = 64 * MIB
COMPACTION_BYTES: Final = 16 * MIB  # what compaction reads into memory at once, and the longest extent that it makes
COMPACTION_SWEEP_SECONDS: Final = 600.0  # the pause between two passes of compaction over the extents of the index
CHUNK_GC_CYCLE_SECONDS: Final = 1.0
ORPHAN_SWEEP_RETRY_SECONDS: Final = 30.0
# How long a write that a former owner sent may still reach long-term storage: a few times the timeout of a request.
LATE_WRITES_SECONDS: Final = 180.0
# Dirty bytes are written to chunks over that many seconds, but never below the minimum rate.
FLUSH_DRAIN_SECONDS: Final = 1.0
MIN_FLUSH_BYTES_PER_SECOND: Final = 32 * MIB
# Each piece of a chunk is synced by itself: small pieces keep the log's syncs short, large ones take fewer syncs.
SMALL_PIECE_BYTES: Final = 256 * KIB
LARGE_PIECE_BYTES: Final = 4 * MIB
RATE_LIMITER_SLACK_SECONDS: Final = 0.02  # a rate limiter makes up for a coarse timer's delay up to this
# Reads of chunks are slowed down while appends take longer than this (`store/flow_control/read_limiter.py`).
FAST_APPEND_SECONDS: Final = 0.0007
MIN_READ_BYTES_PER_SECOND: Final = 64 * MIB
MAX_READ_WAIT_SECONDS: Final = 1.0
READ_LIMIT_INTERVAL_SECONDS: Final = 0.1
APPENDS_IDLE_SECONDS: Final = 1.0
REOPEN_SECONDS: Final = 0.1  # the pause between two attempts to recover a container; doubles up to the maximum
MAX_REOPEN_SECONDS: Final = 5.0
SLOW_OPENING_SECONDS: Final = 1.0  # an opening that takes less, and replays nothing, is logged for debugging only
OPENING_WAIT_SECONDS: Final = 20.0  # a request waits so long for its container to open; the Rust client gives up at 30
# How long the clients of a container that moved are held until the map names its next owner.
RELEASE_REPORT_SECONDS: Final = 5.0
MAX_UNCHANGED_FRAMES: Final = 1000  # after so many frames a checkpoint is made even if they changed nothing
MAX_CONCURRENT_OPENS: Final = 4  # how many containers a store of a cluster opens at the same time
RELEASE_FLUSH_SECONDS: Final = 10.0  # a container flushes no longer than this before it is handed over
RELEASE_DIRTY_BYTES: Final = 4 * MIB  # dirty bytes that a container may hand over: its next owner replays them
MOVED_DELAY_SECONDS: Final = 0.1  # the delay of a WrongHost answer to SetupAppend: the Rust client retries at once
FREE_SPACE_INTERVAL_SECONDS: Final = 0.2  # how often the free space of the data directory is queried
LAST_CHECKPOINT_TIMEOUT_SECONDS: Final = 10.0  # a stop flushes no longer than this; the log keeps the rest

# -- log, storage, index -----------------------------------------------------------------------
SCRUB_BYTES_PER_SECOND: Final = 8 * MIB  # the default of --scrub, for all containers together
SCRUB_INTERVAL_SECONDS: Final = 24 * 3600.0  # the pause of the scrub between two passes over all chunks
SCRUB_START_SECONDS: Final = 60.0  # the pause of the scrub after the opening of a container
SCRUB_RETRY_SECONDS: Final = 5.0  # the pause of the scrub while storage is unavailable or the node is short of memory

# -- controller --------------------------------------------------------------------------------
# How many grown segments one reply of a store to a controller holds.
MAX_GROWN_PER_REPLY: Final = 10_000
MAX_INTERNAL_READ_BYTES: Final = MIB  # how many bytes of a segment such a reply holds
MAX_BATCH_READ_BYTES: Final = 2 * MIB  # how many bytes of many segments one reply to a controller holds
CONCURRENT_BATCH_READS: Final = 16  # how many segments of one such request are read from chunks at a time
# A segment that was just loaded into memory counts as grown if it changed at most so long before the last comparison.
GROWTH_SLACK_MS: Final = 60_000

# -- metrics: streams, scopes and groups with a series of their own, the busiest; all others share one -----------------
MAX_METRIC_STREAMS: Final = 50
MAX_METRIC_SCOPES: Final = 20

MAX_TOKEN_BYTES: Final = 8 * KIB
# How many tokens a connection remembers whose signature was verified.
MAX_VERIFIED_TOKENS: Final = 256

# -- quotas
# A read over a quota is answered without bytes after this wait: clients give up a read that gets no answer.
QUOTA_READ_WAIT_SECONDS: Final = 8.0
# The shortest wait for a quota: shorter ones would cost a timer for a few bytes.
QUOTA_TURN_SECONDS: Final = 0.02
# Requests of this size and less are not charged to a quota, except appends and table updates.
QUOTA_COUNTED_BYTES: Final = 1 * KIB
# How many charged scopes and users are remembered: beyond, the oldest without a debt are forgotten.
MAX_CHARGED: Final = 4096
