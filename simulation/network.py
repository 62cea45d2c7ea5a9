"""The simulated network: detangle's with more faults, and an adapter to `Network` of env/ports.py.

detangle carries bytes in order over delayed pipes between named hosts, splits writes, and crashes hosts.  Added here:
exponential delays, cuts in one direction, resets of single connections, machines whose peers notice their death late,
and bounded write buffers (`pause_writing`): bytes that the peer's protocol has not taken count as unsent.

Protocols of the system are `BufferedProtocol`s, which detangle does not know: `Wire` adapts them.
"""

from __future__ import annotations

import asyncio
import dataclasses
from math import log
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

import detangle.net
from detangle.net import SimNetwork, _fmt, _Pipe, _preview

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from detangle._config import NetConfig

    from simulation.trace import Trace

_HIGH_WATER_BYTES = 64 * 1024
_RETRY_SECONDS = 0.02
_MOST_DELAY_MEANS = 20.0


@dataclasses.dataclass(slots=True)
class NetworkFaults:
    """Delay of a message in seconds: `least`, plus an exponential delay of this `mean`.

    `lost_at_connect`: the chance of a new connection to be lost before it is used."""

    least: float = 0.0002
    mean: float = 0.0005
    lost_at_connect: float = 0.0


class Pipe(_Pipe):
    """One direction of a connection: as detangle's, with fewer calls for each message.  detangle makes it (below)."""

    _route = ""

    def send(self, kind: str, payload: bytes = b"") -> None:
        """See `_Pipe.send`."""
        net = self.net
        when = net.loop.time() + net.latency()
        if when < self.last:
            when = self.last
        self.last = when
        self.queue.append((when, kind, payload))
        if self.pump is None:
            self._schedule(when)

    def _run(self) -> None:
        self.pump = None
        queue, net, dst = self.queue, self.net, self.dst
        now = net.loop.time()
        while queue:
            when, kind, payload = queue[0]
            if when > now:
                self._schedule(when)
                return
            if kind != "data" or dst._closed or not net.can_deliver(self.src.host, dst.host):
                super()._run()
                return
            self.blocked_since = None
            queue.popleft()
            if queue and queue[0][0] <= now and queue[0][1] == "data":
                chunks = [payload]
                while queue and queue[0][0] <= now and queue[0][1] == "data":
                    chunks.append(queue.popleft()[2])
                payload = b"".join(chunks)
            if (tracer := net.loop.tracer) is not None:
                if not self._route:
                    self._route = f"{_fmt(self.src.sockname)} -> {_fmt(dst.sockname)}"
                tracer.say("net", f"{self._route} {len(payload)}B {_preview(payload)}")
            dst._receive("data", payload)


detangle.net._Pipe = Pipe  # type: ignore[misc]


class SimulatedNetwork(SimNetwork):
    """All connections of one world."""

    def __init__(self, loop: Any, config: NetConfig, rng: random.Random) -> None:
        super().__init__(loop, dataclasses.replace(config, retransmit_interval=_RETRY_SECONDS))
        self.rng = rng
        self.faults = NetworkFaults()
        self._one_way: set[tuple[str, str]] = set()

    def latency(self) -> float:
        """The delay of the next message."""
        faults = self.faults
        if faults.mean <= 0:
            return faults.least
        # What `Random.expovariate` does: it is drawn for each message.
        drawn = -log(1.0 - self.rng.random()) / (1 / faults.mean)
        return faults.least + min(drawn, _MOST_DELAY_MEANS * faults.mean)

    def can_deliver(self, src: str, dst: str) -> bool:
        """Whether bytes can pass from one host to the other now."""
        if not (self._one_way or self._cut or self._down):
            return True
        return (src, dst) not in self._one_way and super().can_deliver(src, dst)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """As detangle's, but a connection may end before its user has it: with an error here, or only the protocol
        is notified, as asyncio does when it ends between the connect and the next turn of the caller."""
        transport, protocol = await super().create_connection(protocol_factory, host, port, **options)
        error = ConnectionResetError(104, "Connection reset by peer")
        if transport._closed:
            raise error
        if self.faults.lost_at_connect and self.rng.random() < self.faults.lost_at_connect:
            self._trace(f"lost at connect {transport.sockname[1]}")
            cast("Any", transport)._conn.reset(error)
            transport._lost(error)
        return transport, protocol

    def cut(self, source: str, target: str) -> None:
        """Hold all bytes from `source` to `target` until `mend`."""
        self._one_way.add((source, target))
        self._trace(f"cut {source} -> {target}")

    def mend(self, source: str, target: str) -> None:
        """End a cut."""
        self._one_way.discard((source, target))
        self._trace(f"mended {source} -> {target}")

    def mend_all(self) -> None:
        """End all cuts and partitions."""
        self._one_way.clear()
        self.heal()

    def open_connections(self) -> list[Any]:
        """Open connections, oldest first."""
        return [connection for connection in self._connections if not connection.closed()]

    def reset_one(self) -> bool:
        """Reset a connection drawn at random; False when there is none."""
        connections = self.open_connections()
        if not connections:
            return False
        self.rng.choice(connections).reset(ConnectionResetError(104, "Connection reset by peer"))
        return True

    def break_one(self) -> bool:
        """Break a drawn connection: one end is notified now, the other later; until then it gets what was sent."""
        connections = self.open_connections()
        if not connections:
            return False
        first, second = self.rng.sample(self.rng.choice(connections).sides(), 2)
        later = self.rng.choice((0.0, 0.05, 1.0)) * self.rng.random()
        self._trace(f"break {first.sockname[1]} -> {second.sockname[1]}, notified {later:.3f} s later")
        error = ConnectionResetError(104, "Connection reset by peer")
        self.loop.call_soon(first._lost, error, context=first._ctx)
        self.loop.call_later(later, second._lost, error, context=second._ctx)
        return True

    def stall_one(self, seconds: float) -> bool:
        """Stall one direction of a drawn connection: its bytes arrive after others that were sent later."""
        connections = self.open_connections()
        if not connections:
            return False
        connection = self.rng.choice(connections)
        pipe = self.rng.choice((connection.c2s, connection.s2c))
        self._trace(f"stall {pipe.src.sockname[1]} -> {pipe.dst.sockname[1]} for {seconds:.3f} s")
        until = self.loop.time() + seconds
        waiting = [(max(when, until), kind, payload) for when, kind, payload in pipe.queue]
        pipe.clear()
        pipe.last = max(pipe.last, until)
        pipe.queue.extend(waiting)
        if waiting:
            pipe._schedule(waiting[0][0])
        return True

    def kill(self, host: str, peers_learn_after: float) -> None:
        """The processes of a host die.  Peers' connections are reset after so many seconds."""
        config = self.config
        self.config = dataclasses.replace(config, tcp_timeout=peers_learn_after)
        try:
            self.crash(host)
        finally:
            self.config = config


