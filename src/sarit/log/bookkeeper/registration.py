"""The value that a bookie registers in ZooKeeper.

The value of the node is one protobuf message (`BookieServiceInfoFormat`): endpoints, each with a protocol, a host and a
port.  Bookies of earlier releases register an empty value.
"""

from __future__ import annotations

from typing import Final

from sarit.log.bookkeeper.metadata import fields

_ENDPOINTS, _PORT, _HOST, _PROTOCOL = 6, 2, 3, 4
_HTTP: Final = b"http"
_MOST_PORT: Final = (1 << 16) - 1


def admin_address(data: bytes) -> tuple[str, int] | None:
    """Return host and port of the HTTP admin endpoint of a bookie; None when it registers none."""
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
