"""Bad input on the controller's port of a real node: not HTTP/2, not gRPC, not a message, too long, never read."""

from __future__ import annotations

import asyncio
import random
import struct
import sys
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, ResponseReceived, StreamReset, TrailersReceived

from sarit.rpc.generated import controller_pb2 as pb
from tests.faults.many_connections import RegularClient, address_of, many
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

SHORT_TIMEOUTS = Path(__file__).with_name("node_with_short_timeouts.py")
SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"
GROWTH_BYTES = 260 << 20  # of some 4,000 calls under way
SEED = 21


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    command = (sys.executable, str(SHORT_TIMEOUTS))
    with RunningNode(tmp_path_factory.mktemp("calls") / "data", "--containers", "2", sarit=command) as running:
        yield running


class Caller:
    """An HTTP/2 client that may do anything."""

    def __init__(self, reader, writer) -> None:
        self.reader, self.writer = reader, writer
        self.h2 = H2Connection(
            H2Configuration(header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False)
        )
        self.h2.initiate_connection()
        self.events = []
        self.closed = False

    @staticmethod
    async def to(address: str) -> Caller:
        """Connect."""
        caller = Caller(*await asyncio.open_connection(*address_of(address)))
        caller.flush()
        return caller

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())

    def begin(self, method="listScopes", *, without=(), more=(), end=False) -> int:
        """The head of a call."""
        headers = [
            (":method", "POST"), (":scheme", "http"), (":path", SERVICE + method), (":authority", "node"),
            ("te", "trailers"), ("content-type", "application/grpc"), *more,
        ]  # fmt: skip
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, [(name, value) for name, value in headers if name not in without], end_stream=end)
        self.flush()
        return stream

    async def send(self, stream: int, data: bytes, *, end=True) -> None:
        """Data of a call, as fast as the node takes it.  Raises OSError, StopAsyncIteration when it takes no more."""
        while data:
            size = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(data))
            if size <= 0:
                await self.take()
                continue
            self.h2.send_data(stream, data[:size], end_stream=end and size == len(data))
            data = data[size:]
            self.flush()
            await self.writer.drain()

    async def take(self) -> None:
        """Something the node says.  Raises StopAsyncIteration when it has closed."""
        data = await self.reader.read(1 << 16)
        if not data:
            raise StopAsyncIteration
        self.events += self.h2.receive_data(data)
        self.flush()

    async def status(self, stream: int) -> str:
        """The gRPC status of a call; "reset", or "closed"."""
        async with asyncio.timeout(HANG_SECONDS):
            while True:
                for event in self.events:
                    if isinstance(event, ResponseReceived | TrailersReceived) and event.stream_id == stream:
                        for name, value in event.headers:
                            if bytes(name) == b"grpc-status":
                                return bytes(value).decode()
                    if isinstance(event, StreamReset) and event.stream_id == stream:
                        return "reset"
                    if isinstance(event, ConnectionTerminated):
                        return "closed"
                try:
                    await self.take()
                except (StopAsyncIteration, OSError):
                    return "closed"


def message(request) -> bytes:
    data = request.SerializeToString()
    return struct.pack(">BI", 0, len(data)) + data


def run(node, main) -> str:
    """What the node logs while `main(regular)` runs beside a regular."""
    before = len(node.log())

    async def with_customer() -> None:
        async with RegularClient(node.controller, "good/calls") as regular:
            await main()
            await regular.served_again()

    asyncio.run(asyncio.wait_for(with_customer(), HANG_SECONDS))
    said = node.log()[before:]
    assert "Traceback" not in said
    assert " ERROR " not in said
    return said


