"""How much a link may send in one round trip: little at first, much once it may write."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from h2.events import DataReceived

from sarit.controller.service import handlers
from sarit.core.errors import Forbidden
from sarit.core.names import StreamName
from sarit.env.real import real_env
from sarit.mirror.attached_calls import AttachedCalls
from sarit.mirror.calls import MirrorCalls
from sarit.mirror.links import Direction, LinkSettings
from sarit.mirror.peer import Peer
from sarit.mirror.remote import RemoteSource, RemoteTarget
from sarit.mirror.values import LinkIdentity, Range, Write
from sarit.rpc import grpc_server
from sarit.rpc.limits import HTTP2_WINDOW_BYTES, WIDE_FRAME_BYTES, WIDE_WINDOW_BYTES
from sarit.rpc.mirror_methods import MIRROR, WIDE
from sarit.rpc.request_limiter import RequestLimiter
from tests.rpc_calls import listen
from tests.unit.mirror.memory_sides import MemorySource, MemoryTarget

LINK = LinkIdentity(b"l" * 16, "north", "edge")


class Sides:
    def __init__(self):
        self.source, self.target = MemorySource("there"), MemoryTarget("there")


@asynccontextmanager
async def peers(sides, count):
    made = handlers(MIRROR, (MirrorCalls(sides), AttachedCalls(sides)), RequestLimiter(), None, WIDE)
    server, port = await listen(made)
    found = [Peer(LinkSettings(Direction.PUSH, f"127.0.0.1:{port}"), real_env(), "here") for _ in range(count)]
    try:
        yield found
    finally:
        for peer in found:
            await peer.close()
        server.close()


def window(peer):
    """How many bytes the peer's server lets this connection send now, in all and on a new stream."""
    h2 = peer._client._channels.current.channel._connection._http._h2
    return h2.outbound_flow_control_window, h2.remote_settings.initial_window_size


NARROW, BROAD = (HTTP2_WINDOW_BYTES,) * 2, (WIDE_WINDOW_BYTES,) * 2


async def settled(peer):
    """The window after what the server has sent so far."""
    await peer.site()
    total, each = window(peer)
    # Small calls have used some bytes of it.
    return (each if abs(each - total) < 1_000 else total), each


def test_window_is_wide_once_a_link_may_write(monkeypatch):
    async def main():
        sides = Sides()
        async with peers(sides, 3) as (first, second, third):
            await RemoteSource(first).scopes("")
            assert await settled(first) == NARROW
            await RemoteTarget(first).begin(LINK, "app", [sides.source.create("app/s").facts("elsewhere", 0)])
            assert await settled(first) == BROAD
            # It is wide once, and not wider after each call.
            await RemoteTarget(first).write(LINK, "app", [Write(StreamName("app", "s"), 0, 0, b"a", True)])
            assert await settled(first) == BROAD

            async def refuse(*_):
                raise Forbidden("not you")

            write, sides.target.write = sides.target.write, refuse
            one = [Write(StreamName("app", "s"), 0, 1, b"b", True)]
            with pytest.raises(Forbidden):
                await RemoteTarget(second).write(LINK, "app", one)
            assert await settled(second) == NARROW
            sides.target.write = write
            monkeypatch.setattr(grpc_server, "MAX_WIDE_CONNECTIONS", 1)
            await RemoteTarget(second).write(LINK, "app", one)
            assert await settled(second) == NARROW
            # The place of a connection that has ended is free.
            await first.close()
            await asyncio.sleep(0)
            await RemoteTarget(third).write(LINK, "app", one)
            while await settled(third) != BROAD:
                await RemoteTarget(third).write(LINK, "app", one)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_much_is_written_in_one_call():
    async def main():
        sides = Sides()
        data = bytes(real_env().random.bytes(3 << 20))
        async with peers(sides, 1) as (peer,):
            target = RemoteTarget(peer)
            await target.begin(LINK, "app", [sides.source.create("app/s").facts("elsewhere", 0)])
            name = StreamName("app", "s")
            written = await asyncio.gather(
                *(target.write(LINK, "app", [Write(name, 0, at << 20, data[at << 20 : (at + 1) << 20], True)])
                  for at in range(3))
            )  # fmt: skip
            assert [one.end for (one,) in written] == [1 << 20, 2 << 20, 3 << 20]
            assert bytes(sides.target.mirrors[name].staged[0]) == data
            # Both ends send long frames, which cost less.
            connection = peer._client._channels.current.channel._connection
            assert connection._http._h2.max_outbound_frame_size == WIDE_FRAME_BYTES
            sides.source.streams_by_name[name].data[0] += data
            sides.source._read_bytes = 1 << 22
            lengths, receive = [], connection._http.receive

            def note(pieces):
                events = receive(pieces)
                lengths.extend(len(event.data) for event in events if isinstance(event, DataReceived))
                return events

            class Noting:
                def __getattr__(self, name):
                    return note if name == "receive" else getattr(Noting.of, name)

                of = connection._http

            connection._http = Noting()
            (found,) = await RemoteSource(peer).read("app", [Range(name, 0, 0, 1 << 20)])
            assert found == data[: 1 << 20]
            assert max(lengths) == WIDE_FRAME_BYTES

    asyncio.run(asyncio.wait_for(main(), 60))
