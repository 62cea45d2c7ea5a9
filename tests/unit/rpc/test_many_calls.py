"""More calls at once on one connection than HTTP/2 libraries allow by default, by an official client and by ours."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import StreamEnded, StreamReset

from sarit.client.core.controller import ControllerClient
from sarit.core.errors import Unavailable
from sarit.rpc import grpc_server
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.grpc_server import GrpcListener
from tests.limits import HANG_SECONDS
from tests.unit.client.world import until

PATH = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/checkScopeExists"
CALLS = 300


class _Service:
    """Answers once `gate` is set."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.waiting = 0

    async def exists(self, call) -> None:
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        call.reply(pb.ExistsResponse(exists=True).SerializeToString())


class _Node:
    def __init__(self) -> None:
        self.service = _Service()
        self.transports: list[asyncio.Transport] = []
        self.server: asyncio.Server

    async def start(self) -> _Node:
        listener = GrpcListener({PATH: self.service.exists}, 10)

        def connection() -> asyncio.Protocol:
            protocol = listener.connection()
            made = protocol.connection_made
            protocol.connection_made = lambda transport: (self.transports.append(transport), made(transport))  # type: ignore[method-assign]
            return protocol

        self.server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
        return self

    @property
    def port(self) -> int:
        return self.server.sockets[0].getsockname()[1]

    def die(self) -> None:
        self.server.close()
        for transport in self.transports:
            transport.abort()


@asynccontextmanager
async def grpcio(port):
    """Calls of the official client, on one connection."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(
            PATH, request_serializer=pb.ScopeInfo.SerializeToString, response_deserializer=pb.ExistsResponse.FromString
        )
        yield lambda: call(pb.ScopeInfo(scope="s"), timeout=60), grpc.aio.AioRpcError


@asynccontextmanager
async def ours(port):
    client = ControllerClient([("127.0.0.1", port)])
    yield lambda: client.call(client.stub.checkScopeExists, pb.ScopeInfo(scope="s")), Unavailable
    await client.close()


@pytest.mark.parametrize("connect", [grpcio, ours])
def test_hundreds_of_calls_at_once_on_a_new_connection_are_all_answered(connect, caplog) -> None:
    async def main() -> None:
        node = await _Node().start()
        async with connect(node.port) as (call, _):
            calls = [asyncio.ensure_future(call()) for _ in range(CALLS)]
            await until(lambda: node.service.waiting >= 100)
            node.service.gate.set()
            answers = await asyncio.gather(*calls)
            assert [answer.exists for answer in answers] == [True] * CALLS
        assert len(node.transports) == 1
        node.die()

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert not caplog.text


HEADERS = [
    (":method", "POST"),
    (":path", PATH),
    (":scheme", "http"),
    (":authority", "s"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


async def burst(node, count):
    """Send calls before the server's settings were read; how many were answered, how many refused.

    A busy server's settings come late: the kernel accepts the connection, and takes the calls, long before."""
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    for number in range(count):
        client.send_headers(2 * number + 1, HEADERS)
        client.send_data(2 * number + 1, bytes(5), end_stream=True)
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(client.data_to_send())
    answered, refused = set(), set()
    while len(answered) + len(refused) < count:
        data = await reader.read(1 << 16)
        assert data, "the connection was ended"
        for event in client.receive_data(data):
            if type(event) is StreamEnded:
                answered.add(event.stream_id)
            elif type(event) is StreamReset and event.error_code == ErrorCodes.REFUSED_STREAM:
                refused.add(event.stream_id)
                node.service.gate.set()
        writer.write(client.data_to_send())
    writer.close()
    return len(answered), len(refused)


def test_calls_that_a_client_sends_before_it_knows_of_a_limit_are_answered(caplog) -> None:
    """The server ended the connection at the 101st."""

    async def main() -> None:
        node = await _Node().start()
        node.service.gate.set()
        assert await burst(node, CALLS) == (CALLS, 0)
        node.die()

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert not caplog.text


def test_calls_beyond_the_limit_of_a_connection_are_refused_and_the_others_answered(monkeypatch, caplog) -> None:
    monkeypatch.setattr(grpc_server, "MAX_CALLS_PER_CONNECTION", 50)

    async def main() -> None:
        node = await _Node().start()
        assert await burst(node, 80) == (50, 30)
        # A client that knows the limit waits, and all calls are answered.
        async with ours(node.port) as (call, _):
            assert len(await asyncio.gather(*(call() for _ in range(120)))) == 120
        node.die()

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert not caplog.text


@pytest.mark.parametrize("connect", [grpcio, ours])
def test_calls_end_soon_when_the_node_dies_under_hundreds_of_them(connect) -> None:
    """Ours beyond the hundredth waited, for 60 s, for another to end on a connection that was gone."""

    async def main() -> None:
        node = await _Node().start()
        async with connect(node.port) as (call, error):
            calls = [asyncio.ensure_future(call()) for _ in range(CALLS)]
            await until(lambda: node.service.waiting >= 100)
            node.die()
            async with asyncio.timeout(HANG_SECONDS):
                for outcome in await asyncio.gather(*calls, return_exceptions=True):
                    assert isinstance(outcome, error), outcome

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
