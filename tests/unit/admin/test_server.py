"""The HTTP port, over real sockets."""

import asyncio
import json
import logging
from contextlib import suppress

import pytest
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from sarit.admin import server as server_module
from sarit.admin.server import AdminServer
from tests.limits import HANG_SECONDS


async def hello(request):
    return PlainTextResponse("hello")


async def length(request):
    return PlainTextResponse(str(len(await request.body())))


async def stuck(request):
    await asyncio.Event().wait()


async def endless(request):
    async def parts():
        yield b"begun"
        await asyncio.Event().wait()

    return StreamingResponse(parts())


ROUTES = [
    Route("/hello", hello),
    Route("/length", length, methods=["POST"]),
    Route("/stuck", stuck),
    Route("/endless", endless),
]


async def ask(port, head, body=b""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
    try:
        return (await reader.read()).decode()
    finally:
        writer.close()


def get(path):
    return f"GET {path} HTTP/1.1\nHost: x\nConnection: close"


def run(test, **options):
    async def main():
        server = AdminServer(ROUTES, **options)
        await server.start("127.0.0.1", 0)
        try:
            await test(server)
        finally:
            await server.stop()
        assert server.port > 0

    asyncio.run(main())


async def _ended(reader) -> bool:
    """Whether the port closes a connection."""
    with suppress(ConnectionResetError):
        return await asyncio.wait_for(reader.read(), HANG_SECONDS) == b""
    return True


def test_route_is_answered_with_a_date():
    async def test(server):
        answer = await ask(server.port, get("/hello"))
        assert answer.startswith("HTTP/1.1 200 OK\r\n")
        assert "\r\ndate: " in answer
        assert answer.endswith("\r\n\r\nhello")

    run(test)


def test_unknown_path_is_answered_503_until_all_routes_are_there_then_404():
    async def test(server):
        assert (await ask(server.port, get("/late"))).startswith("HTTP/1.1 503 ")
        server.complete = True
        answer = await ask(server.port, get("/late"))
        assert answer.startswith("HTTP/1.1 404 ")
        assert json.loads(answer.partition("\r\n\r\n")[2]) == {"error": "there is nothing at /late"}
        server.add([Route("/late", hello)])
        assert (await ask(server.port, get("/late"))).endswith("hello")

    run(test)


def test_large_body_is_refused_and_a_body_at_the_bound_is_taken(monkeypatch):
    monkeypatch.setattr(server_module, "MAX_HTTP_BODY_BYTES", 200_000)

    async def test(server):
        head = "POST /length HTTP/1.1\nHost: x\nConnection: close\nContent-Length: "
        assert (await ask(server.port, f"{head}200000", bytes(200_000))).endswith("200000")
        assert (await ask(server.port, f"{head}200001", bytes(200_001))).startswith("HTTP/1.1 413 ")

    run(test)


def test_request_without_an_answer_is_ended(monkeypatch):
    monkeypatch.setattr(server_module, "HTTP_REQUEST_SECONDS", 0.1)

    async def test(server):
        answer = await ask(server.port, get("/stuck"))
        assert answer.startswith("HTTP/1.1 503 ")
        assert "no answer within 0.1 s" in answer
        # A body that does not come is bounded by the same time.
        head = "POST /length HTTP/1.1\nHost: x\nContent-Length: 10"
        assert (await ask(server.port, head, b"12345")).startswith("HTTP/1.1 503 ")

    run(test)


@pytest.mark.parametrize("requests_before", [0, 1])
def test_connection_that_begins_no_request_is_closed_and_a_stream_is_not(monkeypatch, requests_before):
    # The first request has a time of its own; the other bound is out of reach.
    bounds = {"HTTP_FIRST_REQUEST_SECONDS": 0.2 if requests_before == 0 else 0.5, "HTTP_IDLE_SECONDS": 0.2}
    for name, seconds in bounds.items():
        monkeypatch.setattr(server_module, name, seconds if requests_before or "FIRST" in name else 1000)

    async def test(server):
        streaming, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(get("/endless").replace("\n", "\r\n").encode() + b"\r\n\r\n")
        await streaming.readuntil(b"begun")
        reader, other = await asyncio.open_connection("127.0.0.1", server.port)
        for _ in range(requests_before):
            other.write(b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await reader.readuntil(b"hello")
        other.write(b"GET /hel")
        assert await _ended(reader)
        other.close()
        assert not streaming.at_eof()
        writer.close()

    run(test)


def test_idle_connection_gives_way_to_a_new_one_at_the_bound(caplog):
    async def test(server):
        idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
        # The one that was first, and not the one that asks.
        assert (await ask(server.port, get("/hello"))).endswith("hello")
        assert await _ended(idle[0][0])
        assert not idle[1][0].at_eof()
        for _, writer in idle:
            writer.close()

    run(test, max_connections=2)
    assert "2 HTTP connections are open, which is the limit" in caplog.text


def test_connection_of_the_host_with_most_idle_ones_gives_way(monkeypatch):
    ended = []

    class Waiting:
        def __init__(self, host, number):
            self.host, self.client, self.probes_only = host, (host, number), False

        def abort(self):
            ended.append(self.client)
            server.closed(self)

    server = AdminServer(ROUTES, max_connections=4)
    for host, number in (("kubelet", 1), ("attacker", 1), ("attacker", 2), ("attacker", 3), ("prometheus", 1)):
        assert server.open(Waiting(host, number))
    assert server.open(Waiting("attacker", 4))
    assert ended == [("attacker", 1), ("attacker", 2)]


def test_probes_are_answered_while_every_connection_has_a_request_under_way(monkeypatch):
    monkeypatch.setattr(server_module, "HTTP_RESERVED_CONNECTIONS", 1)

    async def test(server):
        server.add([Route("/livez", hello), Route("/readyz", hello)])
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(get("/endless").replace("\n", "\r\n").encode() + b"\r\n\r\n")
        await reader.readuntil(b"begun")
        for probe in ("/livez", "/readyz", "/livez"):
            answer = await ask(server.port, get(probe).replace("\nConnection: close", ""))
            assert answer.endswith("hello")
            assert "connection: close" in answer
        assert (await ask(server.port, get("/hello"))).startswith("HTTP/1.1 503 ")
        writer.close()

    run(test, max_connections=1)


@pytest.mark.parametrize(
    "head",
    [
        "POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        "POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\n12345",
        "POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\n12345",
        "POST /length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "GET /hello HTTP/1.1\nHost: x\n\n",
        "GET /hello HTTP/1.1\r\nHost: x\nMore: y\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: x\rMore: y\r\n\r\n",
        f"GET /hello HTTP/1.1\r\nHost: x\r\nMore: {'*' * 40_000}\r\n\r\n",
    ],
)
def test_head_that_two_readers_could_understand_differently_is_refused(head):
    async def test(server):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        # A whole request before it, which passes.
        writer.write(b"POST /length HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\n\r\nabc")
        await reader.readuntil(b"\r\n\r\n3")
        writer.write(head.encode())
        answer = await asyncio.wait_for(reader.read(), HANG_SECONDS)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1 ") == 1
        writer.close()

    run(test)


def test_chunked_request_is_the_last_one_of_its_connection():
    async def test(server):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = b"POST /length HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head + b"3\r\nabc\r\n0\r\n\r\nGET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), HANG_SECONDS)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert answer.endswith(b"\r\n\r\n3")
        writer.close()

    run(test)


