"""Every fixed bound, interval and size of the system, by name, unit last.

Those of the index, of the log on BookKeeper, and of processes are in `limits.py` of their packages.  Settings that an
operator chooses are in `process/settings.py`.
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

# After the data of AppendBlockEnd.  With more, the data is copied: a view would keep the rest in memory.
MAX_TRAILING_BYTES: Final = 1024
# A payload from this size on is received into a buffer of its own.
LARGE_FRAME_BYTES: Final = 16 * KIB
# A payload above this size is received in pieces: memory follows the bytes that came, not the length claimed.
FRAME_PIECE_BYTES: Final = 1 * MIB
COPIED_FRAME_BYTES: Final = 64 * KIB  # up to this size a copy costs less than a second read
RECEIVE_WINDOW_BYTES: Final = 256 * KIB
SMALL_RECEIVE_WINDOW_BYTES: Final = 8 * KIB
FIRST_RECEIVE_WINDOW_BYTES: Final = 1 * KIB  # of a new connection: whoever is not known fills no more
# Shorter pieces of a frame are joined, longer ones are sent by reference.
JOINED_PIECE_BYTES: Final = 4096
UUID_BYTES: Final = 16
# Networks of clients (`core/networks.py`): kept at once, and of a text that is no address.
MAX_CACHED_NETWORKS: Final = 4096
MAX_NETWORK_CHARACTERS: Final = 64

# -- files and sockets -------------------------------------------------------------------------
DISK_BLOCK_BYTES: Final = 4096
# Aligned memory of a thread for direct writes.
DIRECT_STAGING_BYTES: Final = 4 * MIB
# Writes from this size on use O_DIRECT (docs/decisions/0304).
DIRECT_WRITE_BYTES: Final = 1 * MIB
# The same for writes that nobody waits for.  More than a rate-limited piece of a chunk: direct writes of such pieces
# delay the syncs of the log.
DIRECT_BACKGROUND_WRITE_BYTES: Final = 512 * KIB
# Larger direct reads delay the syncs of the log: the disk serves each of them whole.
DIRECT_READ_PIECE_BYTES: Final = 256 * KIB
SOCKET_BUFFER_BYTES: Final = 4 * MIB

# -- serialized forms ---------------------------------------------------------------------------
MAX_JAVA_TEXT_BYTES: Final = 0xFFFF
# Of the text in a compressed stream cut: a small hostile one cannot fill memory.
MAX_CUT_TEXT_BYTES: Final = 16 * MIB

# -- container and durable log --------------------------------------------------------------
FRAME_TARGET_BYTES: Final = 1 * MIB
MAX_FRAME_BYTES: Final = 32 * MIB
# A durable frame is applied and acknowledged in one turn of the event loop, which delays everybody else.
MAX_FRAME_OPERATIONS: Final = 256
MAX_APPEND_BYTES: Final = MAX_FRAME_BYTES - KIB  # what frame and operation say of it is less than that
LOG_FRAMES_IN_FLIGHT: Final = 2  # of a log on the local disk: one is written, the next one waits
LOG_FILE_BYTES: Final = 64 * MIB
# The first files of a log are short; later ones are longer by this factor while the log holds more than one.
FIRST_LOG_FILE_BYTES: Final = 1 * MIB
LOG_FILE_GROWTH: Final = 4
# On a small volume log files are smaller, so that one of each container takes at most that share of it.
MIN_LOG_FILE_BYTES: Final = 4 * MIB
LOG_VOLUME_SHARE: Final = 64
LOG_GROUP_BYTES: Final = 8 * MIB
# Of the log, replayed at once: what its operations refer to is read from the index in one get.
RECOVERY_WINDOW_BYTES: Final = 8 * MIB
LOG_READ_BYTES: Final = 4 * MIB
LOG_WATERMARK_SECONDS: Final = 0.5
LOG_SPACE_TIMEOUT_SECONDS: Final = 10.0
LOG_SPACE_RETRY_SECONDS: Final = 0.25
MAX_RECYCLED_LOG_FILES: Final = 16
# A log that has needed no new file for that long keeps a few recycled ones.
LOG_IDLE_SECONDS: Final = 600.0
IDLE_RECYCLED_LOG_FILES: Final = 2
MAX_CONTAINERS: Final = 1024
MAX_SEGMENT_NAME_BYTES: Final = 4 * KIB
MAX_MERGE_ATTRIBUTES: Final = 0xFFFF

# -- cache, flush, long-term storage ---------------------------------------------------------
MAX_DIRTY_BYTES: Final = 768 * MIB
CACHE_BYTES: Final = 128 * MIB
CHUNK_CACHE_BYTES: Final = 64 * MIB
CHUNK_TARGET_BYTES: Final = 32 * MIB
INLINE_BELOW_BYTES: Final = 32 * KIB
PACK_GAP_BYTES: Final = 256 * KIB  # that is read between two pieces of a pack, rather than by two requests
READ_BLOCK_BYTES: Final = 2 * MIB  # of a chunk, read at once and cached
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
MAX_CALLS: Final = 5_000  # under way; each takes about 40 kB
MAX_CALLS_PER_CONNECTION: Final = 1_000  # of those; Java programs have one connection for all their threads
MAX_CALLS_PER_NAME: Final = 500  # of those, calls on one stream, group or table: calls on others must find a place

# -- numbers the protocol gives a meaning ------------------------------------------------------
NULL_ATTRIBUTE_VALUE: Final = -(1 << 63)
NO_VERSION: Final = -(1 << 63)
NOT_EXISTS: Final = -1

# -- stopping -------------------------------------------------------------------------------
REPEATED_SIGNAL_SECONDS: Final = 1.0

# -- the interpreter ---------------------------------------------------------------------------
SWITCH_INTERVAL_SECONDS: Final = 0.0001
# Results of threads that are ready are delivered in one turn of the event loop, for at most that long.
DELIVERY_SECONDS: Final = 0.005

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
OPENING_WAIT_SECONDS: Final = 20.0  # a request waits so long for its container to open; the Rust client gives up at 30
# Until the map names the next owner of a container that was given away; then its clients are sent away all the same.
RELEASE_REPORT_SECONDS: Final = 5.0
MAX_UNCHANGED_FRAMES: Final = 1000  # a checkpoint covers so many frames even when they changed nothing
MAX_CONCURRENT_OPENS: Final = 4  # of containers that this store is given
RELEASE_FLUSH_SECONDS: Final = 10.0  # a container flushes no longer before it is handed over ...
RELEASE_DIRTY_BYTES: Final = 4 * MIB  # ... and no further than this: its next owner replays the rest
MOVED_DELAY_SECONDS: Final = 0.1  # before a Rust client's set-up is answered WrongHost: it repeats it without a pause
REPEATED_LOG_SECONDS: Final = 60.0  # between two log lines on one lasting condition
MAX_REPEATED_LOG_KEYS: Final = 1000
MAX_REQUEST_ID_CHARACTERS: Final = 64  # of a client's id of a call, in log lines
FREE_SPACE_INTERVAL_SECONDS: Final = 0.2  # between two queries of the free space of the data directory
LAST_CHECKPOINT_TIMEOUT_SECONDS: Final = 10.0  # a stop flushes no longer than this; the log keeps the rest

# -- log, storage, index -----------------------------------------------------------------------
# Formats on disk (docs/formats/durable-log.md): these numbers cannot change without a new version of the format.
LOG_BLOCK_BYTES: Final = 4 * KIB  # groups of records begin at a multiple of it
LOG_SALT_BYTES: Final = 12  # of a file's header: records of its former use do not match it
LOG_IDENTITY_BYTES: Final = 16  # random, created with the log: the index knows it, and so do all files of the log
LOG_TAG_BYTES: Final = 4  # of the salt, repeated in each record
CHECKSUM_BLOCK_BYTES: Final = 256 * KIB  # of a chunk, with one CRC-32C; storage/checksums.py says why
CHECKSUM_BYTES: Final = 4  # CRC-32C
# Where appends began, of flushed bytes: one is known at least that often (storage/starts.py).
BOUNDARY_STEP_BYTES: Final = 256 * KIB
APPEND_START_BYTES: Final = 4
SCRUB_BYTES_PER_SECOND: Final = 8 * MIB  # the default of --scrub, for all containers together
SCRUB_INTERVAL_SECONDS: Final = 24 * 3600.0  # from the end of a pass over all chunks to the next one
SCRUB_START_SECONDS: Final = 60.0  # from the opening of a container to its first pass
SCRUB_RETRY_SECONDS: Final = 5.0  # while storage is away or the node is short of memory
SCRUB_READ_BYTES: Final = 1 * MIB  # of a chunk, at once
CHECKSUM_JOIN_BYTES: Final = 16 * KIB  # smaller parts of a chunk are joined before their checksum is computed
MAX_CHUNK_NAME_BYTES: Final = 900
MAX_CHUNK_PART_BYTES: Final = 200  # of a chunk's name, between two `/`
CLAIM_NAME_BYTES: Final = 8  # random, of the name of a claim in `.incoming/`
LOG_JOIN_BELOW_BYTES: Final = 4 * KIB  # parts of a frame are joined up to this size: a call per part costs more
# Up to this size a checksum holds the interpreter lock.  Taking the lock back takes longer (with a busy event loop, a
# whole switch interval) than the checksum of a MiB: 50 us.
LOG_CRC_HOLD_LOCK_BYTES: Final = 1024 * KIB
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

# -- controller --------------------------------------------------------------------------------
TRANSACTION_ID_BYTES: Final = 16
MIN_TRANSACTION_LEASE_MS: Final = 10_000
MAX_TRANSACTION_LEASE_MS: Final = 600_000
# After a start, for writers whose lease ended while no controller ran: to connect again and renew it.
RESTART_LEASE_GRACE_MS: Final = 30_000
# A transaction cannot be kept open longer.
MAX_TRANSACTION_MS: Final = 24 * 3600 * 1000
COMMIT_RETRY_SECONDS: Final = 0.5
# How long a question for the state of a transaction waits for a completion that is under way.
TRANSACTION_STATE_WAIT_SECONDS: Final = 0.05
# Records of completed transactions are retained at least that long.
COMPLETED_TRANSACTION_MS: Final = 10 * 60 * 1000
# The latest completed transactions are searched for back to this time first, then further.
FIRST_COMPLETED_SPAN_MS: Final = 1000
SCOPE_INCARNATION_BYTES: Final = 8
# Between two maintenance rounds, however short the intervals.
MIN_ROUND_PAUSE_SECONDS: Final = 0.01
RECOVERY_SWEEP_SECONDS: Final = 1.0
# Requests to scale that wait for evaluation.  More are dropped: stores repeat them.
MAX_SCALE_REQUESTS: Final = 10_000
# Controllers of other processes: what one reply of a store holds at most, for how long a request is repeated, and how
# often a controller finds out which stores there are.
MAX_GROWN_PER_REPLY: Final = 10_000
MAX_INTERNAL_READ_BYTES: Final = MIB
REMOTE_RETRY_SECONDS: Final = 20.0
STORES_POLL_SECONDS: Final = 5.0
# Pending work younger than that belongs to the controller that began it.
RECOVERY_GRACE_SECONDS: Final = 5.0
WATERMARK_READ_BYTES: Final = MIB
# Cuts that say when a stream reached which offsets: one for each interval in which it grew.
TIMELINE_INTERVAL_SECONDS: Final = 60.0
# Up to an age, one of each span is retained, both in ms: 60, 138 and 144 of a stream that grows all the time.
TIMELINE_AGES_MS: Final = ((3_600_000, 60_000), (24 * 3_600_000, 600_000), (7 * 24 * 3_600_000, 3_600_000))
TIMELINE_OLDEST_SPAN_MS: Final = 24 * 3_600_000
# Of one stream: that many days, beyond the first week, are 58.
MAX_TIMELINE_CUTS: Final = 400
MAX_TIMELINE_STREAMS: Final = 100_000
# A segment that comes into memory counts as grown if it was changed that shortly before the last look.
GROWTH_SLACK_MS: Final = 60_000
# Part of a table key.
MAX_TAG_BYTES: Final = 1024
MAX_SCALING_EVENT_SEGMENTS: Final = 50_000  # of all events in one answer
# A list of streams with their configurations: the loop stands still for a page.
STREAM_CONFIGS_PER_PAGE: Final = 200

# -- node, gRPC --------------------------------------------------------------------------------
# A client that takes no replies for that long is disconnected.
GRPC_STALL_SECONDS: Final = 60.0
# From a new connection to its first bytes (one port) or its HTTP/2 settings.
GRPC_FIRST_BYTES_SECONDS: Final = 20.0
# The least that HTTP/2 allows: every connection may use all of its window.
HTTP2_WINDOW_BYTES: Final = 65_535
MAX_API_REQUEST_BYTES: Final = 4 * MIB
# Of all large requests that are not complete, together.
MAX_BUFFERED_REQUEST_BYTES: Final = 64 * MIB
# For one whole request to arrive, and for one reply to be taken.
GRPC_MESSAGE_SECONDS: Final = 60.0
REQUEST_PIECE_BYTES: Final = 64 * KIB

# -- client: connections and retries -----------------------------------------------------------
DEFAULT_RETRY_TIMEOUT_SECONDS: Final = 300.0  # of every call, unless `connect(retry_timeout=)` says otherwise
MIN_ATTEMPT_SECONDS: Final = 1.0  # for one attempt, however short the retry timeout
FIRST_RETRY_DELAY_SECONDS: Final = 0.02  # doubles with each retry
MAX_RETRY_DELAY_SECONDS: Final = 2.0
# A client that retries few things at once finds out sooner that a node is back; together they retry that often.
SOON_RETRY_DELAY_SECONDS: Final = 0.5
RETRIES_PER_SECOND: Final = 50
# When a call has waited that long for a node, a line says so; then one in each interval, for all calls of a client.
OUTAGE_LOG_AFTER_SECONDS: Final = 1.0
CONNECT_TIMEOUT_SECONDS: Final = 10.0  # to a segment store, Hello included
CLIENT_KEEP_ALIVE_SECONDS: Final = 10.0
DEAD_AFTER_KEEP_ALIVES: Final = 3  # without a byte either way
CLIENT_WRITE_BUFFER_BYTES: Final = 4 * MIB  # what asyncio holds for the socket before it reports it as full
CONTROLLER_CALL_SECONDS: Final = 60.0  # the longest attempt
CONTROLLER_PING_SECONDS: Final = 5.0  # of an attempt to connect
# At once on one connection, as Pravega's servers allow; more wait for one of them to end.
MAX_CONTROLLER_CALLS: Final = 100
MAX_CACHED_ENDPOINTS: Final = 10_000

# -- client: writer, streams -------------------------------------------------------------------
DEFAULT_WRITER_BUFFER_BYTES: Final = 32 * MIB  # not acknowledged, before `drain` waits
MAX_BYTE_WRITER_UNACKED_BYTES: Final = 32 * MIB
MIN_INTAKE_BYTES: Final = 64 * KIB  # written between two dispatches
MAX_INTAKE_BYTES: Final = 512 * KIB
WRITE_CHUNK_BYTES: Final = MIB  # framed at once, and the longest block
SMALL_BLOCK_BYTES: Final = 32 * KIB  # from here on a block is worth a sync of its own
EAGER_BLOCKS: Final = 2  # in flight before chunks are batched
APPENDER_WINDOW_BYTES: Final = 8 * MIB  # in flight to one segment
STICKY_BYTES: Final = 512 * KIB  # without keys, to one segment before another is drawn ...
STICKY_SECONDS: Final = 0.005  # ... or so long
LARGE_EVENT_PIECE_BYTES: Final = 4 * MIB
MAX_CACHED_KEYS: Final = 100_000
MAX_CACHED_HEADER_EVENT_BYTES: Final = 64 * KIB  # lengths whose 8-byte headers are cached
FIRST_SCALE_POLL_SECONDS: Final = 0.002  # doubles with each poll
MAX_SCALE_POLL_SECONDS: Final = 0.25
MAX_WATERMARKS_AHEAD: Final = 1000  # read at once

# -- client: transactions ----------------------------------------------------------------------
DEFAULT_TRANSACTION_LEASE_SECONDS: Final = 90.0
LEASE_RENEWALS: Final = 3  # in the time of one lease
LEASE_RETRY_SECONDS: Final = 0.5
# Well below CONTROLLER_CALL_SECONDS: the outcome of a decision that takes longer is polled.
OUTCOME_WITHIN_MS: Final = 15_000
FIRST_OUTCOME_POLL_SECONDS: Final = 0.001  # doubles with each poll
MAX_OUTCOME_POLL_SECONDS: Final = 0.05

# -- client: reader, groups, tables, shared state --------------------------------------------
# The reader.  A read with its envelope stays below the pieces that `FrameReader` receives in.
SEGMENT_READ_BYTES: Final = MIB - 4 * KIB
MIN_SEGMENT_READ_BYTES: Final = 16 * KIB
READER_BUFFER_BYTES: Final = 64 * MIB  # fetched ahead, over all segments of one reader
# Reader groups.  Segments are read to their ends, or released, after a checkpoint only: a reader begins one after that
# time.
GROUP_EARLY_CHECKPOINT_SECONDS: Final = 0.25
MIN_GROUP_CHECKPOINT_SECONDS: Final = 0.01
MAX_GROUP_CHECKPOINT_SECONDS: Final = 86_400.0
GROUP_CHECKPOINT_TIMEOUT_SECONDS: Final = 60.0  # the default of `group.checkpoint`
# Readers acquire and release segments in turn, one unit apart; the last one waits no longer than the maximum.
GROUP_DELAY_UNIT_SECONDS: Final = 0.1
MAX_GROUP_DELAY_SECONDS: Final = 1.0
JAVA_GROUP_DELAY_UNIT_SECONDS: Final = 1.0
ASSUMED_READER_LAG_MS: Final = 30_000  # of a reader that has not reported its distance, and the least of one that has
# All readers fetch what one writes: they pause after a fetch, longer the more readers there are.
GROUP_FETCH_PAUSE_SECONDS: Final = 0.01
MAX_GROUP_FETCH_PAUSE_SECONDS: Final = 0.5
# A reader reports its distance each (readers + 1) units: the write rate of a group does not grow with its readers.
GROUP_HEARTBEAT_UNIT_SECONDS: Final = 1.0
HEARTBEATS_PER_DEATH_TIMEOUT: Final = 4
MIN_DEATH_TIMEOUT_SECONDS: Final = 0.5
GROUP_CONFIG_CHANGE_GRACE_SECONDS: Final = 10.0  # then a reader completes a configuration change of a lost author
GROUP_POLL_SECONDS: Final = 3.0  # a caller that waits for a group's state fetches it at least that often
# Shared state.  A process that writes without a break pauses, and after a conflict the newer one of two gives way.
COMPACT_AFTER_BYTES: Final = 512 * KIB
MAX_WRITE_PAUSE_SECONDS: Final = 0.05
MAX_CONFLICT_PAUSE_SECONDS: Final = 0.004
MAX_REVISIONED_ENTRY_BYTES: Final = MAX_EVENT_BYTES - EVENT_HEADER_BYTES
REVISIONED_READ_BYTES: Final = MIB
MAX_CONFIGURATION_BYTES: Final = 1_000_000
# Membership.  A member relies on its lease for the safe fraction only: clocks may differ in rate by a fifth.
DEFAULT_LEASE_SECONDS: Final = 10.0
MIN_LEASE_SECONDS: Final = 0.5
MAX_LEASE_SECONDS: Final = 3600.0
HEARTBEATS_PER_LEASE: Final = 4
MEMBERSHIP_POLLS_PER_LEASE: Final = 50
SAFE_LEASE_FRACTION: Final = 0.8
LEAVE_TIMEOUT_SECONDS: Final = 5.0
# Tables: one request, its estimated overhead per entry, what is coalesced into one request, what is outstanding.
MAX_CLIENT_TABLE_BATCH_BYTES: Final = 16 * MIB - 1 - 8 * KIB
CLIENT_TABLE_ENTRY_OVERHEAD_BYTES: Final = 32
MAX_COALESCED_BYTES: Final = MIB
MAX_OUTSTANDING_TABLE_BYTES: Final = 8 * MAX_COALESCED_BYTES

# -- coordination of stores --------------------------------------------------------------------
# A member is gone when the service has received no heartbeat for the lease; it trusts its lease a margin less.
STORE_LEASE_SECONDS: Final = 6.0
STORE_LEASE_MARGIN_SECONDS: Final = 1.0
STORE_INCARNATION_BYTES: Final = 8
STORE_HEARTBEATS_PER_LEASE: Final = 6
COORDINATION_POLL_SECONDS: Final = 1.0  # beside watches, which may be lost
COORDINATION_RETRY_SECONDS: Final = 0.1
MAX_STORES: Final = 1000
MAX_STORE_TEXT_BYTES: Final = 255
MAX_STORE_WEIGHT: Final = 1000
# The first map of a cluster waits so long for the stores that are expected.
FIRST_MAP_SECONDS: Final = 5.0
# A store that restarts comes back within that time: nothing is balanced before.
BALANCE_QUIET_SECONDS: Final = 10.0
CONTAINER_REST_SECONDS: Final = 60.0
MAX_BALANCE_MOVES: Final = 2
MAX_LEAVING_MOVES: Final = 4
MAX_MOVES_TO_STORE: Final = 2
# A store that has not released a moving container by then loses it.
MOVE_SECONDS: Final = 20.0
LEAVE_STORE_SECONDS: Final = 60.0
# Then it still listens for so long, more than a poll of the map: controllers may have sent clients to it just before.
LEFT_STORE_SECONDS: Final = 1.5
# ZooKeeper: until the first connection; until a call finds one; until its answer; of one attempt; between attempts.
ZOOKEEPER_CONNECT_SECONDS: Final = 5.0
ZOOKEEPER_WAIT_SECONDS: Final = 2.0
ZOOKEEPER_CALL_SECONDS: Final = 5.0
ZOOKEEPER_SOCKET_SECONDS: Final = 1.0
ZOOKEEPER_RETRY_SECONDS: Final = 0.5

# -- command line and Spark --------------------------------------------------------------------
STDIN_READ_BYTES: Final = 64 * KIB
# A ready pipe takes that much without blocking (PIPE_BUF).
PIPE_WRITE_BYTES: Final = 4 * KIB
FILE_WRITE_BYTES: Final = 1 * MIB
# Between two checks for Ctrl-C while standard output is not ready.
INTERRUPT_POLL_SECONDS: Final = 0.1
SPARK_WAIT_SECONDS: Final = 60  # the default of the connector's option waitSeconds
SPARK_SAMPLE_SECONDS: Final = 2  # the default of the connector's option sampleSeconds
SPARK_TASK_BYTES: Final = 256 * KIB  # a micro-batch's range of a segment that is worth a task of its own
SPARK_STREAMS_AT_ONCE: Final = 16  # a driver asks about so many streams at the same time
SPARK_SAMPLE_BYTES: Final = 64 * KIB  # what a driver reads of a segment to estimate its events
SPARK_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000  # the default of the connector's option maxTriggerDelay
SPARK_DISCOVERY_SECONDS: Final = 30  # the default of the connector's option discoverySeconds
SPARK_PUBLISH_SECONDS: Final = 5.0  # the position of a reader group is published at most that often
# The sink retains the outcomes of as many micro-batches as Spark can run again (minBatchesToRetain), and drops older
# ones at every 20th batch.
SPARK_BATCHES_KEPT: Final = 100
SPARK_BATCHES_PER_PRUNE: Final = 20
SPARK_LEASE_SECONDS: Final = 600  # the most that a controller allows by default
# The lease of a transaction until it is registered: enough for a busy table, short enough for an attempt that dies.
SPARK_FIRST_LEASE_SECONDS: Final = 30
# Requests of one batch that are under way at the same time.
SPARK_REQUESTS_AT_ONCE: Final = 64
SPARK_TABLE_PARTITIONS: Final = 4
SPARK_QUERY_ID_BYTES: Final = 16
MAX_JSON_BATCH_BYTES: Final = 256 * MIB  # of payloads, decoded at once
ARROW_EVENT_BYTES: Final = 1 * MIB  # of rows that become one event, format arrow
SPARK_PARTITION_BYTES: Final = 128 * MIB  # the default of the connector's option maxBytesPerPartition
SPARK_RANGE_BYTES: Final = 64 * KIB  # what beginning to read a range costs, as bytes read in that time
SPARK_LAST_EVENTS_BYTES: Final = 1 * MIB  # first step back from the end, in search of the last events
# Event boundaries around the offsets of a filter are searched with this step, at most that many steps away.
SPARK_FILTER_STEP_BYTES: Final = 1 * MIB
SPARK_FILTER_STEPS: Final = 64

# -- client: blocking --------------------------------------------------------------------------
# How long what was cancelled may take to end: an interrupted call, and all that runs when the loop ends.
CANCEL_GRACE_SECONDS: Final = 5.0
EXIT_FLUSH_SECONDS: Final = 10.0  # for what blocking writers have not flushed when the process exits
FULL_BUFFER_POLL_SECONDS: Final = 1.0  # a write at its bound checks that often that the loop's thread is alive
BYTE_WRITER_DRAIN_BYTES: Final = 4 * MIB  # written between two waits for acknowledgements

# -- metrics: streams, scopes and groups with a series of their own, the busiest; all others share one -----------------
MAX_METRIC_STREAMS: Final = 50
MAX_METRIC_SCOPES: Final = 20
MAX_METRIC_GROUPS: Final = 100
