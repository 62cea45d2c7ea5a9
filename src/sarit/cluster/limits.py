"""Bounds and intervals of a cluster's processes."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import MIB

# -- coordination of stores --------------------------------------------------------------------
STORE_INCARNATION_BYTES: Final = 8
LEAVE_STORE_SECONDS: Final = 60.0
# How long a store still listens when its containers have moved, longer than a poll of the map: controllers may have
# sent clients to it just before.
LEFT_STORE_SECONDS: Final = 1.5

# -- sarit doctor, sarit top ------------------------------------------------------------------------
DOCTOR_SECONDS: Final = 3.0  # how long `doctor` waits for a reply; four times that for long-term storage
BOOKIE_SETTINGS_BYTES: Final = 1 * MIB  # the most that is read of a bookie's configuration

# -- controllers on stores of other processes -------------------------------------------------------
CONTROLLER_DRAIN_SECONDS: Final = 5.0  # how long a controller that stops waits for calls in progress

# -- the cluster ------------------------------------------------------------------------------------
MIN_STORE_LEASE_SECONDS: Final = 4.0
CLOCK_WARNING_SECONDS: Final = 5.0  # a difference from ZooKeeper's clock that is logged
MAX_STORE_LEASE_SECONDS: Final = 30.0
CLUSTER_ID_BYTES: Final = 16
CLUSTER_SECRET_BYTES: Final = 32
WORKER_NAME_BYTES: Final = 8  # of random digits in the name of a worker without an HTTP port
DRAIN_POLL_SECONDS: Final = 0.5
# The file size of a log in a directory.  To open a container is to create and fill a file, most of the time of a move.
SHARED_LOG_FILE_BYTES: Final = 16 * MIB
ZOOKEEPER_START_SECONDS: Final = 60.0  # how long a process of a cluster waits for ZooKeeper at its start
# How often a store reports its requests to object storage, and the time that a report covers.
REQUEST_REPORT_SECONDS: Final = 30.0
REQUEST_WINDOW_SECONDS: Final = 300.0
# How often a store reports its health, and how often it checks for a change; how often a controller reads all reports;
# from which age on a report is ignored; for how long a first attempt to open a container counts as opening.
HEALTH_REPORT_SECONDS: Final = 5.0
HEALTH_SAMPLE_SECONDS: Final = 1.0
HEALTH_READ_SECONDS: Final = 2.0
HEALTH_OLD_SECONDS: Final = 15.0
OPENING_SECONDS: Final = 10.0
DAY_SECONDS: Final = 86_400
# S3 Standard in us-east-1 (https://aws.amazon.com/s3/pricing): $5 for a million PUT, COPY, POST and LIST; $0.40 for a
# million GET and others.  DELETE costs nothing.
S3_PUT_DOLLARS: Final = 5e-6
S3_GET_DOLLARS: Final = 0.4e-6
