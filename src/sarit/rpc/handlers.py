"""Makes the handlers of calls, which check access, pass the request to a method, and count the call."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, Protocol

from sarit.core.request_ids import clean_request_id, current_request_id
from sarit.env.traces import CLIENT_CALL, CONTROLLER_CALL
from sarit.rpc.answers import answer
from sarit.rpc.status import CallFailed, Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import TypeAlias

    from sarit.rpc.call import Call
    from sarit.rpc.request_limiter import RequestLimiter

    Handler: TypeAlias = Callable[[Call], Coroutine[Any, Any, None]]

_REQUEST_ID: Final = "requestid"  # the header in which Pravega's clients send the id of a call


class AccessCheck(Protocol):
    """Authenticates and authorizes calls, as `Access` of the controller does."""

    async def caller(self, call: str, authorization: str | None, peer: str) -> Any:
        """Return the caller of a call.  Raises Unauthenticated."""

    async def carry_out(
        self, call: str, method: Callable[[Any], Awaitable[Any]], request: Any, caller: Any, peer: str
    ) -> Any:
        """Call `method` if the caller may, and return the reply.  Raises Forbidden."""


def rpc_handler(
    method: Callable[[Any], Awaitable[Any]], request_type: Any, limiter: RequestLimiter,
    access: AccessCheck | None = None, *, wide: bool = False,
) -> Handler:  # fmt: skip
    """Return the handler for a method that takes a request and returns the reply.

    `access`: checks calls; None: everybody may do everything.  `wide`: who may make this call sends much, and gets a
    wide window."""

    counted, name, now = limiter.statistics, getattr(method, "__name__", "?"), limiter.statistics.now

    @functools.wraps(method)
    async def handler(call: Call) -> None:
        began, status = now(), Status.CANCELLED  # the status if the call is cancelled
        # Set the id in the context of this call's own task.
        if request_id := call.metadata.get(_REQUEST_ID):
            current_request_id.set(clean_request_id(request_id))
        try:
            with limiter.call():
                if access is None:
                    reply = await answer(method, await limiter.receive(call, request_type))
                else:
                    reply = await _checked(name, method, request_type, limiter, access, call)
                if wide:
                    call.widen()
                await limiter.deliver(call, reply)
            status = Status.OK
        except CallFailed as error:
            status = error.status
            raise
        finally:
            counted.ended(name, status.name, now() - began)
            if counted.traces is not None and (trace := counted.traces.of_call(current_request_id.get())) is not None:
                counted.traces.record(
                    trace, CONTROLLER_CALL, CLIENT_CALL, began, now(), method=name, status=status.name
                )

    return handler


async def _checked(
    name: str, method: Callable[[Any], Awaitable[Any]], request_type: Any, limiter: RequestLimiter,
    access: AccessCheck, call: Call,
) -> Any:  # fmt: skip
    peer = call.peer
    # Authenticate before the request is read: that of an unknown client is not read.
    caller = await answer(lambda header: access.caller(name, header, peer), call.metadata.get("authorization"))
    request = await limiter.receive(call, request_type, known=caller is not None)
    return await answer(
        functools.wraps(method)(lambda given: access.carry_out(name, method, given, caller, peer)), request
    )
