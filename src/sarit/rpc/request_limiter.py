"""Bounds the calls of the controller API in memory and time.

A client may announce any length (up to 4 GiB), send the request as slowly as it likes, and never take the reply.
`RequestLimiter` sets bounds:

- a request has at most MAX_API_REQUEST_BYTES and must arrive whole within GRPC_MESSAGE_SECONDS;
- each text and list in it is bounded (`rpc/request_texts.py`);
- the pieces of all incomplete large requests are at most MAX_BUFFERED_REQUEST_BYTES together;
- a connection whose client does not take a reply within GRPC_MESSAGE_SECONDS is ended, with one line in the log;
- at most MAX_CALLS are in progress, and MAX_CALLS_PER_CONNECTION on one connection.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from sarit.rpc.call import PREFIX
from sarit.rpc.limits import (
    GRPC_MESSAGE_SECONDS,
    MAX_API_REQUEST_BYTES,
    MAX_BUFFERED_REQUEST_BYTES,
    MAX_CALLS,
    REQUEST_PIECE_BYTES,
)
from sarit.rpc.request_texts import request_excess
from sarit.rpc.statistics import CallStatistics
from sarit.rpc.status import CallFailed, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.rpc.call import Call

_log = logging.getLogger("sarit.controller.connection")


class RequestLimiter:
    """Bounds the calls of a server."""

    def __init__(
        self,
        *,
        max_buffered_bytes: int = MAX_BUFFERED_REQUEST_BYTES,
        max_calls: int = MAX_CALLS,
        timeout_seconds: float = GRPC_MESSAGE_SECONDS,
        statistics: CallStatistics | None = None,
    ) -> None:
        self._max_buffered_bytes = max_buffered_bytes
        self._max_calls = max_calls
        self._timeout_seconds = timeout_seconds
        self.statistics = statistics or CallStatistics(lambda: asyncio.get_running_loop().time())
        self._buffered_bytes = 0
        self._calls = 0

    def __repr__(self) -> str:
        return f"<RequestLimiter, {self._calls} calls, {self._buffered_bytes} bytes of unfinished requests>"

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count one call as in progress during a block.  Raises CallFailed: there are too many."""
        if self._calls >= self._max_calls:
            raise CallFailed(Status.RESOURCE_EXHAUSTED, f"{self._calls} calls are under way: try again")
        # There is no await between the test and this line, so the bound holds exactly.
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    async def receive(self, call: Call, kind: Any, *, known: bool = True) -> Any:
        """Return the request of a call, a message of type `kind`.  `known`: its client is known then.

        Raises CallFailed: the request is missing, invalid or too slow."""
        try:
            if call.ended:
                data = await self._receive(call)
            else:
                async with asyncio.timeout(self._timeout_seconds):
                    data = await self._receive(call)
        except TimeoutError:
            raise CallFailed(Status.DEADLINE_EXCEEDED, f"no whole request in {self._timeout_seconds:.0f} s") from None
        try:
            request = kind.FromString(data)
        except DecodeError:
            raise CallFailed(Status.INVALID_ARGUMENT, "the request is not a message of this API") from None
        if (excess := request_excess(request, len(data))) is not None:
            raise CallFailed(Status.INVALID_ARGUMENT, excess)
        if known:
            call.client_is_known()
        return request

    async def deliver(self, call: Call, reply: Any) -> None:
        """Send the reply of a call.  Raises CallFailed: the client does not take it in time."""
        taken = call.reply(reply.SerializeToString())
        if taken is None:
            return
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await taken
        except TimeoutError:
            if call.abort():
                text = "API connection %s closed: it did not take replies for %.0f s"
                _log.warning(text, call.peer, self._timeout_seconds)
            raise CallFailed(Status.DEADLINE_EXCEEDED, "the reply was not taken") from None

    async def _receive(self, call: Call) -> bytes:
        head = await call.read(PREFIX.size)
        if not head:
            raise CallFailed(Status.INVALID_ARGUMENT, "the call has no request")
        if len(head) < PREFIX.size:
            raise _ends_early()
        compressed, length = PREFIX.unpack(head)
        if compressed:
            raise CallFailed(Status.UNIMPLEMENTED, "compressed requests are not supported")
        if length > MAX_API_REQUEST_BYTES:
            raise CallFailed(
                Status.INVALID_ARGUMENT, f"a request of {length} bytes exceeds the limit of {MAX_API_REQUEST_BYTES}"
            )
        if length > REQUEST_PIECE_BYTES:
            return await self._receive_pieces(call, length)
        data = await call.read(length)
        if len(data) < length:
            raise _ends_early()
        return data

    async def _receive_pieces(self, call: Call, length: int) -> bytes:
        pieces: list[bytes] = []
        held = 0
        try:
            while held < length:
                # Read in pieces, so that memory is counted when it is used, not when it is announced.
                piece = await call.read(min(REQUEST_PIECE_BYTES, length - held))
                if not piece:
                    raise _ends_early()
                pieces.append(piece)
                held += len(piece)
                self._buffered_bytes += len(piece)
                if self._buffered_bytes > self._max_buffered_bytes:
                    raise CallFailed(Status.RESOURCE_EXHAUSTED, "too many large requests are arriving: try again")
            return b"".join(pieces)
        finally:
            self._buffered_bytes -= held


def _ends_early() -> CallFailed:
    return CallFailed(Status.INVALID_ARGUMENT, "the request ends early")
