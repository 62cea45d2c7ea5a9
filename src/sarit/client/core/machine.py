"""A connection to a segment store, without the connection (pure).

    hello() goes out first; the store's Hello must be the first frame in; then requests and replies.

Every reply carries the request id of its request; a request id belongs to a `Sink`.  A sink may take one reply
(a question) or many (an append lane, which uses one id for all its blocks); it says so by the answer of `reply`.
Replies without a sink are late answers to cancelled requests and are dropped.  KeepAlive is answered by an echo:
bytes that come show that a silent connection lives.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from sarit.core.errors import Unavailable
from sarit.core.limits import OLDEST_WIRE_VERSION, WIRE_VERSION
from sarit.wire.commands import Hello, KeepAlive, decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.env.ports import Buffer

log = logging.getLogger(__name__)


class Sink(Protocol):
    """Who asked."""

    def reply(self, command: Any) -> bool:
        """Take a reply; True when no more will come."""

    def lost(self, error: Unavailable) -> None:
        """The connection ended; no reply will come."""


class Machine:
    """One connection's state: greeted or not, and who waits for what."""

    __slots__ = ("_greeted", "_next_id", "_sinks")

    def __init__(self) -> None:
        self._greeted = False
        self._next_id = 1
        self._sinks: dict[int, Sink] = {}

    def __repr__(self) -> str:
        return f"Machine({'greeted' if self._greeted else 'new'}, {len(self._sinks)} waiting)"

    @property
    def greeted(self) -> bool:
        """Whether the store said Hello."""
        return self._greeted

    @property
    def waiting(self) -> bool:
        """Whether anybody waits for a reply."""
        return bool(self._sinks)

    def hello(self) -> bytes:
        """The first bytes to send."""
        return encode(Hello(WIRE_VERSION, OLDEST_WIRE_VERSION))

    def expect(self, sink: Sink) -> int:
        """A request id whose replies go to `sink`."""
        request_id = self._next_id
        self._next_id += 1
        self._sinks[request_id] = sink
        return request_id

    def forget(self, request_id: int) -> None:
        """Nobody waits for `request_id` any more."""
        self._sinks.pop(request_id, None)

    def received(self, frames: Iterable[tuple[int, Buffer]]) -> None:
        """Deliver complete frames.  Raises ProtocolError, Unavailable: close the connection then."""
        for code, payload in frames:
            command = decode(code, payload)
            kind = type(command)
            if kind is Hello:
                self._hello(command)
                continue
            if not self._greeted:
                raise Unavailable("the peer did not say Hello first: is this the port of a segment store?")
            if kind is KeepAlive:
                continue
            request_id: int = command.request_id  # type: ignore[attr-defined]
            sink = self._sinks.get(request_id)
            if sink is None:
                log.debug("nobody waits for %s", kind.__name__)
            elif sink.reply(command):
                self._sinks.pop(request_id, None)

    def _hello(self, hello: Any) -> None:
        if hello.low_version > WIRE_VERSION or hello.high_version < OLDEST_WIRE_VERSION:
            raise Unavailable(
                f"the segment store speaks wire versions {hello.low_version} to {hello.high_version}, "
                f"this client {OLDEST_WIRE_VERSION} to {WIRE_VERSION}: update the older one"
            )
        self._greeted = True

    def lost(self, error: Unavailable) -> None:
        """The connection ended: tell everybody who waits."""
        sinks = list(self._sinks.values())
        self._sinks.clear()
        for sink in sinks:
            try:
                sink.lost(error)
            except Exception:  # one that fails must not keep it from the others: they would wait for ever
                log.exception("who waited for a reply could not be told that the connection was lost")
