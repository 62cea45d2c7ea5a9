"""Bounds on the calls of the controller API: requests and replies in bounded memory and time.

grpclib takes any length that a client announces (four bytes: up to 4 GiB), waits for it without limit, and holds a
reply until the client opens its window.  `RequestLimiter` sets bounds:

- a request has at most MAX_API_REQUEST_BYTES and must arrive whole within GRPC_MESSAGE_SECONDS;
- each text and list in it is bounded (`rpc/request_texts.py`);
- the pieces of all incomplete large requests are at most MAX_BUFFERED_REQUEST_BYTES together;
- a connection whose client does not take a reply within GRPC_MESSAGE_SECONDS is ended, with one line in the log;
- at most MAX_CALLS are under way, and MAX_CALLS_PER_CONNECTION on one connection.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from sarit.core.limits import (
    GRPC_MESSAGE_SECONDS,
    MAX_API_REQUEST_BYTES,
    MAX_BUFFERED_REQUEST_BYTES,
    MAX_CALLS,
    REQUEST_PIECE_BYTES,
)
from sarit.rpc.request_texts import request_excess
from sarit.rpc.statistics import CallStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_log = logging.getLogger("sarit.controller.connection")

_HEAD: Final = struct.Struct(">BI")  # compressed or not, length


class RequestLimiter:
    """Bounds on the calls of a server; `stream` is a grpclib server stream."""

    def __init__(
        self,
        *,
        max_buffered_bytes: int = MAX_BUFFERED_REQUEST_BYTES,
        max_calls: int = MAX_CALLS,
        timeout_seconds: float = GRPC_MESSAGE_SECONDS,
        statistics: CallStatistics | None = None,
        on_known: Callable[[Any], None] | None = None,
    ) -> None:
        """`on_known` is called with the stream of a call whose client counts as known from now on, not as anybody."""
        self._on_known = on_known
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
        """Count one call as under way.  Raises GRPCError when there are too many."""
        if self._calls >= self._max_calls:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, f"{self._calls} calls are under way: try again")
        # No await since the test: the bound holds exactly.
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    async def receive(self, stream: Any, *, known: bool = True) -> Any:
        """The request of a call, whose client counts as `known`.

        Raises GRPCError when it is missing, invalid or too slow."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                # Not grpclib's `recv_message`: it takes any length that the client announces.
                data = await self._receive(stream._stream)
        except TimeoutError:
            raise GRPCError(Status.DEADLINE_EXCEEDED, f"no whole request in {self._timeout_seconds:.0f} s") from None
        except AssertionError:  # how grpclib reports an early end
            raise GRPCError(Status.INVALID_ARGUMENT, "the request ends early") from None
        try:
            request = stream._recv_type.FromString(data)
        except DecodeError:
            raise GRPCError(Status.INVALID_ARGUMENT, "the request is not a message of this API") from None
        if (excess := request_excess(request, len(data))) is not None:
            raise GRPCError(Status.INVALID_ARGUMENT, excess)
        if known and self._on_known is not None:
            self._on_known(stream)
        return request

    async def deliver(self, stream: Any, reply: Any) -> None:
        """Send the reply."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await stream.send_message(reply)
        except TimeoutError:
            transport = stream._stream._transport
            if not transport.is_closing():
                peer = transport.get_extra_info("peername")
                who = f"{peer[0]}:{peer[1]}" if peer else "?"
                _log.warning("API connection %s closed: it did not take replies for %.0f s", who, self._timeout_seconds)
                transport.abort()
            raise GRPCError(Status.DEADLINE_EXCEEDED, "the reply was not taken") from None

    async def _receive(self, stream: Any) -> bytes:
        # gRPC's prefix of a message: a flag and the length, in bytes.
        head = await stream.recv_data(_HEAD.size)
        if not head:
            raise GRPCError(Status.INVALID_ARGUMENT, "the call has no request")
        compressed, length = _HEAD.unpack(head)
        if compressed:
            raise GRPCError(Status.UNIMPLEMENTED, "compressed requests are not supported")
        if length > MAX_API_REQUEST_BYTES:
            raise GRPCError(
                Status.INVALID_ARGUMENT, f"a request of {length} bytes exceeds the limit of {MAX_API_REQUEST_BYTES}"
            )
        if length <= REQUEST_PIECE_BYTES:
            data = await stream.recv_data(length)
            assert len(data) == length  # an empty piece is an early end, too
            return bytes(data)
        return await self._receive_pieces(stream, length)

    async def _receive_pieces(self, stream: Any, length: int) -> bytes:
        pieces: list[bytes] = []
        held = 0
        try:
            while held < length:
                # Piece by piece, so that memory is counted when it is used, not when it is announced.
                piece = await stream.recv_data(min(REQUEST_PIECE_BYTES, length - held))
                assert piece
                pieces.append(piece)
                held += len(piece)
                self._buffered_bytes += len(piece)
                if self._buffered_bytes > self._max_buffered_bytes:
                    raise GRPCError(Status.RESOURCE_EXHAUSTED, "too many large requests are arriving: try again")
            return b"".join(pieces)
        finally:
            self._buffered_bytes -= held
