"""Calls the handlers of a server from the same process without sockets, for REST and the console.

The handlers check, audit, bound and count these calls like those from the network.  Request and reply are passed as
bytes, so that neither end sees later changes of the other's message.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sarit.rpc.call import framed
from sarit.rpc.status import CallFailed, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.rpc.handlers import Handler
    from sarit.rpc.methods import Method


class LocalCall:
    """A call from this process, with its whole request.  Its caller takes the reply at once."""

    __slots__ = ("_at", "_request", "message", "metadata", "peer")

    ended = True

    def __init__(self, request: bytes, metadata: Mapping[str, str], peer: str) -> None:
        self._request = framed(request)
        self._at = 0
        self.metadata = metadata
        self.peer = peer
        self.message = b""  # the reply

    async def read(self, size: int) -> bytes:
        """Return the next bytes of the request."""
        self._at += size
        return self._request[self._at - size : self._at]

    def reply(self, message: bytes) -> None:
        """Keep the reply for the caller."""
        self.message = message

    def client_is_known(self) -> None:
        """Do nothing: there is no connection with limits."""

    def widen(self) -> None:
        """Do nothing: there is no connection with a window."""

    def abort(self) -> bool:
        """Do nothing: there is no connection."""
        return False


class LocalChannel:
    """Calls the handlers of this process.  `peer`: returns the address of the present caller, for the audit log."""

    pieces_received = 0  # none, without a network
    first_byte = b""

    def __init__(self, handlers: Mapping[str, Handler], peer: Callable[[], str]) -> None:
        self._handlers = handlers
        self._peer = peer

    def __repr__(self) -> str:
        return f"<LocalChannel, {len(self._handlers)} calls>"

    async def call(self, method: Method, request: Any, seconds: float, metadata: Mapping[str, str]) -> Any:
        """Make a call, and return the reply.  Raises CallFailed, TimeoutError."""
        handler = self._handlers.get(method.name)
        if handler is None:
            raise CallFailed(Status.UNIMPLEMENTED, "Method not found")
        call = LocalCall(request.SerializeToString(), metadata, self._peer())
        async with asyncio.timeout(seconds):
            await asyncio.create_task(handler(call))  # a task has its own context, for the id of the request
        return method.reply_type.FromString(call.message)

    def close(self) -> None:
        """Do nothing: there is no connection."""
