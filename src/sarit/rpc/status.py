"""The statuses of gRPC calls, and the encoding of messages and deadlines in headers."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final
from urllib.parse import quote, unquote

_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")  # not quoted in `grpc-message`
_TIMEOUT: Final = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNIT_SECONDS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class Status(IntEnum):
    """The status of a call, as in `grpc-status`."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class CallFailed(Exception):
    """Raised for a call that ended with another status than OK."""

    def __init__(self, status: Status, message: str = "") -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message


def quoted(text: str) -> str:
    """Encode a text as a value of `grpc-message`."""
    return quote(text, safe=_PLAIN)


def unquoted(value: str) -> str:
    """Decode a value of `grpc-message`."""
    return unquote(value, errors="replace")


def timeout_text(seconds: float) -> str:
    """Encode seconds as a value of `grpc-timeout`, which has eight digits at most."""
    if seconds < 10:
        return f"{max(int(seconds * 1e6), 0)}u"
    return f"{min(int(seconds * 1e3), 99_999_999)}m"


def timeout_seconds(value: str) -> float:
    """Decode a value of `grpc-timeout` to seconds.  Raises ValueError."""
    found = _TIMEOUT.fullmatch(value)
    if found is None:
        raise ValueError(f"{value[:20]!r} is no timeout")
    return int(found[1]) * _UNIT_SECONDS[found[2]]
