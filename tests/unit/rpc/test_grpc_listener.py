"""Data of one turn of the loop is sent in one write; idle and dead connections are ended."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, PingReceived

from sarit.rpc import grpc_server as grpc_server
from sarit.rpc.channel import CallLost, Channel
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.grpc_server import GrpcListener
from sarit.rpc.handlers import rpc_handler
from sarit.rpc.http2 import Http2End
from sarit.rpc.request_limiter import RequestLimiter
from tests.limits import HANG_SECONDS
from tests.rpc_calls import Stub
from tests.unit.client.world import until


class _Transport:
    def __init__(self) -> None:
        self.written: list[object] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.written.append("close")
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing


ASKED = [(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "x")]


def test_writes_of_one_loop_turn_are_coalesced() -> None:
    async def main() -> None:
        transport = _Transport()
        end = Http2End(transport, window_bytes=65_535, most_calls=10)  # type: ignore[arg-type]
        client = H2Connection(H2Configuration(client_side=True))
        client.initiate_connection()
        for stream in (1, 3):
            client.send_headers(stream, ASKED)
        end.receive(client.data_to_send())
        await asyncio.sleep(0)
        transport.written.clear()
        for stream in (1, 3):
            assert end.send(stream, ((":status", "200"),), b"body", (("grpc-status", "0"),)) is None
        assert transport.written == []
        await asyncio.sleep(0)
        assert len(transport.written) == 1
        end.ping(b"anybody?")
        transport.close()
        await asyncio.sleep(0)
        assert transport.written[1:] == ["close"]

    asyncio.run(main())


def test_bodies_wait_for_windows_and_for_the_transport_and_then_arrive_whole() -> None:
    async def main() -> None:
        transport = _Transport()
        end = Http2End(transport, window_bytes=65_535, most_calls=10)  # type: ignore[arg-type]
        client = H2Connection(H2Configuration(client_side=True))
        client.initiate_connection()
        client.send_headers(1, ASKED)
        client.send_headers(3, ASKED)
        end.receive(client.data_to_send())
        body = bytes(range(256)) * 600
        end.pause_writing()
        sent = end.send(1, ((":status", "200"),), body, (("grpc-status", "0"),))
        assert sent is not None
        given_up = end.send(3, ((":status", "200"),), body, None)
        end.resume_writing()
        got = b""
        for _ in range(20):
            await asyncio.sleep(0)
            pieces, transport.written = transport.written, []
            for event in client.receive_data(b"".join(pieces)):  # type: ignore[arg-type]
                if getattr(event, "stream_id", 0) == 1 and hasattr(event, "data"):
                    got += event.data
                if hasattr(event, "flow_controlled_length"):
                    client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if sent.done():
                break
            left = not given_up.done()
            assert end.forget(3) == left
            end.receive(client.data_to_send())
        assert got == body
        assert sent.done()
        assert given_up.done()

    asyncio.run(main())


PATH = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/checkScopeExists"


class _Service:
    """Says that each scope exists."""

    async def exists(self, _) -> pb.ExistsResponse:
        return pb.ExistsResponse(exists=True)

    def handlers(self):
        return {PATH: rpc_handler(self.exists, pb.ScopeInfo, RequestLimiter())}


@asynccontextmanager
async def listener_with_short_timeouts(
    monkeypatch, greeting=0.05, quiet=0.05, ping=0.05, call=HANG_SECONDS, message=HANG_SECONDS
):
    times = (("FIRST_BYTES", greeting), ("IDLE", quiet), ("PING", ping), ("FIRST_CALL", call), ("MESSAGE", message))
    for name, seconds in times:
        monkeypatch.setattr(grpc_server, f"GRPC_{name}_SECONDS", seconds)
    listener = GrpcListener(_Service().handlers(), 10)
    server = await asyncio.get_running_loop().create_server(listener.connection, "127.0.0.1", 0)
    try:
        yield listener, server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize("said", [b"", b"PRI * HTTP/2.0"])
def test_connection_without_http2_preface_is_closed(said, monkeypatch, caplog) -> None:
    """Such connections occupied all connections of the API for ever."""

    async def main() -> None:
        async with listener_with_short_timeouts(monkeypatch) as (listener, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(said)
            await reader.read()  # to the end
            writer.close()
            await until(lambda: repr(listener) == "<GrpcListener, 0 connections>")

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert "did not begin to speak HTTP/2" in caplog.text


@pytest.mark.parametrize(
    "pieces", [[b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"], [b"P", b"OS", b"T / HTTP/1.1\r\n\r\n"]]
)
def test_request_of_http1_is_answered_with_text_alone(pieces, monkeypatch, caplog) -> None:
    """A probe or a browser got frames of HTTP/2."""

    async def main() -> bytes:
        async with listener_with_short_timeouts(monkeypatch, greeting=HANG_SECONDS) as (listener, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await until(lambda: listener.connections)
            (connection,) = listener._open
            for end in range(1, len(pieces) + 1):
                writer.write(pieces[end - 1])
                said = b"".join(pieces[:end])
                await until(lambda: connection._first_bytes == said)  # noqa: B023
            answer = await reader.read()
            writer.close()
            await until(lambda: repr(listener) == "<GrpcListener, 0 connections>")
            return answer

    answer = asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert answer.endswith(b"Health, metrics and REST are on the HTTP port: see --http-port.\n")
    assert "closed: it is an HTTP/1 request" in caplog.text


def test_connection_that_answers_no_ping_is_closed(monkeypatch, caplog) -> None:
    """A client whose machine or path failed without notice: it answers no ping."""

    async def main() -> None:
        async with listener_with_short_timeouts(monkeypatch, greeting=0.2) as (listener, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            client = H2Connection(H2Configuration(client_side=True))
            client.initiate_connection()
            writer.write(client.data_to_send())
            events = []
            while data := await reader.read(65536):
                events += client.receive_data(data)  # what it would answer is not sent
            assert [event for event in events if isinstance(event, PingReceived)]
            writer.close()
            await until(lambda: repr(listener) == "<GrpcListener, 0 connections>")

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert "did not answer a ping" in caplog.text


def test_idle_connection_that_answers_pings_stays_open(monkeypatch, caplog) -> None:
    async def main() -> None:
        pings: list[object] = []
        async with listener_with_short_timeouts(monkeypatch, greeting=0.2, quiet=0.01, ping=3) as (listener, port):
            channel = Channel("127.0.0.1", port)
            stub = Stub(channel)
            assert (await stub.checkScopeExists(pb.ScopeInfo(scope="s"))).exists
            connection: Any = channel._connection
            note = connection._note
            connection._note = lambda event: (isinstance(event, PingReceived) and pings.append(event), note(event))
            await until(lambda: len(pings) >= 3)
            assert (await stub.checkScopeExists(pb.ScopeInfo(scope="s"))).exists
            assert repr(listener) == "<GrpcListener, 1 connections>"
            channel.close()

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert "closed" not in caplog.text


def test_connection_that_begins_no_call_is_sent_away_and_one_that_did_stays(monkeypatch, caplog) -> None:
    """A client that answers pings held its place for ever, without a call."""

    async def main() -> None:
        async with listener_with_short_timeouts(monkeypatch, 0.05, 0.05, HANG_SECONDS, call=0.1) as (listener, port):
            channel = Channel("127.0.0.1", port)
            assert (await Stub(channel).checkScopeExists(pb.ScopeInfo(scope="s"))).exists
            (first,) = listener._open
            for _ in range(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                client = H2Connection(H2Configuration(client_side=True))
                client.initiate_connection()
                writer.write(client.data_to_send())
                found = await _events(reader, client, ConnectionTerminated)
                assert [event.error_code for event in found if isinstance(event, ConnectionTerminated)] == [0]
                writer.close()
            await until(lambda: repr(listener) == "<GrpcListener, 1 connections>")
            assert list(listener._open) == [first]
            channel.close()

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert [message.partition(" closed: ")[2] for message in caplog.messages] == ["it began no call in 0 s"]


def _headers(size: int, *, end: bool = True) -> bytes:
    """A frame of headers that is not compressed: `size` bytes of one header."""
    client = H2Connection(H2Configuration(client_side=True, validate_outbound_headers=False))
    client.initiate_connection()
    client.clear_outbound_data_buffer()
    client.max_outbound_frame_size = 1 << 14
    names = [(":method", "POST"), (":scheme", "http"), (":path", PATH), (":authority", "x"), ("te", "trailers")]
    client.send_headers(1, [*names, ("content-type", "application/grpc"), ("more", "*" * size)])
    return client.data_to_send()


@pytest.mark.parametrize("slow", [lambda: _headers(10_000), lambda: b"\0\x27\x10\0\0\0\0\0\1" + bytes(10_000)])
def test_client_that_sends_a_byte_at_a_time_is_ended(slow, monkeypatch, caplog) -> None:
    """Each byte counted as a sign of life, so half a request kept its connection for ever."""

    async def main() -> None:
        async with listener_with_short_timeouts(monkeypatch, 0.5, 0.05, HANG_SECONDS, message=0.2) as (listener, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            client = H2Connection(H2Configuration(client_side=True))
            client.initiate_connection()
            writer.write(client.data_to_send())
            ended = asyncio.ensure_future(reader.read())  # to the end
            for byte in slow():
                writer.write(bytes((byte,)))
                await asyncio.wait([ended], timeout=0.02)
                if ended.done():
                    break
            assert ended.done()
            with suppress(ConnectionResetError):
                await ended
            writer.close()
            await until(lambda: repr(listener) == "<GrpcListener, 0 connections>")

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert [message.partition(" closed: ")[2] for message in caplog.messages] == [
        "it did not send the rest of a frame in 0 s"
    ]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (lambda: (1 << 20).to_bytes(3, "big") + b"\0\0\0\0\0\1", "announced a frame of more than 16 KiB"),
        (lambda: _headers(100_000), "sent headers of more than 64 KiB"),
        (lambda: b"".join(_continued(100)), "broke the protocol: ProtocolError Too many continuation frames"),
    ],
)
def test_headers_and_frames_over_the_bound_end_the_connection_with_one_line(sent, reason, monkeypatch, caplog) -> None:
    data = sent()  # h2's compression takes the square of a header's length

    async def main() -> None:
        async with listener_with_short_timeouts(monkeypatch, HANG_SECONDS, HANG_SECONDS) as (listener, port):
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                client = H2Connection(H2Configuration(client_side=True))
                client.initiate_connection()
                writer.write(client.data_to_send() + data)
                await reader.read()  # to the end
                writer.close()
            await until(lambda: repr(listener) == "<GrpcListener, 0 connections>")

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert len(caplog.messages) == 1
    assert f"closed: it {reason}" in caplog.text


def _continued(frames: int):
    yield b"\0\0\1\1\0\0\0\0\1\x82"
    for _ in range(frames):
        yield b"\0\0\0\x09\0\0\0\0\1"


class _HeldService(_Service):
    """Answers when `free` is set."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.calls = 0

    async def exists(self, request) -> pb.ExistsResponse:
        self.calls += 1
        await self.free.wait()
        return await super().exists(request)


