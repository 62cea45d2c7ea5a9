"""Which gRPC status each kind of error becomes.

Clients retry most statuses for a long time (FAILED_PRECONDITION too); NOT_FOUND, ALREADY_EXISTS and
INVALID_ARGUMENT they do not: what waiting cannot mend must be one of these.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from sarit.core.errors import Conflict, Corrupt, Exists, Fenced, Invalid, NotFound, SaritError, Sealed, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from sarit.rpc.request_limiter import RequestLimiter

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


def answering(
    method: Callable[[Any], Awaitable[Any]], reception: RequestLimiter
) -> Callable[[Any], Coroutine[Any, Any, None]]:
    """Make a grpclib handler of a method that takes the request and returns the reply."""

    @functools.wraps(method)
    async def call(stream: Any) -> None:
        with reception.call():
            reply = await _reply(method, await reception.receive(stream))
            await reception.deliver(stream, reply)

    return call


async def _reply(method: Callable[[Any], Awaitable[Any]], request: Any) -> Any:
    try:
        return await method(request)
    except SaritError as error:
        raise GRPCError(status_of(error), str(error)) from None
    except NotImplementedError as error:
        raise GRPCError(Status.UNIMPLEMENTED, str(error)) from None
    except Exception:
        _log.exception("%s met a bug of ours", getattr(method, "__name__", method))
        raise GRPCError(Status.INTERNAL, "the controller met a bug; see its log") from None


def status_of(error: SaritError) -> Status:
    """The gRPC status of an error."""
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), Status.INTERNAL)
