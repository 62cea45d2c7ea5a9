"""`sarit` whose node has a patience of seconds instead of a minute: `python impatient_node.py standalone …`."""

from __future__ import annotations

import sarit.node.standalone
from sarit.cli.main import main
from sarit.rpc import grpc_server as door
from sarit.rpc import request_limiter as reception
from sarit.store.server import listener as server
from sarit.store.server.connection_reaper import ConnectionReaper

PATIENCE_SECONDS = 4.0


def impatient(store, max_connections):
    return server.StoreListener(store, ConnectionReaper(PATIENCE_SECONDS), max_connections)


if __name__ == "__main__":
    server.REAP_INTERVAL_SECONDS = 0.5
    door.STALLED_SECONDS = PATIENCE_SECONDS
    reception.RequestLimiter.__init__.__kwdefaults__["patience_seconds"] = PATIENCE_SECONDS
    sarit.node.standalone.StoreListener = impatient
    main()
