"""Bounds, intervals and sizes of processes.  What a user chooses: `settings.py`."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# -- processes of one node --------------------------------------------------------------------------
# Pauses before a child that ended starts again, and after how long without an end they begin with the shortest; how
# long a child may take to stop; how often a child says that its event loop runs, and after how long a silence the
# parent kills it.
CHILD_RESTART_SECONDS: Final = 0.1
CHILD_SECRET_BYTES: Final = 32
MAX_CHILD_RESTART_SECONDS: Final = 10.0
CHILD_STEADY_SECONDS: Final = 30.0
CHILD_STOP_SECONDS: Final = 30.0
CHILD_HEARTBEAT_SECONDS: Final = 1.0
CHILD_SILENT_SECONDS: Final = 10.0
# Of a heartbeat's reasons: what a pipe takes at once if it takes anything.
MAX_HEARTBEAT_BYTES: Final = 3 * KIB
MAX_REASON_CHARACTERS: Final = 300
HEALTH_POLL_SECONDS: Final = 0.1  # of a child, for changes of its health
MISSED_HEARTBEATS: Final = 3  # from then on health says that a process stands still
# Of an append, for the log.  A bookie that stands still is replaced sooner, while there is another one.
LOG_AWAY_SECONDS: Final = 5.0
# Between two looks for a copy of the data directory that has started on the same long-term storage.
OWNERSHIP_CHECK_SECONDS: Final = 60.0
MAX_ALIKE_LOG_LINES: Final = 100  # of warnings or errors of one kind, in REPEATED_LOG_SECONDS

# -- queries of the console ----------------------------------------------------------------------------
# At once in this process, and of each its time, and that of the processor.
CONSOLE_MAX_QUERIES: Final = 2
QUERY_SECONDS: Final = 60.0
QUERY_CPU_SECONDS: Final = 60
QUERY_READ_SHARE: Final = 0.5  # of the time: a query's reads rest for the other part, and appends go on
QUERY_STEP_SECONDS: Final = 0.5  # between two reports of how far a query is
QUERY_THREADS: Final = 2
QUERY_CHILD_MEMORY_BYTES: Final = 384 * MIB  # of the engine
QUERY_ADDRESS_BYTES: Final = 1024 * MIB  # of its process, beside what the program itself takes
# Of the result on a page and as a file; what is beyond is left out, and the page says so.
QUERY_PAGE_ROWS: Final = 1000
QUERY_PAGE_BYTES: Final = 4 * MIB
QUERY_PAGE_CELL_CHARS: Final = 2000
QUERY_CSV_ROWS: Final = 10_000_000
QUERY_CSV_BYTES: Final = 64 * MIB
QUERY_ERROR_CHARS: Final = 8 * KIB
QUERY_ANSWER_BYTES: Final = 8 * MIB  # of one message of the process
QUERY_PIPE_BYTES: Final = 256 * KIB  # read from the process at once
MAX_QUERY_SCANS: Final = 256  # open at once in one query
MAX_QUERY_TABLES: Final = 64
QUERY_BATCH_BYTES: Final = 8 * MIB  # of rows that are sent at once

# -- the service manager ----------------------------------------------------------------------------
NOTIFY_RETRY_SECONDS: Final = 1.0  # between two checks that it has been sent the newest state

# -- controllers on stores of other processes -------------------------------------------------------
STORES_RETRY_SECONDS: Final = 0.5  # between two attempts to begin
# A store that did not answer a request which earlier versions do not know is asked for it again after that time.
EARLIER_STORE_SECONDS: Final = 60.0

# -- the cluster ------------------------------------------------------------------------------------
LOG_SESSION_SECONDS: Final = 10.0  # with ZooKeeper; a log needs no lease, so it may be long
BOOKIES_WAIT_SECONDS: Final = 60.0  # a start waits for bookies that start, too
# Between two commits to an index on an object store, whose requests cost money.
OBJECT_STORE_FLUSH_INTERVAL_SECONDS: Final = 10.0
PACKED_SEGMENTS: Final = 1024  # whose small extents one compaction joins, for one commit

# -- the interpreter --------------------------------------------------------------------------------
# The timer of garbage collections (process/observation/gc_scheduler.py).
GC_INTERVAL_SECONDS: Final = 0.05
# A collection of the young visits so many objects at most: about 4 ms.
MAX_YOUNG_GC_OBJECTS: Final = 5_000
# A collection is followed by a pause of that many times its duration, in which young objects are set aside unvisited.
GC_INTERVAL_FACTOR: Final = 50
FULL_GC_OBJECTS: Final = 2_000_000
# A full collection waits for a quiet moment: for so long no tick found the event loop using more than this share of a
# processor.
QUIET_SECONDS: Final = 1.0
QUIET_SHARE: Final = 0.02
# Without one it is made after this time, but only if the process has grown by so much since the last one.
MAX_GC_DELAY_SECONDS: Final = 600.0
GC_MEMORY_GROWTH_BYTES: Final = 128 * MIB

# -- metrics ----------------------------------------------------------------------------------------
LOOP_PROBE_SECONDS: Final = 0.1
LOOP_DELAY_WINDOW_SECONDS: Final = 30.0
GROUP_LAG_INTERVAL_SECONDS: Final = 15.0

# -- the HTTP port ----------------------------------------------------------------------------------
# What it asks of the controller of its process is repeated for so long.
HTTP_RETRY_SECONDS: Final = 10.0
# A store that the console asks for a sign of life answers within that time.
STORE_SIGN_OF_LIFE_SECONDS: Final = 1.5

# -- backup -----------------------------------------------------------------------------------

MAX_BACKUP_LINE_BYTES: Final = 64 * 1024
MAX_SOCKET_PATH_BYTES: Final = 107  # of Linux

# Of a text in a log line, of an error's, and of a message without arguments: a client may have chosen it.
MAX_LOG_FIELD_CHARACTERS: Final = 256
MAX_LOG_ERROR_CHARACTERS: Final = 1024
MAX_LOG_LINE_CHARACTERS: Final = 4 * 1024

# -- wire ---------------------------------------------------------------------------------
MAX_API_CONNECTIONS: Final = 5_000

# -- cache, flush, long-term storage ---------------------------------------------------------
RETAINED_OWNERSHIP_TOKENS: Final = 16
MAX_UNSEEN_OWNERSHIP_TOKENS: Final = 64

# -- stopping -------------------------------------------------------------------------------
REPEATED_SIGNAL_SECONDS: Final = 1.0

# -- the interpreter ---------------------------------------------------------------------------
SWITCH_INTERVAL_SECONDS: Final = 0.0001

# -- controller --------------------------------------------------------------------------------
REMOTE_RETRY_SECONDS: Final = 20.0
STORES_POLL_SECONDS: Final = 5.0

# -- metrics: streams, scopes and groups with a series of their own, the busiest; all others share one -----------------
MAX_METRIC_GROUPS: Final = 100

DEFAULT_TOKEN_SECONDS: Final = 600
# Official clients renew a token 5 s before it expires: with less, at each use.
MIN_TOKEN_SECONDS: Final = 5
# Its file, and the older ones that are kept beside it.
AUDIT_FILE_BYTES: Final = 64 * MIB
AUDIT_FILES_KEPT: Final = 8
# How often the files of users, keys and certificates are read again, if they have changed.
SECURITY_FILES_INTERVAL_SECONDS: Final = 5.0
# A worker asks so often whether a job was created or is over: one request.
JOBS_POLL_SECONDS: Final = 2.0
JOB_RETRY_SECONDS: Final = 1.0
# What a job asks of the controller and the stores is repeated for so long, before the run ends with an error.
JOB_CALL_RETRY_SECONDS: Final = 30.0
MAX_JOB_STATE_TEXTS: Final = 32  # as a job's kind describes its state
MAX_JOB_STATE_TEXT_CHARACTERS: Final = 16_384
MAX_JOB_RETRY_SECONDS: Final = 60.0
# A job that has failed for so long is a reason of the process's health.
JOB_FAILING_SECONDS: Final = 300.0
JOB_STOP_SECONDS: Final = 10.0  # in which a job has to end when its process stops
JOB_CLAIMS_AT_ONCE: Final = 16  # of one worker, which may find thousands of jobs at its start
# A job whose holder has saved nothing for so long is taken from it, although it lives.
JOB_HOLDER_GRACE_SECONDS: Final = 60.0

# How a job reads a stream beside the writers that its process may serve: in small pieces, with a rest after each.
JOB_READ_BYTES: Final = 256 * KIB
MAX_JOB_REST_SECONDS: Final = 0.1
BLOB_PIECE_BYTES: Final = MIB  # of the files of an index, in one write to a segment or read of it
BLOB_PIECES_AT_ONCE: Final = 8
INDEX_SWEEP_SECONDS: Final = 600.0  # between looks for indexes of streams that are not searchable any more
MAX_BLOB_APPEND_ATTEMPTS: Final = 10  # while others append to the same blob
# After which an indexer gets to know that nothing is at hand: as short as the first, and, when nothing comes for long,
# a tenth of the time since the last event, as long as the second.
EVENT_POLL_SECONDS: Final = 0.5
MAX_EVENT_POLL_SECONDS: Final = 15.0
EVENT_POLLS_OF_IDLE_TIME: Final = 10
EVENT_REST_SHARE: Final = 0.25  # of the time that events have taken, for what else the process does

# -- committers of tables: recorded cuts that are searched for the time of a position -------------
FIRST_RECORD_STEP_MS: Final = 120_000  # how far back the search goes first: cuts are recorded once a minute
CLOSE_RECORDS_MS: Final = 1000  # records that are closer to each other are taken for one
MAX_MEASURED_TABLES: Final = 100  # Iceberg tables that have metrics of their own in one process
MAX_MEASURED_INDEXES: Final = 100  # indexes for full-text search that have metrics of their own in one process
MAX_RUN_PROBLEM_CHARACTERS: Final = 500  # of the error that ended the last run
# Metrics of a job stay so long after a run has ended: the next one begins earlier, if it is here.
SERIES_AFTER_END_SECONDS: Final = 180.0
# How often snapshots are expired: a quarter of the age at which they are, within these bounds.
MIN_MAINTENANCE_SECONDS: Final = 15.0
MAX_MAINTENANCE_SECONDS: Final = 3600.0

OWN_REGISTRY_SECONDS: Final = 10.0  # how long a reader of events waits for the registry of its own process

# -- batches of segments: how many segments, and bytes to append, one request to a store has
MAX_BATCH_ITEMS: Final = 1000
MAX_BATCH_WRITE_BYTES: Final = 4 * MIB

# -- continuous queries
MAX_CONTINUOUS_QUERIES: Final = 20_000  # of one stream
MAX_CONTINUOUS_OUTPUTS: Final = 64  # streams that the matches of one stream go to
MAX_MEASURED_CONTINUOUS: Final = 10  # queries of a stream that have metrics of their own: those with the most matches
MAX_CONTINUOUS_POLL_SECONDS: Final = 3.0  # between two questions about new queries while no events come
# The lease of a transaction with matches: the longest there is, since a commit that is recorded should find it open.
CONTINUOUS_LEASE_SECONDS: Final = 600.0
MAX_CONTINUOUS_SEARCHED_BYTES: Final = 256 * MIB  # of an output, for a transaction that nobody remembers
MAX_LISTED_CONTINUOUS: Final = 100  # queries in one answer: each has a text of up to some KiB
MAX_CONTINUOUS_ATTEMPTS: Final = 20  # to change a row that others change at the same time
COUNTED_QUERIES_AT_ONCE: Final = 200  # continuous queries that are decoded before other calls have a turn
CONTINUOUS_COUNT_SECONDS: Final = 10.0  # for so long the queries of a stream are known about
MAX_COUNTED_CONTINUOUS_STREAMS: Final = 256  # whose queries a controller knows about for so long
MAX_CONTINUOUS_WAY_STREAMS: Final = 64  # to which the queries of an output may lead, over several streams
MAX_SHOWN_WAY_CHARACTERS: Final = 1_000  # of the streams by which matches would come back to their source

# -- links
# How often a link's row is read, and its status saved.
LINK_POLL_SECONDS: Final = 2.0
LINK_STATUS_SECONDS: Final = 5.0
# A link that has been down for so long is a reason of the process's health.
LINK_FAILING_SECONDS: Final = 300.0
# For how long a link that has ended tells its source that nothing is to be kept for it.
LINK_RELEASE_SECONDS: Final = 10.0

# -- searches ------------------------------------------------------------------------------------
MAX_SHARD_LISTS: Final = 64  # lists of the closed shards of an index that a controller keeps
# How long a controller asks nothing of another one that did not answer for its shards.
HOLDER_RETRY_SECONDS: Final = 10.0
HOLDER_ECHO_SECONDS: Final = 2.0  # of silence of another controller, before it is asked whether it is there, and after
MAX_SEARCH_SECONDS: Final = 30.0  # of one search
QUICK_CUT_BYTES: Final = 2 * KIB  # longer cuts from callers are parsed on a thread: these take a millisecond or two
SEARCH_SHARDS_AT_ONCE: Final = 8  # of one search: some wait for their files while others are searched
MAX_SHARDS_ASKED: Final = 10_000  # of one search
# The hits of the answer of a controller for its shards: those of a page, those before it with the same order key, one.
MAX_SHARD_HITS: Final = 11_001
