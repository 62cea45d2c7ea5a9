"""Clients that flood the gRPC port are sent away, and others' calls do not wait for them."""

from __future__ import annotations

import asyncio

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, ResponseReceived, StreamReset, TrailersReceived

from sarit.core.errors import NotFound, Unauthenticated
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.grpc_server import GrpcListener
from sarit.rpc.handlers import rpc_handler
from sarit.rpc.limits import HTTP2_FRAMES_PER_TURN, MAX_GRPC_MESSAGE_BYTES, MAX_UNREAD_BYTES
from sarit.rpc.request_limiter import RequestLimiter
from tests.limits import HANG_SECONDS
from tests.unit.client.world import until
from tests.unit.rpc.test_frames import frame
from tests.unit.rpc.test_many_calls import HEADERS, PATH

REQUEST = b"\0\0\0\0\3\n\1s"


class _Access:
    """Lets in who says `me`; `anybody`: who says nothing may call, and is not known by it."""

    def __init__(self, *, anybody: bool = False) -> None:
        self._anybody = anybody

    async def caller(self, _call, authorization, _peer):
        if authorization is None and self._anybody:
            return None
        if authorization != "me":
            raise Unauthenticated("who are you?")
        return "me"

    async def carry_out(self, _call, method, request, _caller, _peer):
        return await method(request)


class _Waiting(_Access):
    """Never finds out who it is."""

    async def caller(self, _call, _authorization, _peer):
        await asyncio.Event().wait()


class _Service:
    def __init__(self, access=None) -> None:
        self.calls = 0
        self.repeats = False
        self._access = access

    async def exists(self, request) -> pb.ExistsResponse:
        self.calls += 1
        if self.repeats:
            raise NotFound(f"no scope {request.scope}" + "\u1234" * 80_000)
        return pb.ExistsResponse(exists=True)

    def handlers(self):
        return {PATH: rpc_handler(self.exists, pb.ScopeInfo, RequestLimiter(), self._access)}


class _Wire:
    """A transport that keeps what is written; a connection of the listener reads what `said` says."""

    def __init__(self, listener: GrpcListener, host: str = "10.0.0.1", port: int = 1) -> None:
        self.read: list[bool] = []
        self.written = b""
        self.closed = False
        self._peer = (host, port)
        self.client = H2Connection(H2Configuration(client_side=True))
        self.client.initiate_connection()
        self.protocol = listener.connection()
        self.protocol.connection_made(self)  # type: ignore[arg-type]

    def get_extra_info(self, name, default=None):
        return self._peer if name == "peername" else default

    def write(self, data) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def pause_reading(self) -> None:
        self.read.append(False)

    def resume_reading(self) -> None:
        self.read.append(True)

    @property
    def reading(self) -> bool:
        return not self.read or self.read[-1]

    def said(self, data: bytes) -> None:
        self.protocol.data_received(data)

    def calls(self, first: int, count: int, *more: tuple[str, str]) -> bytes:
        for stream in range(first, first + 2 * count, 2):
            self.client.send_headers(stream, [*HEADERS, *more])
            self.client.send_data(stream, REQUEST, end_stream=True)
        return self.client.data_to_send()

    def events(self) -> list[object]:
        data, self.written = self.written, b""
        return list(self.client.receive_data(data))

    def away(self) -> list[object]:
        return [event.error_code for event in self.events() if isinstance(event, ConnectionTerminated)]


FLOODS = {
    "ping": frame(6, 0, bytes(8)),
    "settings": frame(4, 0, b"\0\4\0\0\xff\xff"),
    "acknowledgements": frame(4, 1),
    "priority": frame(2, 0, b"\0\0\0\3\5", 1),
    "windows": frame(8, 0, b"\0\0\0\1"),
    "unknown": frame(0x77),
}


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("flood", FLOODS)
def test_client_that_floods_is_sent_away_and_is_not_read_from(flood, known, caplog):
    """One connection that sent control frames kept all other calls waiting for as long as it went on."""

    async def main() -> None:
        service = _Service()
        wire = _Wire(GrpcListener(service.handlers(), 10))
        wire.said(wire.calls(1, 1) if known else wire.client.data_to_send())
        await until(lambda: service.calls == known)
        wire.said(FLOODS[flood] * 20_000)
        assert not wire.reading
        turns = 0
        while not (away := wire.away()):
            turns += 1
            await asyncio.sleep(0)
        assert away == [ErrorCodes.ENHANCE_YOUR_CALM]
        assert turns < 2000 / HTTP2_FRAMES_PER_TURN
        wire.said(FLOODS[flood] * 20_000)  # is dropped
        assert not wire.reading
        await until(lambda: wire.closed)

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    (line,) = caplog.messages
    assert line.endswith("closed: it sent more control frames than its calls need")


