"""The id of the request that is answered now, for the lines that are logged meanwhile.

A client of Pravega sends one with each call of the controller.  The tasks that a call starts inherit it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from sarit.core.limits import MAX_REQUEST_ID_CHARACTERS

current_request_id: Final[ContextVar[str]] = ContextVar("request_id", default="")


def clean_request_id(text: str) -> str:
    """An id that a client chose, as it may stand in a line: printable, and not long."""
    return "".join(char for char in text[:MAX_REQUEST_ID_CHARACTERS] if char.isascii() and char.isprintable())
