"""2,000 connections at once, some of which misbehave: the rest are served, memory is bounded, the log is short."""

import asyncio
import resource
from pathlib import Path

import pytest

from sarit.wire import commands as wire
from tests.unit.store.server.test_connection import SEGMENT, append_end, ready, run, serving

CONNECTIONS = 2000
SLOW = 100
HALF = 100
GARBAGE = 50
READ_BYTES = 1_000_000
SERVED_SECONDS = 120  # only a stall takes that long, however busy the machine is
GROWTH_BYTES = 400 << 20  # about 1.5 MB for each that takes no replies


@pytest.fixture(autouse=True)
def descriptors():
    """Allow two for each connection: both ends are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS + 200
    if hard not in (resource.RLIM_INFINITY,) and hard < wanted:
        pytest.skip(f"needs {wanted} descriptors, {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def serve_on(writer, reader, first):
    """Write and read 20 events; how long the slowest took, in seconds."""
    loop, slowest = asyncio.get_running_loop(), 0.0
    for number in range(first, first + 20):
        begun = loop.time()
        writer.send(append_end(b"x" * 100, 1, number))
        assert (await writer.reply(20)).event_number == number
        read = await reader.ask(wire.ReadSegment(SEGMENT, 0, 100, "", number))
        assert read.request_id == number
        slowest = max(slowest, loop.time() - begun)
    return slowest


def test_two_thousand_connections_are_served_while_some_misbehave(caplog):
    async def main():
        async with serving() as server:
            good = await ready(server)
            reader = await server.client()
            for number in range(1, 9):
                good.send(append_end(b"x" * READ_BYTES, 1, number))
            for _ in range(8):
                await good.reply()
            clients = await asyncio.gather(*(server.client() for _ in range(CONNECTIONS - 2)))
            assert len(server.server._connections) == CONNECTIONS
            before = resident_bytes()
            slow, half, garbage = (
                clients[:SLOW],
                clients[SLOW : SLOW + HALF],
                clients[-GARBAGE:],
            )
            quiet = clients[SLOW + HALF : -GARBAGE]
            for one in slow:
                one.reader._transport.pause_reading()
                one.send(*(wire.ReadSegment(SEGMENT, 0, READ_BYTES, "", request) for request in range(50)))
            for one in half:
                one.send(append_end(b"x" * 100_000, 1, 1)[:60_000])
            for one in garbage:
                one.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await serve_on(good, reader, 9) < SERVED_SECONDS
            assert resident_bytes() - before < GROWTH_BYTES
            replies = await asyncio.gather(*(one.ask(wire.KeepAlive()) for one in quiet))
            assert replies == [wire.KeepAlive()] * len(quiet)
            now = asyncio.get_running_loop().time()  # the clock of the server, whose reaper runs on its timer, too
            server.server.reap(now)
            await asyncio.sleep(0.1)
            server.server.reap(now + 61)
            while len(server.server._connections) > CONNECTIONS - SLOW - HALF - GARBAGE:
                await asyncio.sleep(0.01)
            assert len(server.server._connections) == CONNECTIONS - SLOW - HALF - GARBAGE
            assert await serve_on(good, reader, 29) < SERVED_SECONDS
            for one in clients:
                one.writer.transport.abort()
        lines = [r.getMessage() for r in caplog.records if r.name.startswith("sarit.store")]
        assert len(lines) == SLOW + HALF + GARBAGE
        for words, count in (
            ("did not take", SLOW),
            ("of a frame and stalled", HALF),
            ("broke the protocol", GARBAGE),
        ):
            assert sum(words in line for line in lines) == count

    run(main())
