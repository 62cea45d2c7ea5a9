"""Fixed bounds, intervals and sizes of a store, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB
from sarit.log.limits import MAX_FRAME_BYTES
from sarit.wire.limits import MAX_WIRE_STRING_BYTES

# A connection whose client has sent no complete request (where tokens are asked for: none with a valid one) for so long
# after it opened is ended.
FIRST_REQUEST_SECONDS: Final = 30.0
# Of one connection in a turn of the event loop: as many as a frame of the log has operations.
FRAMES_PER_TURN: Final = 256
# Frames that bring nothing (`connection_budget.py`), at once and per second: of a connection that has asked for nothing
# yet, and of others.  Clients send one Hello, and a KeepAlive every few seconds.
STRANGER_FRAME_BUDGET: Final = 20
STRANGER_FRAMES_PER_SECOND: Final = 2.0
FRAME_BUDGET: Final = 200
FRAMES_PER_SECOND: Final = 20.0
MAX_FRAME_WAIT_SECONDS: Final = 60.0
# Refused tokens of all connections of a host; one costs about 50 us.
HOST_REFUSALS: Final = 1000
HOST_REFUSALS_PER_SECOND: Final = 200.0
MAX_REFUSED_HOSTS: Final = 4096
# Of one connection: a writer of large events has one at a time, and some are left by attempts that failed.
MAX_TRANSIENT_SEGMENTS: Final = 1000
# Between two appends, and two frames, that are measured.  To measure an append costs a tenth of a small one.
SAMPLE_SECONDS: Final = 0.001

# -- backup -----------------------------------------------------------------------------------

BACKUP_ARRIVAL_SECONDS: Final = 30.0  # until all flushers have ended their cycle, in which they also compact
BACKUP_HOLD_SECONDS: Final = 2.0  # nothing is acknowledged meanwhile; a store that is not released by then goes on
BACKUP_COMMIT_SECONDS: Final = 60.0  # until a container has committed its checkpoint
BACKUP_CHECK_SECONDS: Final = 0.5  # between two looks at whether a backup may go on
BACKUP_IDLE_SECONDS: Final = 30.0  # without a message of the backup its hold on chunks ends
MAX_BACKUP_SECONDS: Final = 48 * 3600.0  # chunks are not deleted meanwhile

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
CHUNK_READ_MEMORY_BYTES: Final = 4 * MIB  # of a read from chunks: two of their blocks

# -- container and durable log --------------------------------------------------------------
FRAME_TARGET_BYTES: Final = 1 * MIB
# A durable frame is applied and acknowledged in one turn of the event loop, which delays everybody else.
MAX_FRAME_OPERATIONS: Final = 256
MAX_APPEND_BYTES: Final = MAX_FRAME_BYTES - KIB  # what frame and operation say of it is less than that
# On a small volume log files are smaller, so that one of each container takes at most that share of it.
MIN_LOG_FILE_BYTES: Final = 4 * MIB
LOG_VOLUME_SHARE: Final = 64
# Of the log, replayed at once: what its operations refer to is read from the index in one get.
RECOVERY_WINDOW_BYTES: Final = 8 * MIB
MAX_MERGE_ATTRIBUTES: Final = 0xFFFF

# -- cache, flush, long-term storage ---------------------------------------------------------
MAX_DIRTY_BYTES: Final = 768 * MIB
CACHE_BYTES: Final = 128 * MIB
CHUNK_CACHE_BYTES: Final = 64 * MIB
INLINE_BELOW_BYTES: Final = 32 * KIB
PACK_GAP_BYTES: Final = 256 * KIB  # that is read between two pieces of a pack, rather than by two requests
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
# The connection reaper: how often it examines every connection, and after how long without progress it ends one.
REAP_INTERVAL_SECONDS: Final = 5.0
CONNECTION_STALLED_SECONDS: Final = 60.0
# Unsent replies and incomplete frames of all connections; appends and requests that wait have as much.  A node takes
# its share of `--memory` instead.
# Of what all connections may send and we hold, this part may be incomplete frames, but never less than two of the
# longest.  At the bound the connections with the oldest ones are ended.
INCOMPLETE_FRAMES_SHARE: Final = 2
MIN_INCOMPLETE_FRAMES_BYTES: Final = 32 * MIB
MAX_CONNECTIONS_MEMORY_BYTES: Final = 1024 * MIB
MIN_CONNECTION_UNSENT_BYTES: Final = 32 * KIB  # the share of one connection never falls below this
MIN_CONNECTION_UNACKED_BYTES: Final = 32 * KIB

# -- store: container and flow control ---------------------------------------------------------
MAX_CACHED_PLACEMENTS: Final = 4096  # segment names whose container is known; at most 16 MiB of names
CONTROL_LIMIT_TIMEOUT_SECONDS: Final = 10.0  # a change that waits longer for memory or disk ends its connection
# Many connections end at once when clients give up: throttled appends of ended sessions are swept together.
APPEND_GATE_SWEEP_SECONDS: Final = 0.5
# (bounds and intervals of this part)
# What memory holds for an append besides its payload: block, views, the frame it came in (measured: 610 to 660).
BLOCK_OVERHEAD_BYTES: Final = 640
MAX_SEGMENTS_IN_MEMORY: Final = 12_500  # of one container; idle ones beyond are evicted
METADATA_BYTES: Final = 40 * MIB  # of one container: segments, their attributes and extents
# What they take in memory besides their names and checksums (measured: 1,140, 300 for the first, 200).
SEGMENT_OVERHEAD_BYTES: Final = 1280
ATTRIBUTE_OVERHEAD_BYTES: Final = 320
EXTENT_OVERHEAD_BYTES: Final = 224
TABLE_CACHE_BYTES: Final = 16 * MIB  # table entries of one container, as the index holds them
# What a table entry takes besides key and value; positions and versions count it
# (Pravega's EntrySerializer: version byte, two lengths, entry version).
TABLE_ENTRY_HEADER_BYTES: Final = 17
# Reads of one segment that are further apart than this are rate limited as different readers.
READER_LOCALITY_BYTES: Final = 128 * MIB

# -- store: tiering ----------------------------------------------------------------------------
FLUSH_TRIGGER_BYTES: Final = 48 * MIB  # a checkpoint begins before its interval when so much is dirty
CHUNK_RETRY_SECONDS: Final = 0.5  # after a chunk could not be written; doubles up to the maximum
MAX_CHUNK_RETRY_SECONDS: Final = 10.0
MAX_NOTED_DAMAGED_CHUNKS: Final = 10_000  # of a container; damage of others is refused without a line in the log
MAX_COMPACTED_BYTES_PER_CYCLE: Final = 64 * MIB
COMPACTION_BYTES: Final = 16 * MIB  # read and held at once; also the longest extent that compaction makes
COMPACTION_SWEEP_SECONDS: Final = 600.0  # from the end of one pass over the extents of the index to the next
CHUNK_GC_CYCLE_SECONDS: Final = 1.0
ORPHAN_SWEEP_RETRY_SECONDS: Final = 30.0
# A write that a lost owner sent may still reach long-term storage for that long: a few times the timeout of one
# request.
LATE_WRITES_SECONDS: Final = 180.0
# Writing chunks: dirty bytes are written over that many seconds, but never below the minimum rate.
FLUSH_DRAIN_SECONDS: Final = 1.0
MIN_FLUSH_BYTES_PER_SECOND: Final = 32 * MIB
# A piece of a chunk is synced by itself: small pieces keep the log's syncs short, large pieces cost less in all.
SMALL_PIECE_BYTES: Final = 256 * KIB
LARGE_PIECE_BYTES: Final = 4 * MIB
RATE_LIMITER_SLACK_SECONDS: Final = 0.02  # timers are coarse: so much delay is caught up
# Reading chunks: the latency of appends is a target, see `store/flow_control/read_limiter.py`.
FAST_APPEND_SECONDS: Final = 0.0007
MIN_READ_BYTES_PER_SECOND: Final = 64 * MIB
MAX_READ_WAIT_SECONDS: Final = 1.0
READ_LIMIT_INTERVAL_SECONDS: Final = 0.1
APPENDS_IDLE_SECONDS: Final = 1.0
# The life of containers in a store.
REOPEN_SECONDS: Final = 0.1  # between two attempts to recover a container; doubles up to the maximum
MAX_REOPEN_SECONDS: Final = 5.0
SLOW_OPENING_SECONDS: Final = 1.0  # an opening that takes less, and replays nothing, is logged for debugging only
OPENING_WAIT_SECONDS: Final = 20.0  # a request waits so long for its container to open; the Rust client gives up at 30
# Until the map names the next owner of a container that was given away; then its clients are sent away all the same.
RELEASE_REPORT_SECONDS: Final = 5.0
MAX_UNCHANGED_FRAMES: Final = 1000  # a checkpoint covers so many frames even when they changed nothing
MAX_CONCURRENT_OPENS: Final = 4  # of containers that this store is given
RELEASE_FLUSH_SECONDS: Final = 10.0  # a container flushes no longer before it is handed over ...
RELEASE_DIRTY_BYTES: Final = 4 * MIB  # ... and no further than this: its next owner replays the rest
MOVED_DELAY_SECONDS: Final = 0.1  # before a Rust client's set-up is answered WrongHost: it repeats it without a pause
FREE_SPACE_INTERVAL_SECONDS: Final = 0.2  # between two queries of the free space of the data directory
LAST_CHECKPOINT_TIMEOUT_SECONDS: Final = 10.0  # a stop flushes no longer than this; the log keeps the rest

# -- log, storage, index -----------------------------------------------------------------------
SCRUB_BYTES_PER_SECOND: Final = 8 * MIB  # the default of --scrub, for all containers together
SCRUB_INTERVAL_SECONDS: Final = 24 * 3600.0  # from the end of a pass over all chunks to the next one
SCRUB_START_SECONDS: Final = 60.0  # from the opening of a container to its first pass
SCRUB_RETRY_SECONDS: Final = 5.0  # while storage is away or the node is short of memory

# -- controller --------------------------------------------------------------------------------
# Controllers of other processes: what one reply of a store holds at most, for how long a request is repeated, and how
# often a controller finds out which stores there are.
MAX_GROWN_PER_REPLY: Final = 10_000
MAX_INTERNAL_READ_BYTES: Final = MIB
# A segment that comes into memory counts as grown if it was changed that shortly before the last look.
GROWTH_SLACK_MS: Final = 60_000

# -- metrics: streams, scopes and groups with a series of their own, the busiest; all others share one -----------------
MAX_METRIC_STREAMS: Final = 50
MAX_METRIC_SCOPES: Final = 20

MAX_TOKEN_BYTES: Final = 8 * KIB
# Of a connection: tokens whose signature was verified.
MAX_VERIFIED_TOKENS: Final = 256

# -- quotas
# A read that is over a quota for so long is answered without bytes: clients take a read without an answer for lost.
QUOTA_READ_WAIT_SECONDS: Final = 8.0
# Between two looks at a quota: meanwhile the rate lends for as long.
QUOTA_TURN_SECONDS: Final = 0.02
# Requests of this size and less are not charged to a quota; appends are.
QUOTA_COUNTED_BYTES: Final = 1 * KIB
# Scopes and users that have been charged and are remembered: the oldest without a debt are forgotten.
MAX_CHARGED: Final = 4096
