"""The answer to HTTP/1 or TLS on a port of another protocol, from a probe, a browser, or a client that wants TLS.

Pure."""

from __future__ import annotations

from typing import Final

# The first four bytes of a request, by its method.
HTTP_METHODS: Final = frozenset((b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE", b"PATC"))
METHOD_PREFIX: Final = 4
# The first two bytes of a client that begins with TLS, and the alert that ends its handshake.
TLS_HANDSHAKE: Final = 0x1603
_TLS_REFUSED: Final = bytes.fromhex("15030100020228")


def http_answer(spoken: str) -> bytes:
    """Return a whole response that says where health, metrics and REST are.  `spoken`: what the port speaks."""
    return (
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
        f"This port speaks {spoken}. Health, metrics and REST are on the HTTP port: see --http-port.\n"
    ).encode()


def other_protocol(first: int | None, http: bytes) -> tuple[bytes, str] | None:
    """Return the answer to a client whose first four bytes are HTTP or TLS, and what the client did; None: they are
    neither.

    `http`: the result of `http_answer`."""
    if first is None:
        return None
    if first >> 16 == TLS_HANDSHAKE:
        return _TLS_REFUSED, "asks for TLS, and this port has none: its address has tls://, or SARIT_CA_FILE is set"
    return (http, "is an HTTP request") if first.to_bytes(4, signed=first < 0) in HTTP_METHODS else None
