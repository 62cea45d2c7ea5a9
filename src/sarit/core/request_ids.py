"""The id of the request that is answered now, for the lines that are logged meanwhile.

Clients send one with each call of the controller, and each request to a store has one.  The tasks that a call starts
inherit it.  A controller that asks another process logs the id of that request with the one of the call (DEBUG).
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from sarit.core.limits import MAX_REQUEST_ID_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Iterator

current_request_id: Final[ContextVar[str]] = ContextVar("request_id", default="")


@contextmanager
def outside_requests() -> Iterator[None]:
    """Let tasks that begin in this block belong to no request, since they outlive the request that starts them."""
    token = current_request_id.set("")
    try:
        yield
    finally:
        current_request_id.reset(token)


def clean_request_id(text: str) -> str:
    """Return an id that a client chose in a form fit for a log line: its printable characters, cut to a length."""
    return "".join(char for char in text[:MAX_REQUEST_ID_CHARACTERS] if char.isascii() and char.isprintable())