async def _events(reader: asyncio.StreamReader, client: H2Connection, kind: type) -> list[object]:
    """What arrives, until one of a kind."""
    found: list[object] = []
    while not any(isinstance(event, kind) for event in found):
        data = await reader.read(65536)
        assert data, found
        found += client.receive_data(data)
    return found


def test_draining_listener_answers_calls_under_way_and_sends_clients_away() -> None:
    """A controller that was stopped dropped the calls under way: clients saw lost connections."""

    async def main() -> None:
        service = _HeldService()
        listener = GrpcListener(service.handlers(), 10)
        server = await asyncio.get_running_loop().create_server(listener.connection, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        channel = Channel("127.0.0.1", port)
        call = asyncio.ensure_future(Stub(channel).checkScopeExists(pb.ScopeInfo(scope="s")))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        idle = H2Connection(H2Configuration(client_side=True))
        idle.initiate_connection()
        writer.write(idle.data_to_send())
        await until(lambda: service.calls == 1)
        server.close()
        draining = asyncio.ensure_future(listener.drain(HANG_SECONDS))
        # The idle connection is sent away at once; the call goes on.
        (away,) = [e for e in await _events(reader, idle, ConnectionTerminated) if isinstance(e, ConnectionTerminated)]
        assert away.error_code == 0
        writer.close()
        assert not call.done()
        service.free.set()
        assert (await call).exists
        await draining
        assert repr(listener) == "<GrpcListener, 0 connections>"
        channel.close()

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))


def test_draining_listener_ends_a_call_that_takes_too_long() -> None:
    async def main() -> None:
        service = _HeldService()
        listener = GrpcListener(service.handlers(), 10)
        server = await asyncio.get_running_loop().create_server(listener.connection, "127.0.0.1", 0)
        channel = Channel("127.0.0.1", server.sockets[0].getsockname()[1])
        call = asyncio.ensure_future(Stub(channel).checkScopeExists(pb.ScopeInfo(scope="s")))
        await until(lambda: service.calls == 1)
        server.close()
        await listener.drain(0.1)
        with pytest.raises(CallLost):
            await call
        channel.close()

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