def test_calls_that_are_reset_at_once_are_not_begun_and_end_their_connection(caplog):
    """Each left a traceback of asyncio, and 1,000 of them a connection on which no call was begun any more."""

    async def main() -> None:
        service = _Service()
        listener = GrpcListener(service.handlers(), 10)
        wire = _Wire(listener)
        wire.said(wire.client.data_to_send())
        said = b""
        for stream in range(1, 6001, 2):
            wire.client.send_headers(stream, HEADERS)
            wire.client.reset_stream(stream)
            said += wire.client.data_to_send()
        wire.said(said)
        await until(lambda: wire.closed)
        assert service.calls == 0
        # A few, in two reads of one turn of the loop: what they took is given back.
        wire = _Wire(listener)
        for stream in (1, 3, 5):
            wire.client.send_headers(stream, HEADERS)
            wire.said(wire.client.data_to_send())
            wire.client.reset_stream(stream)
            wire.said(wire.client.data_to_send())
        connection = wire.protocol
        await until(lambda: not connection._frames.held_bytes and not connection._calls.under_way)  # type: ignore[attr-defined]
        wire.said(wire.calls(7, 1))
        await until(lambda: service.calls == 1)

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert not [record for record in caplog.records if record.exc_info]
    assert len([line for line in caplog.messages if "closed: it sent more control frames" in line]) == 1


def test_frames_of_one_connection_are_read_a_few_in_a_turn_and_other_calls_go_between(caplog):
    """A read of 256 KiB was handled in one turn of the loop, which took seconds."""

    async def main() -> None:
        service = _Service()
        listener = GrpcListener(service.handlers(), 10)
        wire = _Wire(listener)
        wire.said(wire.calls(1, 1))
        await until(lambda: service.calls == 1)
        wire.said(wire.calls(3, 900))
        assert wire.reading == (wire.protocol._frames.held_bytes <= MAX_UNREAD_BYTES)  # type: ignore[attr-defined]
        seen = service.calls
        most = 0
        while service.calls < 901:
            await asyncio.sleep(0)
            most = max(most, service.calls - seen)
            seen = service.calls
        assert most <= HTTP2_FRAMES_PER_TURN
        assert wire.reading

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert not caplog.text


def test_calls_before_a_log_in_wait_and_a_log_in_lets_them_go_on():
    async def main() -> None:
        service = _Service(_Access())
        wire = _Wire(GrpcListener(service.handlers(), 10))
        wire.said(wire.calls(1, 900))
        connection = wire.protocol
        await until(lambda: isinstance(connection._turn_timer, asyncio.TimerHandle))  # type: ignore[attr-defined]
        assert connection._frames.held_bytes  # type: ignore[attr-defined]
        assert service.calls == 0
        connection.become_known()  # type: ignore[attr-defined]
        await until(lambda: not connection._frames.held_bytes)  # type: ignore[attr-defined]
        wire.said(wire.calls(3001, 1, ("authorization", "me")))
        await until(lambda: service.calls == 1)

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))


@pytest.mark.parametrize(
    ("access", "more", "known"),
    [
        (None, (), True),
        (_Access(), (("authorization", "me"),), True),
        (_Access(), (("authorization", "you"),), False),
        (_Access(anybody=True), (), False),
    ],
)
def test_client_is_known_when_it_has_logged_in_or_where_nobody_needs_to(access, more, known):
    async def main() -> None:
        wire = _Wire(GrpcListener(_Service(access).handlers(), 10))
        wire.said(wire.calls(1, 1, *more))
        await until(lambda: not wire.protocol._calls.under_way)  # type: ignore[attr-defined]
        assert wire.protocol._known is known  # type: ignore[attr-defined]

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))


