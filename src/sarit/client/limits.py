"""Bounds, intervals and sizes of the client, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import EVENT_HEADER_BYTES, KIB, MIB

# A store that is silent while replies are due.  Checks: that many in each keep-alive interval of so long or more.
CHECKS_PER_KEEP_ALIVE: Final = 8
CHECKED_KEEP_ALIVE_SECONDS: Final = 2.5
ECHO_AFTER_CHECKS: Final = 2  # without a byte
ASK_OWNER_AFTER_CHECKS: Final = 4  # the controller is asked first, then less and less often
# A connection to a store that is not made by then: the controller is asked likewise.
ASK_OWNER_AFTER_SECONDS: Final = 5.0
ASK_OWNER_AGAIN_SECONDS: Final = 2.5
# Of several controllers, the one in use: silence before an echo is requested, and for its answer.
CONTROLLER_KEEP_ALIVE_SECONDS: Final = 4.0

# -- wire ---------------------------------------------------------------------------------
MAX_EVENT_BYTES: Final = 8 * MIB

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
FIRST_STICKY_BYTES: Final = 256  # without keys, to one segment before another is drawn; doubles with each round
STICKY_BYTES: Final = 512 * KIB  # the most of it ...
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
DECODED_AT_ONCE: Final = 256  # events that a reader with a deserializer decodes before the loop runs again
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
# Lag in time: from one recorded cut to the next, and how many of them are asked for at most, twice as far each time.
FIRST_LAG_STEP_MS: Final = 60_000
MAX_LAG_STEPS: Final = 24
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

# -- client: search ----------------------------------------------------------------------------
SEARCH_SLICE_BYTES: Final = 256 * KIB  # matched at once, or one event that is longer
SEARCH_SLICE_EVENTS: Final = 4096
SEARCH_PATTERN_CHARS: Final = 200
# Bytes of an event times characters of a pattern: about two seconds of a thread in the worst case.
SEARCH_REGEX_COST: Final = 64 * MIB
SEARCH_JSON_BYTES: Final = MIB  # of a document that is parsed
SEARCH_FIRST_TIME_STEP_MS: Final = 60_000  # doubles until a recorded cut lies behind the time
SEARCH_RECORDING_MS: Final = 10_000  # which recording a cut takes at most
SEARCH_SAMPLE_SECONDS: Final = 5.0  # without an event, until the sample is what there is
SEARCH_TIMES: Final = 32  # places of a range of which the time is asked for
SEARCH_TIMES_AT_ONCE: Final = 8
SEARCH_EARLY_MS: Final = 300_000  # by which an event may be written before its own time, and is found by a scan
SEARCH_MAX_HITS: Final = 10_000  # of one search
SEARCH_HIT_BYTES: Final = 64 * MIB  # of the hits that a scan keeps
SEARCH_CALL_SECONDS: Final = 45.0  # of a search in an index, which a server gives up after 30
SEARCH_FETCHES: Final = 16  # events of its hits that a search reads at once
SEARCH_EVENT_BYTES: Final = 16 * KIB  # which are read at first: most events are shorter

CONTINUOUS_POLL_SECONDS: Final = 0.2  # between two looks whether a continuous query holds
DEFAULT_CONTINUOUS_WAIT_SECONDS: Final = 30.0  # for which a call waits until a continuous query holds

# -- client: blocking --------------------------------------------------------------------------
# How long what was cancelled may take to end: an interrupted call, and all that runs when the loop ends.
CANCEL_GRACE_SECONDS: Final = 5.0
EXIT_FLUSH_SECONDS: Final = 10.0  # for what blocking writers have not flushed when the process exits
FULL_BUFFER_POLL_SECONDS: Final = 1.0  # a write at its bound checks that often that the loop's thread is alive
BYTE_WRITER_DRAIN_BYTES: Final = 4 * MIB  # written between two waits for acknowledgements

# -- traces -------------------------------------------------------------------------------
FIRST_REQUEST_ID_BYTES: Final = 6  # of a client or a connection, which counts from there

# A token is renewed when so much of its life has passed.
TOKEN_RENEWAL: Final = 0.8
MAX_CACHED_TOKENS: Final = 4096

# -- client: queries -----------------------------------------------------------------------------
QUERY_BATCHES_AHEAD: Final = 16  # read and not taken by the engine yet
QUERY_PARALLEL_SEGMENTS: Final = 4
QUERY_TIMELINE_CUTS: Final = 512  # of one stream; the controller retains fewer
QUERY_NEAR_NAMES: Final = 3
QUERY_PAGE_ENTRIES: Final = 2048  # of a key-value table
FOLLOW_POLL_SECONDS: Final = 0.2  # between two questions for the tail of a stream that a query follows
QUERY_SAMPLE_EVENTS: Final = 2000  # of which the columns of JSON are inferred
# The random id that a client draws for a link that it creates, so that a repeated creation is known as one.
NEW_LINK_ID_BYTES: Final = 16
