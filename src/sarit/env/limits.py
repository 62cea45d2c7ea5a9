"""Fixed bounds of the edges to the machine, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

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

# -- files and sockets -------------------------------------------------------------------------
DISK_BLOCK_BYTES: Final = 4096
# Aligned memory of a thread for direct writes.
DIRECT_STAGING_BYTES: Final = 4 * MIB
# Writes from this size on use O_DIRECT (docs/decisions/0304).
DIRECT_WRITE_BYTES: Final = 1 * MIB
# The same for writes that nobody waits for.  More than a rate-limited piece of a chunk: direct writes of such pieces
# delay the syncs of the log.
DIRECT_BACKGROUND_WRITE_BYTES: Final = 512 * KIB
# Larger direct reads delay the syncs of the log: the disk serves each of them whole.
DIRECT_READ_PIECE_BYTES: Final = 256 * KIB
LISTEN_BACKLOG: Final = 4096  # connections that the kernel holds until they are accepted
SOCKET_BUFFER_BYTES: Final = 4 * MIB

# -- cache, flush, long-term storage ---------------------------------------------------------
READ_BLOCK_BYTES: Final = 2 * MIB  # of a chunk, read at once and cached

# -- the interpreter ---------------------------------------------------------------------------
# Results of threads that are ready are delivered in one turn of the event loop, for at most that long.
DELIVERY_SECONDS: Final = 0.005
