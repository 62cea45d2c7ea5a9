"""The server's interface to a call, which comes from the network or from the same process.

Both kinds of calls are checked alike: `rpc/handlers.py` decides who may call, and `rpc/request_limiter.py` bounds
requests.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

PREFIX: Final = struct.Struct(">BI")  # the prefix of a message: compressed or not, length


def framed(message: bytes) -> bytes:
    """Return a message with gRPC's prefix."""
    return PREFIX.pack(0, len(message)) + message


class Call(Protocol):
    """One call of a method."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The headers of the call."""

    @property
    def peer(self) -> str:
        """The address and port of the caller, for logs."""

    @property
    def ended(self) -> bool:
        """Whether the whole request has arrived."""

    async def read(self, size: int) -> bytes:
        """Return the next `size` bytes of the request; fewer at its end."""

    def reply(self, message: bytes) -> Awaitable[None] | None:
        """Send the reply.  Returns what ends when the client has taken it; None: nothing of it waits."""

    def client_is_known(self) -> None:
        """Record that the client is known: it has logged in, or need not."""

    def widen(self) -> None:
        """Let the client send more at once from now on: it has the permission to send much."""

    def abort(self) -> bool:
        """End the connection of a client that does not take its reply.  Returns whether it was open."""
