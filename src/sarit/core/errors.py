"""What can go wrong, sorted by what the caller must do about it.

Wire replies and gRPC statuses map to these kinds in one table each
(`store/server/replies.py`, `rpc/grpc_server.py`).  A bug is an AssertionError instead.
"""

from __future__ import annotations


class SaritError(Exception):
    """Base of everything Sarit raises on purpose."""


class Invalid(SaritError):
    """The call itself is wrong: fix it; retrying cannot help."""


class NotFound(SaritError):
    """The named thing does not exist (any more)."""


class Exists(SaritError):
    """The named thing exists already; nothing was changed."""


class Sealed(SaritError):
    """The segment or stream is sealed: it takes no more data, for ever."""


class Truncated(SaritError):
    """The offset lies below the start of the segment.  `start_offset` is in bytes."""

    def __init__(self, message: str, start_offset: int) -> None:
        super().__init__(message)
        self.start_offset = start_offset


class Conflict(SaritError):
    """A condition did not hold: read again, decide again, retry."""

    def __init__(self, message: str, *, expected: object = None, actual: object = None) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual


class Fenced(SaritError):
    """Somebody with a higher epoch owns this now: stop."""


class Unavailable(SaritError):
    """Not now: retry later."""


class Corrupt(SaritError):
    """Stored bytes are not what was written: stop and alarm; never repair by guessing."""
