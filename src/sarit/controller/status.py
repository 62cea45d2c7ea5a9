"""Which gRPC status each kind of error becomes.

Clients retry most statuses for a long time; NOT_FOUND, ALREADY_EXISTS and INVALID_ARGUMENT they do not.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from sarit.core.errors import Conflict, Corrupt, Exists, Invalid, NotFound, SaritError, Sealed, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

_log = logging.getLogger("sarit.controller")

T = TypeVar("T")

_STATUS: dict[type[SaritError], Status] = {
    NotFound: Status.NOT_FOUND,
    Exists: Status.ALREADY_EXISTS,
    Invalid: Status.INVALID_ARGUMENT,
    Sealed: Status.FAILED_PRECONDITION,
    Conflict: Status.FAILED_PRECONDITION,
    Unavailable: Status.UNAVAILABLE,
    Corrupt: Status.DATA_LOSS,
}


def answering(method: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Coroutine[Any, Any, Any]]:
    """Make an rpc of a method that takes the request and returns the reply."""

    @functools.wraps(method)
    async def call(self: Any, stream: Any) -> None:
        request = await stream.recv_message()
        if request is None:
            return
        try:
            reply = await method(self, request)
        except SaritError as error:
            raise GRPCError(_STATUS.get(type(error), Status.INTERNAL), str(error)) from None
        except NotImplementedError as error:
            raise GRPCError(Status.UNIMPLEMENTED, str(error)) from None
        except AssertionError:
            _log.exception("%s met a bug of ours", method.__name__)
            raise GRPCError(Status.INTERNAL, "the controller met a bug; see its log") from None
        await stream.send_message(reply)

    return call
