"""Which gRPC status each kind of error becomes.

Clients retry most statuses for a long time (FAILED_PRECONDITION too); NOT_FOUND, ALREADY_EXISTS and
INVALID_ARGUMENT they do not: what waiting cannot mend must be one of these.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from sarit.core.errors import Conflict, Corrupt, Exists, Fenced, Invalid, NotFound, SaritError, Sealed, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

_log = logging.getLogger("sarit.controller")

_STATUS: dict[type[SaritError], Status] = {
    NotFound: Status.NOT_FOUND,
    Exists: Status.ALREADY_EXISTS,
    Invalid: Status.INVALID_ARGUMENT,
    Sealed: Status.INVALID_ARGUMENT,  # it stays sealed: nothing to wait for
    Conflict: Status.FAILED_PRECONDITION,
    Unavailable: Status.UNAVAILABLE,
    Fenced: Status.UNAVAILABLE,
    Corrupt: Status.DATA_LOSS,
}


def answering(method: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Coroutine[Any, Any, None]]:
    """Make a grpclib handler of a method that takes the request and returns the reply."""

    @functools.wraps(method)
    async def call(stream: Any) -> None:
        try:
            request = await stream.recv_message()
        except DecodeError:
            raise GRPCError(Status.INVALID_ARGUMENT, "the request is not a message of this API") from None
        except NotImplementedError:
            raise GRPCError(Status.UNIMPLEMENTED, "compressed requests are not understood") from None
        if request is None:
            return
        try:
            reply = await method(request)
        except SaritError as error:
            raise GRPCError(status_of(error), str(error)) from None
        except NotImplementedError as error:
            raise GRPCError(Status.UNIMPLEMENTED, str(error)) from None
        except Exception:
            _log.exception("%s met a bug of ours", method.__name__)
            raise GRPCError(Status.INTERNAL, "the controller met a bug; see its log") from None
        await stream.send_message(reply)

    return call


def status_of(error: SaritError) -> Status:
    """The gRPC status of an error."""
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), Status.INTERNAL)
