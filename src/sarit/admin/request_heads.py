"""Heads of HTTP/1 requests, checked byte for byte before the HTTP server parses them: pure.

The HTTP server reads generously: a line may end without CR, a request may have both Content-Length and
Transfer-Encoding, and a head of any length passes that comes in one piece.  A proxy in front may read the same bytes in
another way, and take a part of one request for the next one (request smuggling).  So a head that two readers could
understand differently is refused here, and its connection is closed (RFC 9112, par. 2.2, 6.1, 6.3).
"""

from __future__ import annotations

import re
from typing import Final

from sarit.admin.limits import MAX_HTTP_HEAD_BYTES
from sarit.core.errors import Invalid

_END: Final = b"\r\n\r\n"
_REQUEST_LINE: Final = re.compile(rb"[A-Z]{1,20} [\x21-\x7e]+ HTTP/1\.[01]")
_BARE_LINE_END: Final = re.compile(rb"\r(?!\n)|(?<!\r)\n")
_FRAMING: Final = re.compile(rb"(?i)(content-length|transfer-encoding)[ \t]*:[ \t]*(.*?)[ \t]*")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")


class RequestHeads:
    """The bytes of one connection, divided into heads, which are passed on whole, and bodies."""

    __slots__ = ("_body_bytes", "_head", "_passes_all")

    def __init__(self) -> None:
        self._head = b""  # the part that has come
        self._body_bytes = 0  # that are still to come
        self._passes_all = False

    def __repr__(self) -> str:
        return f"<RequestHeads, {len(self._head)} bytes of a head, {self._body_bytes} of a body to come>"

    @property
    def chunked(self) -> bool:
        """Whether a chunked body has begun: only the HTTP server knows its end, so no request may follow."""
        return self._passes_all

    def feed(self, data: bytes) -> list[bytes]:
        """Return the pieces that may be parsed now: whole heads, and bytes of bodies.

        Raises Invalid for a head that is too long or ambiguous; the connection must end then."""
        pieces: list[bytes] = []
        while data:
            if self._passes_all:
                pieces.append(data)
                break
            if self._body_bytes:
                pieces.append(data[: self._body_bytes])
                data = data[self._body_bytes :]
                self._body_bytes -= len(pieces[-1])
                continue
            head, data = self._take_head(data)
            if head:
                self._begin_body(head)
                pieces.append(head)
        return pieces

    def _take_head(self, data: bytes) -> tuple[bytes, bytes]:
        """Return a whole head, or b"", and the bytes behind it.  Raises Invalid."""
        seen = max(0, len(self._head) - len(_END) + 1)
        # No more than one byte over the bound is copied, however much came.
        gathered = self._head + data[: MAX_HTTP_HEAD_BYTES + len(_END) - len(self._head)]
        end = gathered.find(_END, seen)
        whole = end >= 0
        head = gathered[: end + len(_END)] if whole else gathered
        if len(head) > MAX_HTTP_HEAD_BYTES:
            raise Invalid(f"sent no HTTP, or a head of more than {MAX_HTTP_HEAD_BYTES} bytes")
        if not whole:
            # The last byte may be the CR of a line end whose LF is still to come.
            if _BARE_LINE_END.search(head.removesuffix(b"\r"), seen):
                raise Invalid("sent a line that does not end in CR LF")
            if b"\r\n" in head:
                _check_request_line(head)
            self._head = head
            return b"", b""
        _check_request_line(head)
        if _BARE_LINE_END.search(head):
            raise Invalid("sent a line that does not end in CR LF")
        rest = data[len(head) - len(self._head) :]
        self._head = b""
        return head, rest

    def _begin_body(self, head: bytes) -> None:
        """Note the length of the body that follows a head.  Raises Invalid for one that is not certain."""
        lengths: list[bytes] = []
        codings: list[bytes] = []
        for line in head.split(b"\r\n")[1:]:
            if (found := _FRAMING.fullmatch(line)) is not None:
                (lengths if found[1].lower() == b"content-length" else codings).append(found[2])
        if lengths and codings:
            raise Invalid("sent a request with both Content-Length and Transfer-Encoding")
        if len(lengths) > 1 or any(_LENGTH.fullmatch(each) is None for each in lengths):
            raise Invalid("sent a request with more than one Content-Length, or one that is no number")
        if codings and [each.lower() for each in codings] != [b"chunked"]:
            raise Invalid("sent a request with a Transfer-Encoding other than chunked")
        self._passes_all = bool(codings)
        self._body_bytes = int(lengths[0]) if lengths else 0


def _check_request_line(head: bytes) -> None:
    """Raises Invalid for bytes that do not begin as a request of HTTP/1 does."""
    if _REQUEST_LINE.fullmatch(head.partition(b"\r\n")[0]) is None:
        raise Invalid(f"sent no HTTP, or a head of more than {MAX_HTTP_HEAD_BYTES} bytes")
