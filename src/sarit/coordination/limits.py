"""Bounds and intervals of coordination: members, leases, the container map."""

from __future__ import annotations

from typing import Final

# -- container and durable log --------------------------------------------------------------
MAX_CONTAINERS: Final = 1024

# -- coordination of stores --------------------------------------------------------------------
# A member is gone when the service has received no heartbeat for a lease.  The member itself stops trusting its lease
# by a margin earlier.
STORE_LEASE_SECONDS: Final = 6.0
STORE_LEASE_MARGIN_SECONDS: Final = 1.0
STORE_HEARTBEATS_PER_LEASE: Final = 6
COORDINATION_POLL_SECONDS: Final = 1.0  # beside watches, which may be lost
COORDINATION_RETRY_SECONDS: Final = 0.1
MAX_STORES: Final = 1000
MAX_STORE_TEXT_BYTES: Final = 255
MAX_STORE_WEIGHT: Final = 1000
# How long the first map of a cluster waits for the expected stores.
FIRST_MAP_SECONDS: Final = 5.0
# How long after a change of stores no container moves to balance the load: a store that restarts comes back by then.
BALANCE_QUIET_SECONDS: Final = 10.0
CONTAINER_REST_SECONDS: Final = 60.0
MAX_BALANCE_MOVES: Final = 2
MAX_LEAVING_MOVES: Final = 4
MAX_MOVES_TO_STORE: Final = 2
# A store that has not released a moving container after this time loses it.
MOVE_SECONDS: Final = 20.0
# How long to wait for ZooKeeper: for the first connection; in a call for a connection; in a call for its reply; in one
# attempt to connect; between attempts.
ZOOKEEPER_CONNECT_SECONDS: Final = 5.0
ZOOKEEPER_WAIT_SECONDS: Final = 2.0
ZOOKEEPER_CALL_SECONDS: Final = 5.0
ZOOKEEPER_SOCKET_SECONDS: Final = 1.0
ZOOKEEPER_RETRY_SECONDS: Final = 0.5
