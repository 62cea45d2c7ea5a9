"""What a client makes of servers of other kinds, of broken and silent ones, and of large replies."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import PingReceived, RequestReceived, StreamEnded, StreamReset

from sarit.rpc import channel as channel_module
from sarit.rpc.call import framed
from sarit.rpc.channel import CallLost, Channel
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.methods import PRAVEGA
from sarit.rpc.status import CallFailed, Status, timeout_seconds, timeout_text
from tests.limits import HANG_SECONDS

OK = [(":status", "200"), ("content-type", "application/grpc")]
REPLY = framed(pb.ExistsResponse(exists=True).SerializeToString())
DONE = [("grpc-status", "0")]


async def _read(reader) -> bytes:
    try:
        return await reader.read(65_536)
    except ConnectionResetError:
        return b""


class Server:
    """Answers each call by `answer(h2, stream)`; it notes what clients say."""

    def __init__(self, answer, *, mute: bool = False) -> None:
        self._answer, self._mute = answer, mute
        self.events = []
        self.connections = self.sent = 0
        self.body = b""  # of the first call, sent as its windows allow

    async def serve(self, reader, writer) -> None:
        self.connections += 1
        h2 = H2Connection(
            H2Configuration(client_side=False, validate_outbound_headers=False, normalize_outbound_headers=False)
        )
        h2.initiate_connection()
        while data := await _read(reader):
            events = h2.receive_data(data)
            self.events += events
            for event in events:
                if isinstance(event, StreamEnded):
                    self._answer(h2, event.stream_id)
            if any(isinstance(event, RequestReceived) for event in self.events):
                self._send_body(h2)
            writer.write(b"" if self._mute else h2.data_to_send())
        writer.close()

    def _send_body(self, h2) -> None:
        left = len(self.body) - self.sent
        while left and (size := min(h2.local_flow_control_window(1), h2.max_outbound_frame_size, left)) > 0:
            h2.send_data(1, self.body[self.sent : self.sent + size])
            self.sent += size
            left -= size
            if not left:
                h2.send_headers(1, DONE, end_stream=True)


@asynccontextmanager
async def asking(answer, *, echo_seconds=None, mute=False):
    server = Server(answer, mute=mute)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    channel = Channel(*listening.sockets[0].getsockname(), echo_seconds)
    async with asyncio.timeout(HANG_SECONDS):
        yield server, channel
    channel.close()
    listening.close()


async def ask(channel, seconds=HANG_SECONDS):
    return (await channel.call(PRAVEGA.checkScopeExists, pb.ScopeInfo(scope="s"), seconds, {"a": "b"})).exists


def whole(head, body=b"", trailers=()):
    def answer(h2, stream):
        h2.send_headers(stream, head, end_stream=not body and not trailers)
        if body:
            h2.send_data(stream, body, end_stream=not trailers)
        if trailers:
            h2.send_headers(stream, trailers, end_stream=True)

    return answer


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (whole([*OK, ("grpc-status", "5"), ("grpc-message", "no %E2%9C%93")]), Status.NOT_FOUND, "no \u2713"),
        (whole([(":status", "503")]), Status.UNAVAILABLE, "HTTP status 503"),
        (whole([(":status", "404")], b"<html>", ()), Status.UNIMPLEMENTED, "HTTP status 404"),
        (whole([(":status", "302")]), Status.UNKNOWN, "HTTP status 302"),
        (whole(OK, REPLY), Status.UNKNOWN, "without a status of gRPC"),
        (whole([*OK, ("grpc-status", "99")]), Status.UNKNOWN, "without a status of gRPC"),
        (whole(OK, b"", DONE), Status.UNKNOWN, "without a message"),
        (whole(OK, REPLY + b"x", DONE), Status.INTERNAL, "not one message"),
        (whole(OK, b"\1" + REPLY[1:], DONE), Status.INTERNAL, "not one message"),
        (whole(OK, framed(b"\xff"), DONE), Status.INTERNAL, "not a message of this API"),
        (whole(OK, framed(bytes(2000)), DONE), Status.OUT_OF_RANGE, "more than 1000 bytes"),
    ],
)
def test_answer_that_is_no_reply_fails_the_call_and_the_next_is_made_on_the_same_connection(
    answer, status, words, monkeypatch
):
    monkeypatch.setattr(channel_module, "MAX_API_REPLY_BYTES", 1000)
    answers = [answer, whole(OK, REPLY, DONE)]

    async def main() -> None:
        async with asking(lambda h2, stream: answers.pop(0)(h2, stream)) as (server, channel):
            with pytest.raises(CallFailed) as error:
                await ask(channel)
            assert error.value.status is status
            assert words in error.value.message
            assert await ask(channel)
            assert server.connections == 1
            (headers, _) = (event.headers for event in server.events if isinstance(event, RequestReceived))
            assert dict(headers)[b"a"] == b"b"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda h2, stream: h2.reset_stream(stream, 7), "gave the call up"),
        (lambda h2, stream: h2.close_connection(2), "GOAWAY"),
        (
            lambda h2, stream: setattr(h2, "data_to_send", lambda: b"\0\0\4\x08" + bytes(9)),
            "broke the protocol",
        ),
    ],
)
def test_call_that_ends_without_an_answer_is_lost(answer, words):
    async def main() -> None:
        async with asking(answer) as (_, channel):
            with pytest.raises(CallLost, match=words):
                await ask(channel)

    asyncio.run(main())


def test_reply_larger_than_a_window_arrives_whole():
    tags = pb.Tags(tag=[f"{number:06}" * 100 for number in range(10_000)])  # 6 MB in a field that the reply has not
    body = framed(pb.ExistsResponse(exists=True).SerializeToString() + tags.SerializeToString().replace(b"\n", b"\x12"))

    async def main() -> None:
        async with asking(lambda h2, stream: h2.send_headers(stream, OK)) as (server, channel):
            server.body = body
            assert await ask(channel)
            assert server.sent == len(body)

    asyncio.run(main())


def test_call_that_takes_too_long_is_reset():
    async def main() -> None:
        async with asking(lambda h2, stream: None) as (server, channel):
            with pytest.raises(TimeoutError):
                await ask(channel, 0.05)
            while not any(isinstance(event, StreamReset) for event in server.events):
                await asyncio.sleep(0)
            assert channel.connected

    asyncio.run(main())


def test_server_that_answers_no_echo_loses_its_connection_and_one_that_does_keeps_it():
    async def main() -> None:
        async with asking(lambda h2, stream: None, echo_seconds=0.02, mute=True) as (server, channel):
            with pytest.raises(CallLost, match="did not answer an echo"):
                await ask(channel)
        async with asking(lambda h2, stream: None, echo_seconds=0.02) as (server, channel):
            asked = asyncio.ensure_future(ask(channel))
            while sum(isinstance(event, PingReceived) for event in server.events) < 3:
                await asyncio.sleep(0)
            assert not asked.done()
            asked.cancel()

    asyncio.run(main())


@pytest.mark.parametrize("seconds", [0.0, 0.000_25, 0.5, 9.5, 10, 86_400])
def test_timeouts_are_written_and_read(seconds):
    assert len(timeout_text(seconds)) <= 9
    assert timeout_seconds(timeout_text(seconds)) == pytest.approx(seconds)
    with pytest.raises(ValueError, match="is no timeout"):
        timeout_seconds(f"{seconds}")
