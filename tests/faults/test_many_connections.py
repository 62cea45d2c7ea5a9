"""Thousands of connections to a real node, some of which misbehave: others are served on, in bounded memory."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection

from sarit.wire import commands as wire
from tests.faults.many_connections import RegularClient, address_of, bare, ends, many, more_descriptors, reset
from tests.nodes import SARIT, RunningNode
from tests.unit.store.server.test_connection import append_end, raw

SHORT_TIMEOUTS = Path(__file__).with_name("node_with_short_timeouts.py")
CONNECTIONS = 2000
NOT_READING = 60
HALF_FRAMES = 60
OPEN_BLOCKS = 10
GARBAGE = 40
UNKNOWN = 40
VANISHED = 40
READ_BYTES = 1_000_000
GROWTH_BYTES = 250 << 20  # 1.5 MB for each connection that does not read; and the store caches written data


def limited(soft: str, hard: str, *command: str) -> tuple[str, ...]:
    return ("prlimit", f"--nofile={soft}:{hard}", *command)


def test_two_thousand_connections_are_served_while_some_misbehave(tmp_path) -> None:
    """The shell limits the node to 1,024 descriptors; it raises its soft limit itself."""
    more_descriptors(CONNECTIONS + 300)
    command = limited("1024", "", sys.executable, str(SHORT_TIMEOUTS))
    with RunningNode(tmp_path / "data", "--containers", "2", sarit=command) as node:
        asyncio.run(asyncio.wait_for(serve_many(node), 800))
    log = node.log()
    for words, count in (
        ("did not take", NOT_READING),
        ("of a frame and stalled", HALF_FRAMES + OPEN_BLOCKS),
        ("broke the protocol", GARBAGE + UNKNOWN),
        ("ended inside", VANISHED),
    ):
        assert log.count(words) == count, (words, log[-3000:])
    assert (
        log.count("sarit.store.server.connection:")
        == NOT_READING + HALF_FRAMES + OPEN_BLOCKS + GARBAGE + UNKNOWN + VANISHED
    )
    assert "Traceback" not in log


async def serve_many(node) -> None:
    async with RegularClient(node.controller) as regular:
        filling = regular.client.writer("good/customer")
        filling.write_many([b"x" * READ_BYTES] * 8)
        await filling.flush()
        everybody = await many(CONNECTIONS, lambda: bare(node.store))
        assert not [one for one in everybody if isinstance(one, BaseException)]
        assert node.descriptors() > CONNECTIONS
        await regular.served_again()
        before = node.resident_bytes()
        parts = iter(everybody)
        take = lambda count: [next(parts) for _ in range(count)]  # noqa: E731
        not_reading, half, blocks, garbage = take(NOT_READING), take(HALF_FRAMES), take(OPEN_BLOCKS), take(GARBAGE)
        unknown, vanished, quiet = take(UNKNOWN), take(VANISHED), list(parts)
        # From within the first large event: the small ones of the regular client may be read by themselves.
        for one in not_reading:
            one.reader._transport.pause_reading()
            reads = (wire.ReadSegment(regular.segment, READ_BYTES // 2, READ_BYTES, "", at) for at in range(50))
            one.send(*reads)
        for one in (*half, *vanished):
            one.send(append_end(b"x" * 100_000, 1, 1)[:60_000])
        for number, one in enumerate(blocks):
            one.send(raw(3, number.to_bytes(16) + b"x" * READ_BYTES))
        for one in garbage:
            one.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        for one in unknown:
            one.send(raw(4711, b"what?"))
        await asyncio.gather(*(ends(one) for one in (*garbage, *unknown)))
        await regular.served_again()
        assert node.resident_bytes() - before < GROWTH_BYTES
        for one in vanished:
            reset(one)
        await asyncio.gather(*(ends(one) for one in (*half, *blocks)))
        while node.log().count("did not take") < NOT_READING:
            await asyncio.sleep(0.1)
        answers = await asyncio.gather(*(one.ask(wire.KeepAlive()) for one in quiet))
        assert answers == [wire.KeepAlive()] * len(quiet)
        await regular.served_again()
        assert node.resident_bytes() - before < GROWTH_BYTES
        for one in everybody:
            one.writer.transport.abort()
        while node.descriptors() > 300:
            await asyncio.sleep(0.05)


def test_connections_beyond_descriptors_are_refused_and_node_retains_its_own(tmp_path) -> None:
    more_descriptors(1000)
    with RunningNode(tmp_path / "data", "--containers", "2", sarit=limited("460", "460", SARIT)) as node:
        asyncio.run(asyncio.wait_for(beyond(node), 800))
    log = node.log()
    assert log.count("only 460 files may be open: 104 connections to the store and 52 to the controller") == 1
    assert log.count("104 connections are open, which is the limit: ") == 1
    assert log.count("it had not logged in when all 52 places were taken") == 1
    assert "ERROR sarit.store:" not in log
    assert "Traceback" not in log


async def beyond(node) -> None:
    async with RegularClient(node.controller) as regular:
        stores = await many(300, lambda: bare(node.store))
        open_ones = [one for one in stores if not isinstance(one, BaseException)]
        # The regular client has two: one to write, one to read.  Each new one took the place of the oldest stranger.
        while (count := sum(not (one.reader.at_eof() or one.reader.exception()) for one in open_ones)) > 104 - 2:
            await asyncio.sleep(0.05)
        assert count == 104 - 2
        apis = await many(200, lambda: api(node.controller))
        # Each new one took the place of the oldest that had not logged in.
        while (open_apis := sum(not reading.done() for reading, _ in apis)) > 52 - 1:
            await asyncio.sleep(0.05)
        assert open_apis == 52 - 1
        # The node can still open its own files: logs, chunks, the index.
        await regular.client.create_scope("more")
        for number in range(5):
            await regular.client.create_stream(f"more/stream-{number}", segments=3)
        writer = regular.client.writer("more/stream-0")
        writer.write_many([b"y" * 50_000] * 400)
        await writer.flush()
        await regular.served_again()
        assert node.descriptors() <= 460
        for writer in (*(one.writer for one in open_ones), *(writer for _, writer in apis)):
            writer.transport.abort()
        while True:  # slots are free again
            (one,) = await many(1, lambda: bare(node.store))
            if not isinstance(one, BaseException):
                break
            await asyncio.sleep(0.05)
        one.writer.transport.abort()


async def api(address: str):
    """A connection to the controller that speaks HTTP/2 and calls nothing: the task that reads until it ends, and its
    writer."""
    reader, writer = await asyncio.open_connection(*address_of(address))
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    writer.write(client.data_to_send())
    with suppress(OSError):  # it has given way already
        await reader.read(1)
    return asyncio.create_task(until_end(reader)), writer


async def until_end(reader):
    """Read: what is not read hides that the connection has ended."""
    with suppress(OSError):
        while await reader.read(1 << 16):
            pass


def test_node_with_too_few_descriptors_reports_it_and_does_not_start(tmp_path) -> None:
    node = RunningNode(tmp_path / "data", sarit=limited("150", "150", SARIT))
    with pytest.raises(AssertionError, match=r"may have 150 open files; a node of 4 containers needs \d+: raise"):
        node.start()