@pytest.mark.parametrize(
    ("host", "path", "status"),
    [
        ("attacker.example", "/hello", 421), ("attacker.example:9091", "/unknown", 421),
        ("attacker.example", "/livez", 404), ("attacker.example", "/readyz", 404),
        ("127.0.0.1:9091", "/hello", 200), ("[::1]", "/hello", 200), ("localhost", "/hello", 200),
        ("SARIT.example.:80", "/hello", 200), ("sarit.example.attacker.example", "/hello", 421),
    ],
)  # fmt: skip
def test_name_that_an_attacker_may_resolve_to_this_machine_is_refused(host, path, status):
    async def test(server):
        server.complete = True
        answer = await ask(server.port, get(path).replace("Host: x", f"Host: {host}"))
        assert answer.startswith(f"HTTP/1.1 {status} ")
        if status == 421:
            assert "--http-name" in answer

    run(test, names=frozenset({"sarit.example"}))


def test_stop_ends_streams_without_a_word_in_the_log(caplog):
    caplog.set_level(logging.INFO)

    async def test(server):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(get("/endless").replace("\n", "\r\n").encode() + b"\r\n\r\n")
        await reader.readuntil(b"begun")
        other, another = await asyncio.open_connection("127.0.0.1", server.port)
        another.write(get("/stuck").replace("\n", "\r\n").encode() + b"\r\n\r\n")
        await asyncio.sleep(0)
        await server.stop()
        assert not server._tasks
        writer.close()
        another.close()

    run(test)
    assert caplog.text == ""


def test_bytes_that_are_no_http_and_long_heads_get_a_400_and_one_line_in_the_log(caplog):
    async def test(server):
        # Their ends do not come: what is there already is too much.
        for head in ("\x00\x01 nonsense\r\n", f"GET / HTTP/1.1\r\nMore: {'*' * 40_000}", f"GET /{'x' * 40_000}"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(head.encode())
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()
        few = "\n".join(f"More-{n}: {'*' * 100}" for n in range(100))
        assert (await ask(server.port, f"{get('/hello')}\n{few}")).endswith("hello")

    run(test)
    assert caplog.messages == [
        "an HTTP connection from 127.0.0.1 was closed: it sent no HTTP, or a head of more than 32768 bytes"
    ]


def test_request_that_comes_a_byte_at_a_time_is_ended(monkeypatch, caplog):
    monkeypatch.setattr(server_module, "HTTP_FIRST_REQUEST_SECONDS", 0.2)

    async def test(server):
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            ended = asyncio.ensure_future(reader.read())
            for byte in f"{get('/hello')}\nMore: {'*' * 5000}".encode():
                writer.write(bytes((byte,)))
                await asyncio.wait([ended], timeout=0.02)
                if ended.done():
                    break
            with suppress(ConnectionResetError):
                assert await asyncio.wait_for(ended, 0) == b""
            writer.close()

    run(test)
    assert caplog.messages == [
        "an HTTP connection from 127.0.0.1 was closed: it sent a part of a request, and not the rest in 0.2 s"
    ]
