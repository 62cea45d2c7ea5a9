"""Fixed bounds of the edges to the machine, by name, unit last."""

from __future__ import annotations

from typing import Final

# TLS: handshakes under way, how long one may take, and the end of a connection.
MAX_TLS_HANDSHAKES: Final = 1000
TLS_HANDSHAKE_SECONDS: Final = 10.0
TLS_SHUTDOWN_SECONDS: Final = 2.0
