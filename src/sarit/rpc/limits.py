"""Bounds of the gRPC port, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# How long after it opened a connection may stay without a call by a known client.
GRPC_FIRST_CALL_SECONDS: Final = 60.0
# How long a client that broke the protocol gets to read the last bytes before its connection is closed.
GRPC_CLOSE_SECONDS: Final = 10.0
# When a controller stops: how often it checks its connections for calls, and how long clients get to read GOAWAY.
GRPC_DRAIN_POLL_SECONDS: Final = 0.02
GRPC_AWAY_SECONDS: Final = 1.0
# After how long without bytes from the client a connection is pinged ...
GRPC_IDLE_SECONDS: Final = 60.0
# ... and how long the client has to answer: on a slow network the ping waits behind replies.
GRPC_PING_SECONDS: Final = 60.0

# The longest text of an error, in the header that carries it.
MAX_GRPC_MESSAGE_BYTES: Final = KIB
# The longest text in a request, in UTF-8: tags and writer ids may be as long; names have 255.
MAX_REQUEST_TEXT_BYTES: Final = KIB
# The longest list of texts in a request, as a stream's tags, and the longest other list, as the segments of a cut.
MAX_REQUEST_TEXTS: Final = 1_000
MAX_REQUEST_ITEMS: Final = 100_000

# Frames of HTTP/2 (rpc/frames.py).  The longest is what HTTP/2 allows a client by default.
MAX_HTTP2_FRAME_BYTES: Final = 16 * KIB
MAX_HEADER_BLOCK_BYTES: Final = 64 * KIB  # the headers of one request; h2 has the same bound for decoded headers
SMALL_DATA_BYTES: Final = KIB  # shorter DATA counts as control: a long request in pieces of a byte costs the most
# How much one connection passes to h2 in one turn of the event loop: eight calls, and headers that take 10 ms at most.
HTTP2_FRAMES_PER_TURN: Final = 16
HEADER_BYTES_PER_TURN: Final = 8 * KIB
# How much unread input a connection holds; the rest waits in the socket.
MAX_UNREAD_BYTES: Final = 64 * KIB

# The budget of control frames of a connection (rpc/frame_budget.py): frames at once, frames per second, and the frames
# that each call adds; UNKNOWN: before the client has logged in.
CONTROL_BURST: Final = 8_000
CONTROL_PER_SECOND: Final = 1_000
UNKNOWN_CONTROL_BURST: Final = 200
UNKNOWN_CONTROL_PER_SECOND: Final = 20
CONTROL_PER_CALL: Final = 8
REFUSED_CALL_CONTROL: Final = 4  # the cost of a call beyond the connection's limit
# Work before the first log-in, in units of a small frame (about 20 us): of a connection, and of all those of a host.
UNKNOWN_WORK_BURST: Final = 2_000
UNKNOWN_WORK_PER_SECOND: Final = 500
HOST_WORK_BURST: Final = 20_000
HOST_WORK_PER_SECOND: Final = 5_000
CONNECTION_WORK: Final = 25  # the work of a new connection
CALL_WORK: Final = 16  # the work of a call that is refused
HEADER_BYTES_PER_WORK: Final = 32
FLOOD_WORK: Final = 2_000  # charged to the host of a disconnected client, so that its next connections wait
MIN_WORK_WAIT_SECONDS: Final = 0.25  # how often connections of a host that share a budget check it
MAX_HOSTS_COUNTED: Final = 10_000

# For a client: the flow-control window of its connection, and the longest reply.
CLIENT_WINDOW_BYTES: Final = 4 * MIB
MAX_API_REPLY_BYTES: Final = 64 * MIB

# -- the controller's API ----------------------------------------------------------------------
MAX_CALLS: Final = 5_000  # the most calls in progress; each takes about 40 kB
MAX_CALLS_PER_CONNECTION: Final = 1_000  # the most of one connection; Java programs have one for all their threads

# -- node, gRPC --------------------------------------------------------------------------------
# How long a client may take no replies before it is disconnected.
GRPC_STALL_SECONDS: Final = 60.0
# How long a new connection may take until its HTTP/2 settings arrive.
GRPC_FIRST_BYTES_SECONDS: Final = 20.0
# The flow-control window: the least that HTTP/2 allows, since every connection may fill its window.
HTTP2_WINDOW_BYTES: Final = 65_535
MAX_API_REQUEST_BYTES: Final = 4 * MIB
# The window of a connection on which a link writes: 64 KiB in each round trip are little for a distant network ...
WIDE_WINDOW_BYTES: Final = 4 * MIB
# ... its longest frame, as of replies to a client: each frame costs both ends about as much as 16 KiB of it ...
WIDE_FRAME_BYTES: Final = 128 * KIB
# ... from which length on DATA does not pass h2, which formats each frame in hexadecimal, for a trace that it drops ...
LONG_DATA_BYTES: Final = 32 * KIB
# ... after how many such bytes the other end gets credit for them ...
LONG_CREDIT_BYTES: Final = MIB
# ... and how many connections have it at most, since each may fill it.
MAX_WIDE_CONNECTIONS: Final = 16
# The memory for all incomplete large requests together.
MAX_BUFFERED_REQUEST_BYTES: Final = 64 * MIB
# How long one request may take to arrive, and one reply to be taken.
GRPC_MESSAGE_SECONDS: Final = 60.0
REQUEST_PIECE_BYTES: Final = 64 * KIB
