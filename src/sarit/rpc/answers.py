"""Calls the methods of the API, and maps their errors to gRPC statuses.

Clients retry most statuses for a long time, even FAILED_PRECONDITION and DATA_LOSS.  They do not retry NOT_FOUND,
ALREADY_EXISTS, INVALID_ARGUMENT, OUT_OF_RANGE, PERMISSION_DENIED and UNAUTHENTICATED: an error that waiting cannot
resolve must be one of these.  Damage is OUT_OF_RANGE, which no other error is (docs/decisions/0318).

The text of an error is a header of HTTP/2, `grpc-message`.  hpack's time for a header grows with the square of its
length (4 s for 80 kB), and an error may repeat a text of its caller, so `grpc_message` cuts every text.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sarit.core.errors import (
    Conflict,
    Corrupt,
    Exists,
    Fenced,
    Forbidden,
    Invalid,
    Moved,
    NotFound,
    SaritError,
    Sealed,
    Unauthenticated,
    Unavailable,
)
from sarit.core.texts import cut_text
from sarit.rpc.limits import MAX_GRPC_MESSAGE_BYTES
from sarit.rpc.status import CallFailed, Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_log = logging.getLogger("sarit.controller")

_STATUS: dict[type[SaritError], Status] = {
    NotFound: Status.NOT_FOUND,
    Exists: Status.ALREADY_EXISTS,
    Invalid: Status.INVALID_ARGUMENT,
    Sealed: Status.INVALID_ARGUMENT,  # for ever, so a retry cannot succeed
    Conflict: Status.FAILED_PRECONDITION,
    Unavailable: Status.UNAVAILABLE,
    Fenced: Status.UNAVAILABLE,
    Moved: Status.UNAVAILABLE,
    Corrupt: Status.OUT_OF_RANGE,
    Unauthenticated: Status.UNAUTHENTICATED,
    Forbidden: Status.PERMISSION_DENIED,
}


async def answer(method: Callable[[Any], Awaitable[Any]], request: Any) -> Any:
    """Call a method of the API, and return its reply.  Raises CallFailed for any error that it raises."""
    try:
        reply = await method(request)
    except SaritError as error:
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s is answered with %s: %s", _name_of(method), type(error).__name__, error)
        raise CallFailed(status_of(error), grpc_message(str(error))) from None
    except NotImplementedError as error:
        raise CallFailed(Status.UNIMPLEMENTED, grpc_message(str(error))) from None
    except Exception:
        _log.exception("%s failed with an unexpected error", _name_of(method))
        raise CallFailed(Status.INTERNAL, "internal error of the controller; see its log") from None
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("%s is answered", _name_of(method))
    return reply


def grpc_message(text: str) -> str:
    """Cut the text of an error so that it has at most MAX_GRPC_MESSAGE_BYTES as a header."""
    return cut_text(text, MAX_GRPC_MESSAGE_BYTES, _header_bytes)


def _header_bytes(char: str) -> int:
    # gRPC writes printable ASCII characters except "%" as they are, and every other byte as three, like %41.
    return 1 if " " <= char <= "~" and char != "%" else 3 * len(char.encode(errors="replace"))


def _name_of(method: Callable[..., object]) -> str:
    return getattr(method, "__name__", str(method))


def status_of(error: SaritError) -> Status:
    """Return the gRPC status of an error."""
    # Use `isinstance`, because subclasses have the status of their base class.
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), Status.INTERNAL)
