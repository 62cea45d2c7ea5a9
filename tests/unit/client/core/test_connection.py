"""Connections to what is no store, or a dead one."""

import asyncio
import gc
from contextlib import asynccontextmanager

import pytest

from sarit.client.core import connection as module
from sarit.client.core.connection import REQUESTS, ConnectionPool
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
    connections = ConnectionPool(real_env().network)
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
    monkeypatch.setattr(module, "CONNECT_TIMEOUT_SECONDS", 0.2)
    with pytest.raises(Unavailable, match=message):
        asyncio.run(connect(answer, close))


def test_a_port_nobody_listens_on() -> None:
    async def go() -> None:
        connections = ConnectionPool(real_env().network)
        with pytest.raises(Unavailable, match="cannot be reached"):
            await connections.to(("127.0.0.1", 1), REQUESTS)
        await connections.close()
        with pytest.raises(Invalid, match="closed"):
            await connections.to(("127.0.0.1", 1), REQUESTS)

    asyncio.run(go())


def test_a_store_that_gives_no_sign_of_life_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr(module, "CLIENT_KEEP_ALIVE_SECONDS", 0.02)

    async def go() -> None:
        async with asyncio.timeout(10), peer(c.encode(c.Hello(17, 5))) as (connections, address):
            connection = await connections.to(address, REQUESTS)
            assert await connections.to(address, REQUESTS) is connection
            with pytest.raises(Unavailable, match="no keep-alive"):
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


class GatedNetwork:
    """Connecting waits for the test, and fails."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def connect(self, factory, host, port):
        await self.gate.wait()
        raise ConnectionRefusedError("nobody is there")


def test_a_connection_that_fails_when_nobody_waits_any_more_is_no_complaint() -> None:
    """All who waited had been cancelled: the loop told of an exception that was never retrieved."""
    complaints = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        network = GatedNetwork()
        connections = ConnectionPool(network)
        waiting = [asyncio.ensure_future(connections.to(("store", 1), REQUESTS)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        network.gate.set()
        (connecting,) = connections._open.values()
        await asyncio.wait((connecting,))
        del connections, connecting, waiting, task
        gc.collect()

    asyncio.run(main())
    assert not complaints


def test_one_who_gives_up_a_connection_does_not_take_it_from_the_others() -> None:
    async def main() -> None:
        network = GatedNetwork()
        connections = ConnectionPool(network)
        first, second = (asyncio.ensure_future(connections.to(("store", 1), REQUESTS)) for _ in range(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait((first,))
        assert first.cancelled()
        network.gate.set()
        with pytest.raises(Unavailable, match="nobody is there"):
            await second
        await connections.close()

    asyncio.run(main())


def test_who_waits_for_a_connection_of_a_client_that_is_closed_is_told() -> None:
    """It was cancelled, though nobody had cancelled it: a task that follows a state ended without a word."""

    async def main() -> None:
        connections = ConnectionPool(GatedNetwork())
        waiting = asyncio.ensure_future(connections.to(("store", 1), REQUESTS))
        await asyncio.sleep(0)
        await connections.close()
        with pytest.raises(Invalid, match="closed"):
            await waiting

    asyncio.run(main())


def test_a_store_that_closes_ends_the_connection_whatever_is_still_to_be_sent() -> None:
    """Who waited was told only when the silence had lasted half a minute: the rest of it found no room."""

    async def main() -> None:
        hung_up = asyncio.Event()

        async def serve(reader, writer) -> None:
            writer.write(c.encode(c.Hello(17, 5)))
            writer.write_eof()  # and it reads no more
            await hung_up.wait()
            writer.transport.abort()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1000)
        connections = ConnectionPool(real_env().network)
        try:
            connection = await connections.to(server.sockets[0].getsockname()[:2], REQUESTS)
            connection.send([bytes(64 << 20)])
            with pytest.raises(Unavailable, match="closed by the store"):
                await connection.ask(lambda i: c.GetStreamSegmentInfo(i, "s/t/0", ""))
        finally:
            hung_up.set()
            await connections.close()
            server.close()

    async def bounded() -> None:
        async with asyncio.timeout(5):
            await main()

    asyncio.run(bounded())
