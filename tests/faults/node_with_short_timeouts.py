"""`sarit` whose node closes stalled connections after seconds, not a minute, and logs each of many like lines.

Run `python node_with_short_timeouts.py standalone …`."""

from __future__ import annotations

import sarit.process.observation.logs
import sarit.process.store_role
from sarit.cli.main import main
from sarit.rpc import grpc_server, request_limiter
from sarit.store.server import listener as server
from sarit.store.server.connection_reaper import ConnectionReaper

TIMEOUT_SECONDS = 4.0
ALL_LINES = 1 << 30


def listener(store, **options):
    return server.StoreListener(store, ConnectionReaper(TIMEOUT_SECONDS), **options)


if __name__ == "__main__":
    server.REAP_INTERVAL_SECONDS = 0.5
    grpc_server.GRPC_STALL_SECONDS = TIMEOUT_SECONDS
    request_limiter.RequestLimiter.__init__.__kwdefaults__["timeout_seconds"] = TIMEOUT_SECONDS
    sarit.process.store_role.StoreListener = listener
    sarit.process.observation.logs.MAX_ALIKE_LOG_LINES = ALL_LINES
    main()
