"""What a bookie says of itself in its registration with ZooKeeper.  Pure.

The value of the node is one protobuf message (`BookieServiceInfoFormat`): endpoints, each with a protocol, a host and a
port.  Bookies of earlier releases have an empty one.
"""

from __future__ import annotations

from typing import Final

from sarit.log.bookkeeper.metadata import fields

_ENDPOINTS, _PORT, _HOST, _PROTOCOL = 6, 2, 3, 4
_HTTP: Final = b"http"
_MOST_PORT: Final = (1 << 16) - 1


def admin_address(data: bytes) -> tuple[str, int] | None:
    """Host and port of its HTTP admin; None: it has none, or does not say."""
    try:
        for number, value in fields(data):
            if number == _ENDPOINTS and isinstance(value, bytes):
                endpoint = dict(fields(value))
                host, port = endpoint.get(_HOST), endpoint.get(_PORT)
                if endpoint.get(_PROTOCOL) == _HTTP and isinstance(host, bytes) and isinstance(port, int):
                    return (host.decode(), port) if host and 0 < port <= _MOST_PORT else None
    except ValueError:
        pass
    return None
