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

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.config import Configuration

from sarit.core.limits import MAX_CONTROLLER_CALLS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ssl import SSLContext

    from sarit.client.core.login import Credentials
    from sarit.core.errors import SaritError

_log = logging.getLogger(__name__)

_NO_LIMIT: Final = 0
_TLS_ALERT: Final = b"\x15"


class Channels:
    """One channel at a time; `addresses`: hosts and ports of the controllers."""

    def __init__(
        self, addresses: Sequence[tuple[str, int]], keep_alive_seconds: float, credentials: Credentials | None = None,
        tls: SSLContext | None = None,
    ) -> None:  # fmt: skip
        """`keep_alive_seconds`: of silence before an echo is asked for, and for its answer; of several alone."""
        assert addresses
        self._credentials = credentials
        self._tls = tls
        self.addresses = tuple(addresses)
        self._keep_alive_seconds = keep_alive_seconds
        self._used = 0
        self.replaced: set[CountingChannel] = set()  # no new calls; closed when the calls in progress have ended
        self.current = self._open()

    def __repr__(self) -> str:
        return f"<Channels, {self.current.address} of {len(self.addresses)}>"

    def _open(self) -> CountingChannel:
        several = len(self.addresses) > 1
        seconds = self._keep_alive_seconds if several else None
        return CountingChannel(*self.addresses[self._used], seconds, self._credentials, self._tls)

    def replace(self, channel: CountingChannel) -> None:
        """Give later calls a new channel to the same controller, if `channel` is still in use."""
        if channel is not self.current:
            return
        self.replaced.add(channel)
        self.current = self._open()
        self.call_ended(channel)

    def fail_over(self, channel: CountingChannel, error: SaritError) -> None:
        """Use the next controller because of `error`, if there are several and nobody has done so since."""
        used = self.addresses[self._used]
        if len(self.addresses) == 1 or channel.endpoint != used:
            return
        self._used = (self._used + 1) % len(self.addresses)
        self.replace(self.current)
        _log.info("using the controller at %s: %s", self.current.address, error)

    def call_ended(self, channel: CountingChannel) -> None:
        """Close `channel` when it was replaced and this was its last call."""
        if not channel.calls and channel in self.replaced:
            self.replaced.discard(channel)
            channel.close()

    def close(self) -> None:
        """End the connections."""
        for channel in (*self.replaced, self.current):
            channel.close()


class CountingChannel(Channel):
    """A channel that counts: `pieces_received`, of bytes, over all its connections; `calls` under way.

    At most MAX_CONTROLLER_CALLS of these are given to grpclib."""

    def __init__(
        self, host: str, port: int, keep_alive_seconds: float | None, credentials: Credentials | None = None,
        tls: SSLContext | None = None,
    ) -> None:  # fmt: skip
        config = None
        if keep_alive_seconds is not None:
            config = Configuration(
                _keepalive_time=keep_alive_seconds,
                _keepalive_timeout=keep_alive_seconds,
                _http2_max_pings_without_data=_NO_LIMIT,
                _http2_min_sent_ping_interval_without_data=keep_alive_seconds / 2,
            )
        super().__init__(host, port, config=config, ssl=tls)
        self._credentials = credentials
        self._plain = tls is None
        self._alerted = False  # the first byte was of TLS, whose answer to a client without it is an alert
        self.endpoint = host, port
        self.address = f"{host}:{port}"
        self.pieces_received = 0
        self.calls = 0
        self._free = asyncio.Semaphore(MAX_CONTROLLER_CALLS)

    async def call(self, method: Any, request: Any, seconds: float, request_id: str) -> Any:
        """Call a method of a stub, of whatever channel, within `seconds`.  Raises what grpclib does.

        `request_id`: under which Pravega's clients send one, too; the controller's log has it."""
        here: Any = UnaryUnaryMethod(self, method.name, method.request_type, method.reply_type)
        left = seconds
        metadata = {"requestid": request_id}
        if self._credentials is not None:
            # Before each call: a token may have been renewed.
            metadata["authorization"] = self._credentials.authorization()
        if self._free.locked():
            deadline = self._loop.time() + seconds
            async with asyncio.timeout_at(deadline):
                await self._free.acquire()
            left = max(0.0, deadline - self._loop.time())
        else:
            await self._free.acquire()  # at once
        try:
            return await here(request, timeout=left, metadata=metadata)
        finally:
            self._free.release()

    @property
    def mute(self) -> bool:
        """Whether nothing came on it but an alert of TLS, which it does not use."""
        return self._plain and (self._alerted or not self.pieces_received)

    @property
    def connected(self) -> bool:
        """Whether the channel's connection lives."""
        return self._connected

    def _protocol_factory(self) -> Any:
        protocol = super()._protocol_factory()
        take = protocol.data_received

        def count_and_take(data: bytes) -> None:
            if not self.pieces_received:
                self._alerted = data[:1] == _TLS_ALERT
            self.pieces_received += 1
            take(data)

        protocol.data_received = count_and_take  # type: ignore[method-assign]
        return protocol
