"""The id of the request that is answered now, for the lines that are logged meanwhile.

Clients send one with each call of the controller, and each request to a store has one.  The tasks that a call starts
inherit it.  A controller that asks another process logs the id of that request with the one of the call (DEBUG).
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from sarit.core.limits import MAX_REQUEST_ID_CHARACTERS

current_request_id: Final[ContextVar[str]] = ContextVar("request_id", default="")


def clean_request_id(text: str) -> str:
    """An id that a client chose, as it may stand in a line: printable, and not long."""
    return "".join(char for char in text[:MAX_REQUEST_ID_CHARACTERS] if char.isascii() and char.isprintable())
