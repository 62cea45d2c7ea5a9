"""The interface of a connection that the handlers of appends and reads use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from sarit.store.server.connection_budget import Peer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from sarit.env.ports import Buffer
    from sarit.store.server.connection_quotas import ConnectionQuotas
    from sarit.store.server.reply_semaphore import ReplySemaphore


class RequestConnection(Peer, Protocol):
    """A connection whose requests run as tasks, and whose replies wait until the client takes them."""

    closed: bool
    paused: bool
    hello_version: int
    quotas: ConnectionQuotas
    reply_semaphore: ReplySemaphore

    @property
    def writable(self) -> bool:
        """Whether the client takes what is sent."""

    async def wait_writable(self) -> None:
        """Wait until the client takes replies again."""

    def send_parts(self, parts: list[Buffer]) -> None:
        """Send a reply made of parts."""

    def abort(self, reason: str) -> None:
        """End the connection at once."""

    def spawn(self, work: Coroutine[Any, Any, None], memory_bytes: int) -> asyncio.Task[None]:
        """Run a request as a task that ends with the connection."""

    def choose_entrance(self) -> None:
        """Choose the way of appends again: quotas have been switched on or off."""

    def token_expires(self, token: str) -> float:
        """Return when an accepted token expires, in seconds since 1970; infinity where none is required."""