def test_oldest_unknown_client_of_the_host_with_the_most_gives_way_when_all_places_are_taken(caplog):
    """Connections that never logged in kept all others out."""

    async def main() -> None:
        service = _Service()
        listener = GrpcListener(service.handlers(), 6)
        known = [_Wire(listener, "2001:db8::1", number) for number in range(3)]
        for wire in known:
            wire.said(wire.calls(1, 1))
        await until(lambda: service.calls == 3)
        honest = _Wire(listener, "10.0.0.9")
        attackers = [_Wire(listener, f"2001:db8:0:1::{number + 1:x}") for number in range(2)]
        assert listener.connections == 6
        more = []
        for number in range(5):
            more.append(_Wire(listener, "2001:db8:0:1::99", number))
            assert listener.connections == 6
        assert [wire.closed for wire in (*attackers, *more)] == [True] * 5 + [False] * 2
        assert not any(wire.closed for wire in (*known, honest))
        honest.said(honest.calls(1, 1))
        await until(lambda: service.calls == 4)
        # Where all are known, a new one is refused.
        listener = GrpcListener(service.handlers(), 1)
        wire = _Wire(listener)
        wire.said(wire.calls(1, 1))
        await until(lambda: service.calls == 5)
        assert _Wire(listener).closed

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert [line.partition(" closed: it ")[2] for line in caplog.messages] == [
        "had not logged in when all 6 places were taken", ""
    ]  # fmt: skip


def test_text_of_an_error_is_cut_before_it_is_a_header():
    """One call with a name of 80 kB stopped a node for a minute: hpack takes the square of a header's length."""

    async def main() -> None:
        service = _Service()
        service.repeats = True
        wire = _Wire(GrpcListener(service.handlers(), 10))
        wire.said(wire.calls(1, 1))
        await until(lambda: not wire.protocol._calls.under_way)  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        (headers,) = [event.headers for event in wire.events() if hasattr(event, "headers")]
        text = dict(headers)[b"grpc-message"]
        # A character takes 9 bytes, and the count of those left out is a digit shorter than that of all.
        assert MAX_GRPC_MESSAGE_BYTES - 10 < len(text) <= MAX_GRPC_MESSAGE_BYTES
        assert text.endswith(b" characters more)")

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))


def test_call_that_its_client_does_not_end_is_reset_with_its_reply():
    """Its stream stayed in the memory of the connection, of which there was no bound."""

    async def main() -> None:
        wire = _Wire(GrpcListener(_Service().handlers(), 10))
        for stream in (1, 3):
            wire.client.send_headers(stream, HEADERS)
            wire.client.send_data(stream, REQUEST)
        wire.said(wire.client.data_to_send())
        events = []
        while len(resets := [event for event in events if isinstance(event, StreamReset)]) < 2:
            await asyncio.sleep(0)
            events += wire.events()
        assert {event.error_code for event in resets} == {ErrorCodes.NO_ERROR}
        replies = [dict(event.headers)[b"grpc-status"] for event in events if isinstance(event, TrailersReceived)]
        assert replies == [b"0", b"0"]

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))


@pytest.mark.parametrize(
    ("name", "value", "statuses"),
    [
        (":method", "PUT", (b"405", b"2")),
        ("content-type", "text/plain", (b"415", b"2")),
        (":path", "/none", (b"200", b"12")),
        ("grpc-timeout", "9" * 5000 + "S", (b"200", b"2")),
        ("grpc-timeout", "0n", (b"200", b"4")),
    ],
)
def test_request_that_is_not_of_grpc_is_refused(name, value, statuses):
    async def main() -> None:
        wire = _Wire(GrpcListener(_Service(_Waiting()).handlers(), 10))
        headers = dict(HEADERS) | {name: value}
        wire.client.send_headers(1, list(headers.items()))
        wire.client.send_data(1, REQUEST, end_stream=True)
        wire.said(wire.client.data_to_send())
        found = []
        while not found:
            await asyncio.sleep(0)
            found = [dict(event.headers) for event in wire.events() if isinstance(event, ResponseReceived)]
        assert (found[0][b":status"], found[0][b"grpc-status"]) == statuses

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
