"""One call, as the server sees it: from the network, or from a caller in the same process.

A call has metadata, bytes of a request as far as they have come, and a way for the reply.  All else is the same for
both: `rpc/handlers.py` says who may call, `rpc/request_limiter.py` what a request may be.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

PREFIX: Final = struct.Struct(">BI")  # of a message: compressed or not, length


def framed(message: bytes) -> bytes:
    """Return a message with gRPC's prefix."""
    return PREFIX.pack(0, len(message)) + message


class Call(Protocol):
    """One call; `ended`: whether the whole request has come, `peer`: who calls, for logs."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """Return the headers of the call."""

    @property
    def peer(self) -> str:
        """Return address and port of the caller."""

    @property
    def ended(self) -> bool:
        """Return whether the client has sent all."""

    async def read(self, size: int) -> bytes:
        """Return so many bytes of the request; fewer at its end."""

    def reply(self, message: bytes) -> Awaitable[None] | None:
        """Answer; None when nothing of the reply waits for the client, otherwise what ends when it is taken."""

    def client_is_known(self) -> None:
        """Let the client do more from now on."""

    def abort(self) -> bool:
        """End the connection of a client that does not take its reply; whether it was open."""
