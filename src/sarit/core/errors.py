"""Errors, by what the caller must do about them.

Wire replies and gRPC statuses map to these kinds in one table each
(`store/server/replies.py`, `rpc/answers.py`).  A bug is an AssertionError instead.

A kind for which Python has an error of its own is a subclass of that, too, so code that knows only Python catches it.
"""

from __future__ import annotations

from sarit.core.public import public


@public
class SaritError(Exception):
    """Base of all errors that Sarit raises."""


@public
class Invalid(SaritError, ValueError):
    """The call is wrong: fix it; a retry cannot help."""


@public
class NotFound(SaritError, LookupError):
    """The named object does not exist."""


@public
class Exists(SaritError):
    """The named object exists already; nothing was changed."""


@public
class Sealed(SaritError):
    """The segment or stream is sealed: it accepts no more data, for ever."""


@public
class Truncated(SaritError):
    """The offset lies below the start of the segment.  `start_offset` is in bytes."""

    def __init__(self, message: str, start_offset: int = -1) -> None:
        super().__init__(message)
        self.start_offset = start_offset


@public
class Conflict(SaritError):
    """A condition did not hold: read again, decide again, retry."""

    def __init__(self, message: str, *, expected: object = None, actual: object = None) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual


@public
class Fenced(SaritError):
    """A process with a higher epoch owns this now: stop."""


class Moved(SaritError):
    """Another store owns the container of this segment: ask the controller where it is, and go there.

    Never a reason to retry on the same connection.  Nothing was done."""


@public
class Unavailable(SaritError):
    """Not now: retry later.  A call of the client raises it when it has retried for the client's `retry_timeout`."""

    final = False  # whether the retry timeout has passed: callers that retry themselves then must not retry again


@public
class Unreachable(Unavailable, ConnectionError):
    """No node could be reached: connections were refused, or lost, until the client's `retry_timeout` had passed."""


@public
class TimedOut(Unavailable, TimeoutError):
    """No answer came, or a condition was not met, within the time of the call: what it asked for may still happen."""


@public
class Corrupt(SaritError):
    """Stored bytes are not what was written: stop and raise an alarm; never guess a repair."""


@public
class Unauthenticated(SaritError):
    """Who makes the call is not known: log in with a user and password, or a token, that the server knows."""


@public
class Forbidden(SaritError):
    """The caller is known, and may not do this: ask an administrator for the permission that the text names."""
