"""Fixed bounds of the edges to the machine, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# TLS: the most connections that wait, and that are in a handshake, of all hosts and of one; the time for a handshake;
# the time for the end of a connection.
MAX_TLS_HANDSHAKES: Final = 1000
MAX_TLS_HANDSHAKES_OF_HOST: Final = 64
TLS_HANDSHAKE_SECONDS: Final = 10.0
TLS_SHUTDOWN_SECONDS: Final = 2.0
MAX_ACCEPTED_AT_ONCE: Final = 16
CROWDED_REST_SECONDS: Final = 0.05  # the pause between so many connections and the next, while older ones give way
ACCEPT_RETRY_SECONDS: Final = 1.0  # the pause when the process has no descriptor left
MAX_SMALL_FILE_BYTES: Final = 16 * MIB  # the most of a file of users, keys or passwords

# -- threads ------------------------------------------------------------------------------
WORKER_START_SECONDS: Final = 30.0  # the time after which a thread that has not run yet is given up
HAND_OVER_RETRY_SECONDS: Final = 0.02  # the pause before a result is handed over again when memory for it lacks

# -- traces -------------------------------------------------------------------------------
MAX_TRACED_APPENDS: Final = 10_000  # sampled appends not acknowledged yet; beyond it the oldest are forgotten
TRACE_CLOSE_SECONDS: Final = 3.0  # the time limit of a request to the receiver of spans, and of the last ones at exit
TRACE_NUMBER_BYTES: Final = 16
SPAN_NUMBER_BYTES: Final = 8

# -- files and sockets -------------------------------------------------------------------------
DISK_BLOCK_BYTES: Final = 4096
# The aligned memory that each thread has for direct writes.
DIRECT_STAGING_BYTES: Final = 4 * MIB
# Writes from this size on use O_DIRECT (docs/decisions/0304).
DIRECT_WRITE_BYTES: Final = 1 * MIB
# The same for writes that nobody waits for.  Larger than a rate-limited piece of a chunk, since direct writes of such
# pieces delay the syncs of the log.
DIRECT_BACKGROUND_WRITE_BYTES: Final = 512 * KIB
# The most bytes of one direct read: larger ones delay the syncs of the log, since the disk serves each of them whole.
DIRECT_READ_PIECE_BYTES: Final = 256 * KIB
LISTEN_BACKLOG: Final = 4096  # connections that the kernel holds until they are accepted
SOCKET_BUFFER_BYTES: Final = 4 * MIB

# -- cache, flush, long-term storage ---------------------------------------------------------
READ_BLOCK_BYTES: Final = 2 * MIB  # the part of a chunk that is read at once and cached

# -- the interpreter ---------------------------------------------------------------------------
# How long one turn of the event loop may deliver results of threads.
DELIVERY_SECONDS: Final = 0.005
