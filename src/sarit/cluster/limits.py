"""Bounds and intervals of a cluster's processes."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import MIB

# -- coordination of stores --------------------------------------------------------------------
STORE_INCARNATION_BYTES: Final = 8
LEAVE_STORE_SECONDS: Final = 60.0
# Then it still listens for so long, more than a poll of the map: controllers may have sent clients to it just before.
LEFT_STORE_SECONDS: Final = 1.5

# -- sarit doctor, sarit top ------------------------------------------------------------------------
DOCTOR_SECONDS: Final = 3.0  # for an answer of whoever has a port; four times that for long-term storage
BOOKIE_SETTINGS_BYTES: Final = 1 * MIB  # of the configuration that a bookie sends

# -- controllers on stores of other processes -------------------------------------------------------
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
ZOOKEEPER_START_SECONDS: Final = 60.0  # the same of a cluster's process
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
