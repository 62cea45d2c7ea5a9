"""Error replies of the segment store to errors, in one table (wire.md 2, par. 4.4 and 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sarit.core.errors import (
    Conflict,
    Corrupt,
    Exists,
    Forbidden,
    Invalid,
    NotFound,
    SaritError,
    Sealed,
    Truncated,
    Unavailable,
)
from sarit.wire.commands import (
    AuthTokenCheckFailed,
    ConditionalCheckFailed,
    ErrorMessage,
    InvalidEventNumber,
    NoSuchSegment,
    OperationUnsupported,
    SegmentAlreadyExists,
    SegmentIsSealed,
    SegmentIsTruncated,
    WrongHost,
)
from sarit.wire.damage import damage_in

if TYPE_CHECKING:
    from collections.abc import Callable

_ERRORS: dict[type[Any], Callable[[Any, str], SaritError]] = {
    SegmentIsSealed: lambda _, name: Sealed(f"segment {name} is sealed: it takes no more data"),
    NoSuchSegment: lambda _, name: NotFound(f"segment {name} does not exist (any more)"),
    SegmentAlreadyExists: lambda _, name: Exists(f"segment {name} exists already"),
    SegmentIsTruncated: lambda reply, name: Truncated(
        f"segment {name} was truncated: its data begins at offset {reply.start_offset} now", reply.start_offset
    ),
    WrongHost: lambda _, name: Unavailable(f"segment {name} is served by another store now"),
    # Retried: the next SetupAppend says which number the store has.
    InvalidEventNumber: lambda _, name: Unavailable(f"{name}: the store had seen another event number of the writer"),
    OperationUnsupported: lambda reply, name: Invalid(
        f"segment {name}: the store does not support {reply.operation_name}"
    ),
    AuthTokenCheckFailed: lambda reply, name: (
        Unavailable(f"segment {name}: the token has expired")
        if reply.error_code == 1
        else Forbidden(
            f"segment {name}: the store does not serve it: {reply.stack or 'the token was refused'}{_request(reply)}"
        )
    ),
    ErrorMessage: lambda reply, name: Invalid(f"segment {name}: {reply.message}{_request(reply)}"),
    ConditionalCheckFailed: lambda _, name: Conflict(f"segment {name} is not as long as was expected"),
}


def _request(reply: Any) -> str:
    """Return the id by which the store's log can be searched, as the end of a text."""
    return f" (request {reply.request_id})"


def error_of(reply: Any, segment: str) -> SaritError:
    """Return the error a reply stands for; for one that was not expected at all, Unavailable."""
    damage = damage_in(reply)
    if damage is not None:
        return Corrupt(damage)
    make = _ERRORS.get(type(reply))
    if make is None:
        name = type(reply).__name__
        return Unavailable(f"segment {segment}: the store answered {name}, which makes no sense here{_request(reply)}")
    return make(reply, segment)


def expect(reply: Any, kind: type[Any], segment: str) -> Any:
    """`reply` when it is a `kind`; raises the error it stands for otherwise."""
    if type(reply) is not kind:
        raise error_of(reply, segment)
    return reply
