"""Connections to what is no store, or a dead one."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sarit.client.link import connection as module
from sarit.client.link.connection import REQUESTS, Connections
from sarit.core.errors import Invalid, Unavailable
from sarit.env.real import real_env
from sarit.wire import commands as c


@asynccontextmanager
async def peer(answer: bytes, close: bool = False):
    """A server that sends `answer` to whoever connects, and reads on, or hangs up."""

    async def serve(reader, writer) -> None:
        writer.write(answer)
        if close:
            writer.close()
        while await reader.read(1000):
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connections = Connections(real_env().network)
    try:
        yield connections, server.sockets[0].getsockname()[:2]
    finally:
        await connections.close()
        server.close()


async def connect(answer: bytes, close: bool = False) -> None:
    async with asyncio.timeout(10), peer(answer, close) as (connections, address):
        await connections.to(address, REQUESTS)


@pytest.mark.parametrize(
    ("answer", "close", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False, "claims|there is no command"),
        (c.encode(c.SegmentSealed(1, "s")), False, "did not say Hello first"),
        (c.encode(c.Hello(99, 50)), False, "speaks wire versions 50 to 99"),
        (b"", True, "connection was lost"),
        (b"", False, "does not answer"),
    ],
)
def test_what_is_no_store_is_told_from_one(monkeypatch, answer: bytes, close: bool, message: str) -> None:
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.2)
    with pytest.raises(Unavailable, match=message):
        asyncio.run(connect(answer, close))


def test_a_port_nobody_listens_on() -> None:
    async def go() -> None:
        connections = Connections(real_env().network)
        with pytest.raises(Unavailable, match="cannot be reached"):
            await connections.to(("127.0.0.1", 1), REQUESTS)
        await connections.close()
        with pytest.raises(Invalid, match="closed"):
            await connections.to(("127.0.0.1", 1), REQUESTS)

    asyncio.run(go())


def test_a_store_that_gives_no_sign_of_life_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr(module, "KEEP_ALIVE_SECONDS", 0.02)

    async def go() -> None:
        async with asyncio.timeout(10), peer(c.encode(c.Hello(17, 5))) as (connections, address):
            connection = await connections.to(address, REQUESTS)
            assert await connections.to(address, REQUESTS) is connection
            with pytest.raises(Unavailable, match="no sign of life"):
                await connection.ask(lambda i: c.GetStreamSegmentInfo(i, "s/t/0", ""))
            assert connection.closed
            with pytest.raises(Unavailable):
                connection.expect(object())
            assert await connections.to(address, REQUESTS) is not connection

    asyncio.run(go())


def test_nothing_is_written_to_a_connection_that_broke(caplog) -> None:
    """The transport learns of a reset with a write, its protocol a turn later: asyncio complains in between."""

    async def main() -> None:
        async with asyncio.timeout(10), peer(c.encode(c.Hello(17, 5))) as (connections, address):
            connection = await connections.to(address, REQUESTS)
            connection._transport._force_close(ConnectionResetError())
            assert not connection.closed
            for _ in range(10):
                connection.send([c.encode(c.KeepAlive())])
            await asyncio.sleep(0)
            assert connection.closed

    asyncio.run(main())
    assert not [record for record in caplog.records if record.name == "asyncio"]
