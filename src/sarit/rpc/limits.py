"""Bounds of the gRPC port, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# A connection that has begun no call for so long after it opened is sent away: it holds a place.
GRPC_FIRST_CALL_SECONDS: Final = 60.0
# From the last bytes to a client that broke the protocol to the end of its connection.
GRPC_CLOSE_SECONDS: Final = 10.0
# Of a controller that stops: between two glances at its connections, and for clients to read that they are sent away.
GRPC_DRAIN_POLL_SECONDS: Final = 0.02
GRPC_AWAY_SECONDS: Final = 1.0
# A connection that sends nothing for that long gets a ping ...
GRPC_IDLE_SECONDS: Final = 60.0
# ... and that long to answer: over a slow path the ping waits after replies.
GRPC_PING_SECONDS: Final = 60.0

# Of the text of an error, as the header that carries it.
MAX_GRPC_MESSAGE_BYTES: Final = KIB
# Of each text in a request, in UTF-8: tags and the ids of writers may have as much, names have 255.
MAX_REQUEST_TEXT_BYTES: Final = KIB
# Of each list of texts in a request, as the tags of a stream, and of each other list, as the segments of a cut.
MAX_REQUEST_TEXTS: Final = 1_000
MAX_REQUEST_ITEMS: Final = 100_000

# Frames of HTTP/2 (rpc/frames.py).  The longest is what HTTP/2 allows a client by default.
MAX_HTTP2_FRAME_BYTES: Final = 16 * KIB
MAX_HEADER_BLOCK_BYTES: Final = 64 * KIB  # of one request; h2 bounds what they are when they are decoded by as much
SMALL_DATA_BYTES: Final = KIB  # shorter DATA counts as control: a long request in pieces of a byte costs the most
# What one connection hands to h2 in one turn of the event loop: eight calls; headers that take 10 ms at the worst.
HTTP2_FRAMES_PER_TURN: Final = 16
HEADER_BYTES_PER_TURN: Final = 8 * KIB
# More than that waits in the socket.
MAX_UNREAD_BYTES: Final = 64 * KIB

# Budgets (rpc/frame_budget.py).  Control frames: at once, in each second, and given back for each call.
CONTROL_BURST: Final = 8_000
CONTROL_PER_SECOND: Final = 1_000
UNKNOWN_CONTROL_BURST: Final = 200
UNKNOWN_CONTROL_PER_SECOND: Final = 20
CONTROL_PER_CALL: Final = 8
REFUSED_CALL_CONTROL: Final = 4  # a call over the number that a connection may have under way
# Work before the first log-in, in the cost of a small frame (about 20 us): of a connection, and of all of a host.
UNKNOWN_WORK_BURST: Final = 2_000
UNKNOWN_WORK_PER_SECOND: Final = 500
HOST_WORK_BURST: Final = 20_000
HOST_WORK_PER_SECOND: Final = 5_000
CONNECTION_WORK: Final = 25  # for its objects
CALL_WORK: Final = 16  # for its handler and its refusal
HEADER_BYTES_PER_WORK: Final = 32
FLOOD_WORK: Final = 2_000  # for a client that is sent away: its next connections wait
MIN_WORK_WAIT_SECONDS: Final = 0.25  # many connections of a host wait for one budget, and look at it that often
MAX_HOSTS_COUNTED: Final = 10_000

# Of a client: what a server may send before it is read, over a connection, and the longest reply.
CLIENT_WINDOW_BYTES: Final = 4 * MIB
MAX_API_REPLY_BYTES: Final = 64 * MIB

# -- the controller's API ----------------------------------------------------------------------
MAX_CALLS: Final = 5_000  # under way; each takes about 40 kB
MAX_CALLS_PER_CONNECTION: Final = 1_000  # of those; Java programs have one connection for all their threads

# -- node, gRPC --------------------------------------------------------------------------------
# A client that takes no replies for that long is disconnected.
GRPC_STALL_SECONDS: Final = 60.0
# From a new connection to its first bytes (one port) or its HTTP/2 settings.
GRPC_FIRST_BYTES_SECONDS: Final = 20.0
# The least that HTTP/2 allows: every connection may use all of its window.
HTTP2_WINDOW_BYTES: Final = 65_535
MAX_API_REQUEST_BYTES: Final = 4 * MIB
# Of all large requests that are not complete, together.
MAX_BUFFERED_REQUEST_BYTES: Final = 64 * MIB
# For one whole request to arrive, and for one reply to be taken.
GRPC_MESSAGE_SECONDS: Final = 60.0
REQUEST_PIECE_BYTES: Final = 64 * KIB