OK, INVALID, DEADLINE, UNIMPLEMENTED = "0", "3", "4", "12"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (message(pb.ScopesRequest()), OK),
        (b"", INVALID),
        (b"\0\0", INVALID),
        (struct.pack(">BI", 0, 100) + b"too short", INVALID),
        (struct.pack(">BI", 1, 4) + b"gzip", UNIMPLEMENTED),
        (struct.pack(">BI", 0, 9) + b"\xff" * 9, INVALID),
        (struct.pack(">BI", 0, (1 << 32) - 1) + bytes(1000), INVALID),
        (struct.pack(">BI", 0, 4 << 20) + bytes(4 << 20), INVALID),
    ],
    ids=[
        "well",
        "nothing",
        "half a head",
        "cut short",
        "compressed",
        "no message",
        "4 GiB announced",
        "4 MiB of noise",
    ],
)
def test_invalid_requests_get_a_status(node, data, status) -> None:
    async def main() -> None:
        caller = await Caller.to(node.controller)
        stream = caller.begin(end=not data)
        await caller.send(stream, data)
        assert await caller.status(stream) == status
        stream = caller.begin()
        await caller.send(stream, message(pb.ScopesRequest()))
        assert await caller.status(stream) == OK  # the connection is as good as before
        caller.writer.close()

    assert run(node, main) == ""


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"without": (":path",)}, "sent a request without :path"),
        ({"without": (":method",)}, "sent a request without :method"),
        ({"more": (("strange", b"\xff\xfe"),)}, "broke the protocol"),
    ],
)
def test_invalid_call_headers_end_the_connection(node, how, words) -> None:
    async def main() -> None:
        caller = await Caller.to(node.controller)
        assert await caller.status(caller.begin(**how)) == "closed"
        caller.writer.close()

    said = run(node, main)
    assert said.count("API connection") == said.count(words) == said.count("\n") == 1


def test_unknown_calls_and_frames_are_refused_or_ignored(node) -> None:
    async def main() -> None:
        caller = await Caller.to(node.controller)
        assert await caller.status(caller.begin("makeCoffee", end=True)) == UNIMPLEMENTED
        caller.writer.write(b"\0\0\5\xbb\0\0\0\0\0hello")  # a frame of type 0xbb: RFC 9113 says to pass it over
        stream = caller.begin(more=(("some-bin", "no base64 at all"),))  # what nobody reads is not decoded
        await caller.send(stream, message(pb.ScopesRequest()))
        assert await caller.status(stream) == OK
        caller.writer.close()

    assert run(node, main) == ""


def test_random_bytes_end_connection_with_one_log_line(node) -> None:
    clients = 100
    rng = random.Random(SEED)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

    def noise() -> bytes:
        frames = b"".join(
            struct.pack(">I", len(inside))[1:] + bytes((rng.randrange(12), rng.randrange(256)))
            + struct.pack(">I", rng.choice((0, 1, 3, 1 << 31))) + inside
            for inside in (rng.randbytes(rng.choice((0, 5, 8, 100))) for _ in range(20))
        )  # fmt: skip
        return rng.choice(
            (rng.randbytes(500), preface + rng.randbytes(500), preface + frames, b"GET / HTTP/1.1\r\n\r\n")
        )

    async def main() -> None:
        async def one() -> None:
            reader, writer = await asyncio.open_connection(*address_of(node.controller))
            writer.write(noise())
            try:
                while await asyncio.wait_for(reader.read(1 << 16), 2):
                    pass
            except (TimeoutError, OSError):
                pass
            writer.transport.abort()

        assert not [error for error in await many(clients, one) if error is not None]

    said = run(node, main)
    # One line a minute for each reason, however many break the protocol: a flood would fill the log.
    assert 1 <= said.count("API connection") == said.count("\n") <= 3


def test_client_that_takes_no_replies_uses_bounded_memory(node) -> None:
    """Calls whose replies are not taken; and heads of requests, and parts of them, whose rest never comes."""
    callers = 40

    async def main() -> None:
        memory = node.resident_bytes()
        async with RegularClient(node.controller, "good/large") as regular:
            for number in range(30):
                await regular.client.create_scope(f"a-scope-with-a-name-as-long-as-names-may-be-{number:0200d}")

            async def deaf() -> None:
                caller = await Caller.to(node.controller)
                caller.reader._transport.pause_reading()
                for _ in range(95):
                    stream = caller.begin()
                    caller.h2.send_data(stream, message(pb.ScopesRequest()), end_stream=True)
                caller.flush()
                connected.append(caller)

            async def slow() -> None:
                caller = await Caller.to(node.controller)
                for _ in range(10):
                    caller.h2.send_data(caller.begin(), struct.pack(">BI", 0, 1 << 20) + bytes(5000))
                caller.flush()
                connected.append(caller)

            connected: list[Caller] = []
            for make in (deaf, slow):
                assert not [error for error in await many(callers, make) if error is not None]
            await regular.served_again()
            assert node.resident_bytes() - memory < GROWTH_BYTES
            while node.log().count("did not take replies") < callers:
                await asyncio.sleep(0.1)
            for caller in connected:
                caller.writer.transport.abort()

    said = run(node, main)
    assert said.count("did not take replies") == said.count("\n") == callers
