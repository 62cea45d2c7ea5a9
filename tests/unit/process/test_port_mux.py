"""Both protocols on one port of a whole node."""

import asyncio
from contextlib import asynccontextmanager

import pytest

import sarit.client.aio as aio
from sarit.env.real import real_env
from sarit.process.port_mux import feed
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from sarit.wire import commands as wire
from sarit.wire.limits import SMALL_RECEIVE_WINDOW_BYTES
from tests.limits import HANG_SECONDS
from tests.unit.store.server.test_connection import Client

SILENT = 4


@asynccontextmanager
async def serving(directory):
    config = NodeConfig(
        str(directory), controller_port=0, store_port=0, containers=1, one_port=True, max_api_connections=SILENT
    )
    node = await open_node(config.validated(), real_env())
    await node.start()
    yield node.controller_port
    await node.stop()


async def to(port) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port))


def test_clients_use_both(tmp_path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as port, await aio.connect(f"127.0.0.1:{port}") as client:
            await client.create_scope("s")
            await client.create_stream("s/t")
            async with client.writer("s/t") as writer:
                writer.write_many([b"x" * 1000] * 100)
            assert await client.reader("s/t", end="tail").read_events() == [b"x" * 1000] * 100

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))


def test_silent_connections_are_bounded(tmp_path, caplog) -> None:
    async def main() -> None:
        async with serving(tmp_path) as port:
            silent = [await to(port) for _ in range(SILENT)]
            one_more = await to(port)  # accepted in the order they came
            assert await one_more.ask(wire.Hello(17, 5)) == wire.Hello(17, 5)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await silent[0].reply()
            # The next one needs no place of theirs: the one before has spoken.
            silent.append(await to(port))
            for one in silent[1:]:
                assert await one.ask(wire.Hello(17, 5)) == wire.Hello(17, 5)
            for one in (*silent, one_more):
                one.writer.transport.abort()

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    (line,) = [record.getMessage() for record in caplog.records if "have sent nothing" in record.getMessage()]
    assert line == (
        f"{SILENT} connections have sent nothing, which is the limit: the oldest of 127.0.0.1, which has most, give "
        "way to new ones"
    )


def test_a_first_packet_that_breaks_the_protocol_ends_its_connection_alone(tmp_path):
    """Bytes after a frame that nobody reads filled the buffer: the node received into an empty buffer for ever."""

    async def main() -> None:
        async with serving(tmp_path) as port:
            good = await to(port)
            assert await good.ask(wire.Hello(17, 5)) == wire.Hello(17, 5)
            for size in (16, SMALL_RECEIVE_WINDOW_BYTES, SMALL_RECEIVE_WINDOW_BYTES + 1, 100_000):
                bad = await to(port)
                bad.writer.write(b"\xff" * size)
                await bad.closed()
            assert await good.ask(wire.KeepAlive()) == wire.KeepAlive()
            good.writer.transport.abort()

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))


def test_bytes_after_a_protocol_error_are_ignored():
    class Breaks(asyncio.BufferedProtocol):
        def get_buffer(self, sizehint):
            return memoryview(bytearray(1))

        def buffer_updated(self, nbytes):
            taken.append(nbytes)
            transport.closing = len(taken) == 3

    class Transport:
        closing = False

        def is_closing(self):
            return self.closing

    taken, transport = [], Transport()
    feed(Breaks(), transport, b"12345")
    assert taken == [1, 1, 1]


def test_silent_connection_is_closed_after_first_byte_timeout(tmp_path, monkeypatch):
    monkeypatch.setattr("sarit.process.port_mux.GRPC_FIRST_BYTES_SECONDS", 0.05)

    async def main() -> None:
        async with serving(tmp_path) as port:
            silent = [await to(port) for _ in range(SILENT)]
            for one in silent:
                with pytest.raises(ConnectionError):
                    await one.reply()
            one_more = await to(port)
            assert await one_more.ask(wire.Hello(17, 5)) == wire.Hello(17, 5)
            one_more.writer.transport.abort()

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
