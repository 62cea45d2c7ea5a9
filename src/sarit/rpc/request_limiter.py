"""Takes the request of a call and hands out its reply, in bounded memory and time.

grpclib takes whatever length a client announces (four bytes: up to 4 GiB), however long it takes to come, and keeps a
reply until the client opens its window.  Here

- a request has at most MAX_REQUEST_BYTES and must come whole within PATIENCE_SECONDS;
- the pieces of all unfinished large ones together are at most MAX_HELD_BYTES;
- a connection whose client does not take a reply within PATIENCE_SECONDS is ended, with one line in the log;
- at most MAX_CALLS are under way.
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

from sarit.core.limits import KIB, MAX_CALLS, MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger("sarit.controller.connection")

MAX_REQUEST_BYTES: Final = 4 * MIB
MAX_HELD_BYTES: Final = 64 * MIB
PATIENCE_SECONDS: Final = 60.0
_PIECE_BYTES: Final = 64 * KIB
_HEAD: Final = struct.Struct(">BI")  # compressed or not, length


class RequestLimiter:
    """Shared by all calls of a server; `stream` is a grpclib server's."""

    def __init__(
        self,
        *,
        max_held_bytes: int = MAX_HELD_BYTES,
        max_calls: int = MAX_CALLS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._max_held_bytes = max_held_bytes
        self._max_calls = max_calls
        self._patience_seconds = patience_seconds
        self._held_bytes = 0
        self._calls = 0

    def __repr__(self) -> str:
        return f"<Reception, {self._calls} calls, {self._held_bytes} bytes of unfinished requests>"

    @contextmanager
    def call(self) -> Iterator[None]:
        """One more call is under way.  Raises GRPCError when there are too many."""
        if self._calls >= self._max_calls:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, f"{self._calls} calls are under way: try again")
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    async def receive(self, stream: Any) -> Any:
        """The request.  Raises GRPCError when there is none, or none that can be."""
        try:
            async with asyncio.timeout(self._patience_seconds):
                data = await self._receive(stream._stream)
        except TimeoutError:
            raise GRPCError(Status.DEADLINE_EXCEEDED, f"no whole request in {self._patience_seconds:.0f} s") from None
        except AssertionError:  # that is how grpclib tells of an early end
            raise GRPCError(Status.INVALID_ARGUMENT, "the request ends early") from None
        try:
            return stream._recv_type.FromString(data)
        except DecodeError:
            raise GRPCError(Status.INVALID_ARGUMENT, "the request is not a message of this API") from None

    async def deliver(self, stream: Any, reply: Any) -> None:
        """Send the reply."""
        try:
            async with asyncio.timeout(self._patience_seconds):
                await stream.send_message(reply)
        except TimeoutError:
            transport = stream._stream._transport
            if not transport.is_closing():
                peer = transport.get_extra_info("peername")
                who = f"{peer[0]}:{peer[1]}" if peer else "?"
                _log.warning(
                    "API connection %s closed: it did not take replies for %.0f s", who, self._patience_seconds
                )
                transport.abort()
            raise GRPCError(Status.DEADLINE_EXCEEDED, "the reply was not taken") from None

    async def _receive(self, stream: Any) -> bytes:
        head = await stream.recv_data(_HEAD.size)
        if not head:
            raise GRPCError(Status.INVALID_ARGUMENT, "a call without a request")
        compressed, length = _HEAD.unpack(head)
        if compressed:
            raise GRPCError(Status.UNIMPLEMENTED, "compressed requests are not understood")
        if length > MAX_REQUEST_BYTES:
            raise GRPCError(
                Status.INVALID_ARGUMENT, f"a request of {length} bytes: at most {MAX_REQUEST_BYTES} are taken"
            )
        if length <= _PIECE_BYTES:
            data = await stream.recv_data(length)
            assert len(data) == length  # none at all is an early end, too
            return bytes(data)
        return await self._receive_pieces(stream, length)

    async def _receive_pieces(self, stream: Any, length: int) -> bytes:
        pieces: list[bytes] = []
        held = 0
        try:
            while held < length:
                piece = await stream.recv_data(min(_PIECE_BYTES, length - held))
                assert piece
                pieces.append(piece)
                held += len(piece)
                self._held_bytes += len(piece)
                if self._held_bytes > self._max_held_bytes:
                    raise GRPCError(Status.RESOURCE_EXHAUSTED, "too many large requests are coming in: try again")
            return b"".join(pieces)
        finally:
            self._held_bytes -= held
