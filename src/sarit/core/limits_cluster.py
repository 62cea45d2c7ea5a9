"""Bounds, intervals, sizes of a cluster: of ZooKeeper, BookKeeper and shared storage.  The rest: `core/limits.py`."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# -- BookKeeper: wire and metadata -------------------------------------------------------------
# What ZooKeeper takes for one node by default.
BOOKKEEPER_MAX_METADATA_BYTES: Final = 1 * MIB - KIB
BOOKKEEPER_MAX_ENSEMBLE_SIZE: Final = 256
BOOKKEEPER_MAX_ENSEMBLES: Final = 10_000
BOOKKEEPER_MAX_CUSTOM_ENTRIES: Final = 1000
# A bookie closes a connection that sends more (its nettyMaxFrameSizeBytes, by default).
BOOKKEEPER_MAX_FRAME_BYTES: Final = 5 * MIB
BOOKKEEPER_RECEIVE_WINDOW_BYTES: Final = 64 * KIB
# A response from this size on is received into a buffer of its own.
BOOKKEEPER_LARGE_RESPONSE_BYTES: Final = 16 * KIB

# -- ZooKeeper --------------------------------------------------------------------------------
# ZooKeeper: until the first connection; until a call finds one; until its answer; of one attempt; between attempts.
ZOOKEEPER_CONNECT_SECONDS: Final = 5.0
ZOOKEEPER_WAIT_SECONDS: Final = 2.0
ZOOKEEPER_CALL_SECONDS: Final = 5.0
ZOOKEEPER_SOCKET_SECONDS: Final = 1.0
ZOOKEEPER_RETRY_SECONDS: Final = 0.5
