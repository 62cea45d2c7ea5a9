"""The answer to a request of HTTP/1 on a port that speaks something else: of a probe, a load balancer, a browser.

Pure."""

from __future__ import annotations

from typing import Final

# The first four bytes of a request, by its method.
HTTP_METHODS: Final = frozenset((b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE", b"PATC"))
METHOD_PREFIX: Final = 4


def http_answer(spoken: str) -> bytes:
    """A whole response that says where health, metrics and REST are.  `spoken`: what the port speaks."""
    return (
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
        f"This port speaks {spoken}. Health, metrics and REST are on the HTTP port: see --http-port.\n"
    ).encode()
