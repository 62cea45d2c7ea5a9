"""Bounds, intervals and sizes of processes: of one node, and of a cluster.  What a user chooses: `settings.py`."""

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

# -- the service manager ----------------------------------------------------------------------------
NOTIFY_RETRY_SECONDS: Final = 1.0  # between two checks that it has been sent the newest state

# -- sarit doctor, sarit top ------------------------------------------------------------------------
DOCTOR_SECONDS: Final = 3.0  # for an answer of whoever has a port; four times that for long-term storage
DOCTOR_SYNCS: Final = 20
BOOKIE_SETTINGS_BYTES: Final = 1 * MIB  # of the configuration that a bookie sends
TOP_HTTP_SECONDS: Final = 2.0  # for an answer of a process to `sarit top`
SLOW_SYNC_SECONDS: Final = 0.02
USUAL_DESCRIPTORS: Final = 8192

# -- controllers on stores of other processes -------------------------------------------------------
STORES_RETRY_SECONDS: Final = 0.5  # between two attempts to begin
# A store that did not answer a request which earlier versions do not know is asked for it again after that time.
EARLIER_STORE_SECONDS: Final = 60.0
CONTROLLER_DRAIN_SECONDS: Final = 5.0  # for calls under way, when a controller stops

# -- the cluster ------------------------------------------------------------------------------------
MIN_STORE_LEASE_SECONDS: Final = 4.0
CLOCK_WARNING_SECONDS: Final = 5.0  # between the clock of a machine and that of ZooKeeper
MAX_STORE_LEASE_SECONDS: Final = 30.0
CLUSTER_ID_BYTES: Final = 16
CLUSTER_SECRET_BYTES: Final = 32
DRAIN_POLL_SECONDS: Final = 0.5
# Of a log in a directory: an opening begins a file and fills it, which is most of the time of a move.
SHARED_LOG_FILE_BYTES: Final = 16 * MIB
LOG_SESSION_SECONDS: Final = 10.0  # with ZooKeeper; a log needs no lease, so it may be long
BOOKIES_WAIT_SECONDS: Final = 60.0  # a start waits for bookies that start, too
ZOOKEEPER_START_SECONDS: Final = 60.0  # the same of a cluster's process
# Between two commits to an index on an object store, whose requests cost money.
OBJECT_STORE_FLUSH_INTERVAL_SECONDS: Final = 10.0
PACKED_SEGMENTS: Final = 1024  # whose small extents one compaction joins, for one commit
# How often a store reports its requests to object storage, and those of which time.
REQUEST_REPORT_SECONDS: Final = 30.0
REQUEST_WINDOW_SECONDS: Final = 300.0
# How often a store reports its health, and looks for a change of it; from which age on a report counts as none; and for
# how long a first attempt to open a container counts as on its way.
HEALTH_REPORT_SECONDS: Final = 5.0
HEALTH_SAMPLE_SECONDS: Final = 1.0
HEALTH_READ_SECONDS: Final = 2.0  # between two readings of all reports by a controller
HEALTH_OLD_SECONDS: Final = 15.0
OPENING_SECONDS: Final = 10.0
DAY_SECONDS: Final = 86_400
# S3 Standard in us-east-1 (https://aws.amazon.com/s3/pricing): $5 for a million PUT, COPY, POST and LIST; $0.40 for a
# million GET and others.  DELETE costs nothing.
S3_PUT_DOLLARS: Final = 5e-6
S3_GET_DOLLARS: Final = 0.4e-6

# -- the interpreter --------------------------------------------------------------------------------
# The timer of garbage collections (process/observation/gc_scheduler.py).
GC_INTERVAL_SECONDS: Final = 0.05
# A collection of the young visits so many objects at most: about 4 ms.
MAX_YOUNG_GC_OBJECTS: Final = 5_000
# It is followed by a pause of that many times its duration, in which young objects are set aside unvisited.
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

BACKUP_SIGN_SECONDS: Final = 2.0  # between two signs of a backup that copies
MAX_BACKUP_LINE_BYTES: Final = 64 * 1024
MAX_SOCKET_PATH_BYTES: Final = 107  # of Linux

# Of a text in a log line, of an error's, and of a message without arguments: a client may have chosen it.
MAX_LOG_FIELD_CHARACTERS: Final = 256
MAX_LOG_ERROR_CHARACTERS: Final = 1024
MAX_LOG_LINE_CHARACTERS: Final = 4 * 1024
