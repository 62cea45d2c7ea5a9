"""How much a link may send in one round trip: little at first, much once it may write."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, PingAckReceived, StreamEnded

from sarit.controller.service import handlers
from sarit.core.errors import Forbidden
from sarit.core.links import LinkDirection, LinkSettings
from sarit.core.names import StreamName
from sarit.env.real import real_env
from sarit.mirror.attached_calls import AttachedCalls
from sarit.mirror.calls import MirrorCalls
from sarit.mirror.peer import Peer
from sarit.mirror.remote import RemoteSource, RemoteTarget
from sarit.mirror.values import LinkIdentity, Range, Write
from sarit.rpc import grpc_server, http2
from sarit.rpc.call import PREFIX, framed
from sarit.rpc.generated import mirror_pb2 as pb
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
    found = [Peer(LinkSettings(LinkDirection.PUSH, f"127.0.0.1:{port}"), real_env(), "here") for _ in range(count)]
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


@asynccontextmanager
async def raw_writer(sides):
    """A connection that may write, its stream of a call of mirrorWrite, and what the server sends on it."""
    made = handlers(MIRROR, (MirrorCalls(sides), AttachedCalls(sides)), RequestLimiter(), None, WIDE)
    server, port = await listen(made)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    h2 = H2Connection(H2Configuration(client_side=True, header_encoding="ascii"))
    h2.initiate_connection()

    def begin(path, data=b""):
        stream = h2.get_next_available_stream_id()
        head = {":method": "POST", ":path": path, ":scheme": "http", ":authority": "x", "te": "trailers"}
        h2.send_headers(stream, [*head.items(), ("content-type", "application/grpc")])
        if data:
            h2.send_data(stream, data, end_stream=True)
        writer.write(h2.data_to_send())
        return stream

    async def until(kind):
        found = []
        while not any(isinstance(event, kind) for event in found):
            if not (data := await reader.read(1 << 16)):
                return found
            found += h2.receive_data(data)
            writer.write(h2.data_to_send())
        return found

    try:
        link = pb.MirrorLink(linkId=b"l" * 16, name="n", installation="edge")
        request = pb.MirrorWriteRequest(scope="app", link=link)
        begin(MIRROR.mirrorWrite.name, framed(request.SerializeToString()))
        await until(StreamEnded)
        yield h2, writer, begin, until
    finally:
        writer.close()
        server.close()


def long_frame(stream, size):
    return size.to_bytes(3, "big") + bytes(2) + stream.to_bytes(4, "big") + bytes(size)


def test_long_frames_beyond_the_window_end_the_connection(monkeypatch, caplog):
    monkeypatch.setattr(http2, "WIDE_WINDOW_BYTES", 2 * WIDE_FRAME_BYTES)

    async def main():
        async with raw_writer(Sides()) as (h2, writer, begin, until):
            stream = begin(MIRROR.mirrorWrite.name)
            h2.send_data(stream, PREFIX.pack(0, 4 << 20))
            writer.write(h2.data_to_send() + long_frame(stream, WIDE_FRAME_BYTES))
            writer.write(long_frame(stream, WIDE_FRAME_BYTES))
            h2.ping(b"anybody?")
            writer.write(h2.data_to_send())
            assert not any(isinstance(event, ConnectionTerminated) for event in await until(PingAckReceived))
            writer.write(long_frame(stream, WIDE_FRAME_BYTES))
            await until(())
            assert "sent more than its flow-control window" in caplog.text

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize(("stream", "ends"), [(0, True), (99, True), (1, False)])
def test_long_frames_of_no_open_call_are_for_h2(stream, ends):
    async def main():
        async with raw_writer(Sides()) as (h2, writer, _, until):
            writer.write(long_frame(stream, WIDE_FRAME_BYTES))
            h2.ping(b"anybody?")
            writer.write(h2.data_to_send())
            # What comes on a stream that has ended may have been under way.
            found = {type(event) for event in await until((ConnectionTerminated, PingAckReceived))}
            assert found & {ConnectionTerminated, PingAckReceived} == {
                ConnectionTerminated if ends else PingAckReceived
            }

    asyncio.run(asyncio.wait_for(main(), 60))


def test_credit_comes_back_for_all_that_was_written():
    async def main():
        sides = Sides()
        async with peers(sides, 1) as (peer,):
            target, name = RemoteTarget(peer), StreamName("app", "s")
            await target.begin(LINK, "app", [sides.source.create("app/s").facts("elsewhere", 0)])
            data = bytes(real_env().random.bytes(1 << 20))
            for at in range(12):  # three windows
                (one,) = await target.write(LINK, "app", [Write(name, 0, at << 20, data, True)])
                assert one.end == (at + 1) << 20
            await peer.site()
            total, each = window(peer)
            assert WIDE_WINDOW_BYTES // 4 <= total <= each == WIDE_WINDOW_BYTES
            assert bytes(sides.target.mirrors[name].staged[0]) == data * 12

    asyncio.run(asyncio.wait_for(main(), 60))
