"""`sarit` whose node closes stalled connections after seconds, not a minute.

Run `python node_with_short_timeouts.py standalone …`."""

from __future__ import annotations

import sarit.node.standalone
from sarit.cli.main import main
from sarit.rpc import grpc_server
from sarit.store.server import listener as server
from sarit.store.server.connection_reaper import ConnectionReaper

TIMEOUT_SECONDS = 4.0


def listener(store, max_connections, checks):
    return server.StoreListener(store, ConnectionReaper(TIMEOUT_SECONDS), max_connections, checks=checks)


if __name__ == "__main__":
    server.REAP_INTERVAL_SECONDS = 0.5
    grpc_server.GRPC_STALL_SECONDS = TIMEOUT_SECONDS
    grpc_server.RequestLimiter.__init__.__kwdefaults__["timeout_seconds"] = TIMEOUT_SECONDS
    sarit.node.standalone.StoreListener = listener
    main()