class Wire(asyncio.Transport, asyncio.Protocol):
    """Adapter between detangle's transport, which calls `data_received`, and a `BufferedProtocol`."""

    def __init__(self, protocol: asyncio.BaseProtocol, trace: Trace) -> None:
        super().__init__()
        self._protocol = protocol
        self._trace = trace
        self._inner: Any = None
        self._unread = b""
        self._unsent = 0
        self._high = _HIGH_WATER_BYTES
        self._low = _HIGH_WATER_BYTES // 4
        self._full = False
        self._reading = True
        self._feed_scheduled = False

    @property
    def protocol(self) -> asyncio.BaseProtocol:
        """The protocol of this transport."""
        return self._protocol

    # -- as detangle's protocol -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._inner = transport
        self._protocol.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._trace.say("bytes", f"{self._inner.host} {len(data)} {crc32(data)}")
        self._unread = self._unread + data if self._unread else data
        if not self._feed_scheduled:
            self._feed()

    def eof_received(self) -> bool | None:
        """The peer closed."""
        return cast("asyncio.BufferedProtocol", self._protocol).eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        self._unread = b""
        self._protocol.connection_lost(exc)

    def _feed(self) -> None:
        """Pass received bytes to the protocol, in pieces of its buffers, until it stops reading."""
        self._feed_scheduled = False
        protocol = cast("asyncio.BufferedProtocol", self._protocol)
        while self._unread and self._reading and not self._inner.is_closing():
            buffer = memoryview(protocol.get_buffer(len(self._unread)))
            size = min(len(buffer), len(self._unread))
            buffer[:size] = self._unread[:size]
            self._unread = self._unread[size:]
            self._peer_took(size)
            protocol.buffer_updated(size)

    def _peer_took(self, count: int) -> None:
        connection = self._inner._conn
        other = connection.client if self._inner is connection.server else connection.server
        if isinstance(other._protocol, Wire):
            other._protocol._taken(count)

    def _taken(self, count: int) -> None:
        self._unsent -= count
        if self._full and self._unsent <= self._low:
            self._full = False
            self._inner._net.loop.call_soon(self._resume, context=self._inner._ctx)

    def _resume(self) -> None:
        if not self._full and not self._inner._closed:
            self._protocol.resume_writing()

    # -- as the protocol's transport ----------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As detangle says."""
        return self._inner.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Whether `close` was called, or the connection ended."""
        return bool(self._inner.is_closing())

    def close(self) -> None:
        """Close once everything written is sent."""
        self._inner.close()

    def abort(self) -> None:
        """Reset."""
        self._inner.abort()

    def write(self, data: Any) -> None:
        """Send."""
        if self._inner.is_closing() or not data:
            return
        self._inner.write(data)
        self._unsent += len(data)
        if self._unsent > self._high and not self._full:
            self._full = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        """Send several."""
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        """Pause reading."""
        self._reading = False
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        self._reading = True
        self._inner.resume_reading()
        if self._unread and not self._feed_scheduled:
            self._feed_scheduled = True
            self._inner._net.loop.call_soon(self._feed, context=self._inner._ctx)

    def is_reading(self) -> bool:
        """Whether bytes are taken."""
        return self._reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When to call `pause_writing` and `resume_writing`."""
        self._high = _HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Bytes that the peer has not taken."""
        return self._unsent

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol of this transport."""
        return self._protocol


class HostNetwork:
    """`Network` of env/ports.py for the processes of one host."""

    def __init__(self, host: str, trace: Trace) -> None:
        self._host = host
        self._trace = trace

    async def serve(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.AbstractServer:
        """See `ports.Network.serve`."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: Wire(factory(), self._trace), host, port)

    async def connect(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, Any]:
        """See `ports.Network.connect`."""
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(lambda: Wire(factory(), self._trace), host, port)
        return wire, wire.protocol
