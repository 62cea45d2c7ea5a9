"""Connections to peers that are no store, or a dead one, and the pool."""

import asyncio
import gc
from contextlib import asynccontextmanager

import pytest

from sarit.client.core import connection as module
from sarit.client.core import retry
from sarit.client.core.connection import REQUESTS, ConnectionPool
from sarit.core.errors import Invalid, Unavailable
from sarit.env.real import real_env
from sarit.wire import commands as c
from tests.limits import HANG_SECONDS


@asynccontextmanager
async def peer(answer: bytes, close: bool = False):
    """A server that sends `answer` to each client, then reads on, or closes."""

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
    async with asyncio.timeout(HANG_SECONDS), peer(answer, close) as (connections, address):
        await connections.to(address, REQUESTS)


@pytest.mark.parametrize(
    ("answer", "close", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False, "announces|there is no command"),
        (c.encode(c.SegmentSealed(1, "s")), False, "did not say Hello first"),
        (c.encode(c.Hello(99, 50)), False, "speaks wire versions 50 to 99"),
        (b"", True, "connection was lost"),
        (b"", False, "does not answer"),
    ],
)
def test_connect_to_no_store_raises_unavailable(monkeypatch, answer: bytes, close: bool, message: str) -> None:
    # Only silence is met by a time-out: on a busy machine an answer may take longer than that.
    silent = not answer and not close
    monkeypatch.setattr(module, "CONNECT_TIMEOUT_SECONDS", 0.05 if silent else HANG_SECONDS)
    with pytest.raises(Unavailable, match=message):
        asyncio.run(connect(answer, close))


def test_connect_to_a_closed_port_raises_unavailable() -> None:
    async def go() -> None:
        connections = ConnectionPool(real_env().network)
        with pytest.raises(Unavailable, match="cannot be reached"):
            await connections.to(("127.0.0.1", 1), REQUESTS)
        await connections.close()
        with pytest.raises(Invalid, match="closed"):
            await connections.to(("127.0.0.1", 1), REQUESTS)

    asyncio.run(go())


def test_silent_store_aborts_the_connection(monkeypatch) -> None:
    monkeypatch.setattr(retry, "CLIENT_KEEP_ALIVE_SECONDS", 0.02)

    async def go() -> None:
        async with asyncio.timeout(HANG_SECONDS), peer(c.encode(c.Hello(17, 5))) as (connections, address):
            connection = await connections.to(address, REQUESTS)
            assert await connections.to(address, REQUESTS) is connection
            with pytest.raises(Unavailable, match="no keep-alive"):
                await connection.ask(lambda i: c.GetStreamSegmentInfo(i, "s/t/0", ""))
            assert connection.closed
            with pytest.raises(Unavailable):
                connection.expect(object())
            assert await connections.to(address, REQUESTS) is not connection

    asyncio.run(go())


def test_send_after_a_reset_writes_nothing(caplog) -> None:
    """The transport sees a reset with a write, its protocol a turn later: asyncio logs warnings in between."""

    async def main() -> None:
        async with asyncio.timeout(HANG_SECONDS), peer(c.encode(c.Hello(17, 5))) as (connections, address):
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


def test_connect_that_fails_without_waiters_logs_nothing() -> None:
    """All waiters had been cancelled: the loop logged an exception that was never retrieved."""
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


def test_cancelled_waiter_leaves_the_connection_to_others() -> None:
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


def test_pool_close_fails_waiters_with_invalid() -> None:
    """The waiter was cancelled, though no caller had cancelled it: a task ended without an error."""

    async def main() -> None:
        connections = ConnectionPool(GatedNetwork())
        waiting = asyncio.ensure_future(connections.to(("store", 1), REQUESTS))
        await asyncio.sleep(0)
        await connections.close()
        with pytest.raises(Invalid, match="closed"):
            await waiting

    asyncio.run(main())


def test_end_of_stream_aborts_the_connection_with_data_unsent() -> None:
    """Waiters failed only after half a minute: the unsent rest found no space in the socket."""

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
        async with asyncio.timeout(HANG_SECONDS):
            await main()

    asyncio.run(bounded())
