"""Bounds of the HTTP port."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

MAX_HTTP_CONNECTIONS: Final = 256
# Beyond them, for probes alone, when each of those has a request under way.
HTTP_RESERVED_CONNECTIONS: Final = 16
# A new connection begins its first request within that time.
HTTP_FIRST_REQUEST_SECONDS: Final = 10.0
MAX_HTTP_HEAD_BYTES: Final = 32 * KIB
MAX_HTTP_BODY_BYTES: Final = 8 * MIB
HTTP_BACKLOG: Final = 128
# From the head of a request to the head of its response, the request's body included.
HTTP_REQUEST_SECONDS: Final = 30.0
# A client takes each part of a response within that time, or its connection ends.
HTTP_SEND_SECONDS: Final = 30.0
# A connection that begins no request for so long is closed.
HTTP_IDLE_SECONDS: Final = 60.0
# Requests under way may end within that time when the port closes.
HTTP_CLOSE_SECONDS: Final = 1.0
# Callers who log in: each has a client of the controller.
MAX_HTTP_CALLERS: Final = 64
MAX_HTTP_CALLERS_OF_USER: Final = 4
HTTP_CALLER_IDLE_SECONDS: Final = 300.0
