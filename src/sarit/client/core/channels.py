"""The controllers that a client knows, and the channel to the one that it uses.

It stays with one until that one fails, and then uses the next, in a circle: a controller that is back is used again
when another one fails.  Calls under way on a channel that was replaced keep it until they end.

*Keep-alive.*  Who has several controllers need not wait until a call times out: when the one in use sends nothing while
a call waits, it is asked for an echo, and its channel ends when that does not come.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from sarit.client.limits import MAX_CONTROLLER_CALLS
from sarit.rpc.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ssl import SSLContext

    from sarit.client.core.login import Credentials
    from sarit.core.errors import SaritError
    from sarit.rpc.in_process import LocalChannel
    from sarit.rpc.methods import Method

_log = logging.getLogger(__name__)

_TLS_ALERT: Final = b"\x15"


class Channels:
    """One channel at a time; `addresses`: hosts and ports of the controllers."""

    def __init__(
        self, addresses: Sequence[tuple[str, int]], keep_alive_seconds: float, credentials: Credentials | None = None,
        tls: SSLContext | None = None, local: LocalChannel | None = None,
    ) -> None:  # fmt: skip
        """`keep_alive_seconds`: of silence before an echo is asked for, and for its answer; of several alone.

        `local`: calls go there, to a controller in this process, and not to the network."""
        assert addresses
        self._credentials = credentials
        self._tls = tls
        self._local = local
        self.addresses = tuple(addresses)
        self._keep_alive_seconds = keep_alive_seconds
        self._used = 0
        self.replaced: set[ControllerChannel] = set()  # no new calls; closed when the calls in progress have ended
        self.current = self._open()

    def __repr__(self) -> str:
        return f"<Channels, {self.current.address} of {len(self.addresses)}>"

    def _open(self) -> ControllerChannel:
        several = len(self.addresses) > 1
        seconds = self._keep_alive_seconds if several else None
        return ControllerChannel(*self.addresses[self._used], seconds, self._credentials, self._tls, self._local)

    def replace(self, channel: ControllerChannel) -> None:
        """Give later calls a new channel to the same controller, if `channel` is still in use."""
        if channel is not self.current:
            return
        self.replaced.add(channel)
        self.current = self._open()
        self.call_ended(channel)

    def fail_over(self, channel: ControllerChannel, error: SaritError) -> None:
        """Use the next controller because of `error`, if there are several and nobody has done so since."""
        used = self.addresses[self._used]
        if len(self.addresses) == 1 or channel.endpoint != used:
            return
        self._used = (self._used + 1) % len(self.addresses)
        self.replace(self.current)
        _log.info("using the controller at %s: %s", self.current.address, error)

    def call_ended(self, channel: ControllerChannel) -> None:
        """Close `channel` when it was replaced and this was its last call."""
        if not channel.calls and channel in self.replaced:
            self.replaced.discard(channel)
            channel.close()

    def close(self) -> None:
        """End the connections."""
        for channel in (*self.replaced, self.current):
            channel.close()


class ControllerChannel:
    """The way to one controller; `calls` are under way, of which MAX_CONTROLLER_CALLS are sent."""

    def __init__(
        self, host: str, port: int, keep_alive_seconds: float | None, credentials: Credentials | None = None,
        tls: SSLContext | None = None, local: LocalChannel | None = None,
    ) -> None:  # fmt: skip
        self.channel = local or Channel(host, port, keep_alive_seconds, tls)
        self._credentials = credentials
        self._plain = tls is None
        self.endpoint = host, port
        self.address = f"{host}:{port}"
        self.calls = 0
        self._free = asyncio.Semaphore(MAX_CONTROLLER_CALLS)

    async def call(self, method: Method, request: Any, seconds: float, request_id: str) -> Any:
        """Make a call within `seconds`.  Raises what `Channel.call` does.

        `request_id`: under which Pravega's clients send one, too; the controller's log has it."""
        metadata = {"requestid": request_id}
        if self._credentials is not None:
            # Read the login before each call, because a token may have been renewed.
            metadata["authorization"] = self._credentials.authorization()
        if not self._free.locked():
            await self._free.acquire()  # at once
        else:
            clock = asyncio.get_running_loop().time
            deadline = clock() + seconds
            async with asyncio.timeout_at(deadline):
                await self._free.acquire()
            seconds = deadline - clock()
        try:
            return await self.channel.call(method, request, seconds, metadata)
        finally:
            self._free.release()

    @property
    def mute(self) -> bool:
        """Return whether nothing came on it but an alert of TLS, which it does not use."""
        return self._plain and self.channel.first_byte in (b"", _TLS_ALERT)

    @property
    def pieces_received(self) -> int:
        """Return how many pieces of bytes came, over all its connections."""
        return self.channel.pieces_received

    def close(self) -> None:
        """End the connection."""
        self.channel.close()
