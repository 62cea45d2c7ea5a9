"""Fixed bounds of the edges to the machine, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import MIB

# TLS: connections that wait for the first byte, for a handshake, or are in one; how long each may; a connection's end.
MAX_TLS_HANDSHAKES: Final = 1000
MAX_TLS_HANDSHAKES_OF_HOST: Final = 64
TLS_HANDSHAKE_SECONDS: Final = 10.0
TLS_SHUTDOWN_SECONDS: Final = 2.0
MAX_ACCEPTED_AT_ONCE: Final = 16
CROWDED_REST_SECONDS: Final = 0.05  # between so many and the next while others give way to them
ACCEPT_RETRY_SECONDS: Final = 1.0  # when the process has no descriptor left
MAX_SMALL_FILE_BYTES: Final = 16 * MIB  # users, keys and passwords; more is another file

# -- threads ------------------------------------------------------------------------------
WORKER_START_SECONDS: Final = 30.0  # after which a thread that has not run yet is given up
HAND_OVER_RETRY_SECONDS: Final = 0.02  # between attempts to hand over a result without memory for it

# -- traces -------------------------------------------------------------------------------
MAX_TRACED_APPENDS: Final = 10_000  # sampled, and not acknowledged yet; of more the oldest are forgotten
TRACE_CLOSE_SECONDS: Final = 3.0  # for one request to the receiver of spans, and for the last ones at the end
TRACE_NUMBER_BYTES: Final = 16
SPAN_NUMBER_BYTES: Final = 8
FIRST_REQUEST_ID_BYTES: Final = 6  # of a client or a connection, which counts from there
