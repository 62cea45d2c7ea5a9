"""Random, changed and cut-off bytes on the store's port of a real node: each client that sends them causes at
most one log line, nothing of them is stored, and other clients are served."""

from __future__ import annotations

import asyncio
import random
import struct
import sys
from pathlib import Path

import pytest

from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.wire import commands as wire
from sarit.wire.limits import NO_VERSION
from tests.faults.many_connections import RegularClient, bare, ends, many, more_descriptors, reset
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode
from tests.unit.store.server.test_connection import append_end, raw

SEED = 20
ALL_LINES = Path(__file__).with_name("node_with_all_lines.py")
CLIENTS = 150
GROWTH_BYTES = 150 << 20
WRITER = b"w" * 16
WILD = "wild/bytes/0.#epoch.0"
TABLE = "wild/table_kvtable/0.#epoch.0"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    command = (sys.executable, str(ALL_LINES))
    with RunningNode(tmp_path_factory.mktemp("wild") / "data", "--containers", "2", sarit=command) as running:
        yield running


def good_frames() -> list[bytes]:
    """One of each kind that a client sends, on names of their own."""
    entries = (wire.TableEntry(b"key", NO_VERSION, b"value" * 20),)
    commands = [
        wire.Hello(17, 5),
        wire.CreateSegment(1, WILD, 0, 0, "", 0),
        wire.SetupAppend(2, WRITER, WILD, ""),
        append_end(b"event" * 20, 5, 5),
        raw(3, WRITER + b"block" * 30),
        raw(4, WRITER + struct.pack(">ii", 150, 0) + struct.pack(">iqq", 30, 40, 6)),
        wire.ConditionalAppend(WRITER, 50, 250, b"conditional", 7),
        wire.ReadSegment(WILD, 0, 1000, "", 8),
        wire.GetStreamSegmentInfo(9, WILD, ""),
        wire.CreateTableSegment(10, TABLE, ""),
        wire.UpdateTableEntries(11, TABLE, "", entries),
        wire.ReadTable(12, TABLE, "", (wire.TableKey(b"key", NO_VERSION),)),
        wire.ReadTableKeys(13, TABLE, "", 10, wire.IteratorArgs()),
        wire.ReadTableEntriesDelta(14, TABLE, "", 0, 10),
        wire.GetSegmentAttribute(15, WILD, b"a" * 16, ""),
        wire.UpdateSegmentAttribute(16, WILD, b"a" * 16, 5, NULL_ATTRIBUTE_VALUE, ""),
        wire.CreateTransientSegment(17, WRITER, WILD, ""),
        wire.LocateOffset(18, WILD, 100, ""),
        wire.MergeSegmentsBatch(19, WILD, ("wild/bytes/9.#epoch.0",), ""),
        wire.TruncateSegment(20, WILD, 0, ""),
        wire.KeepAlive(),
    ]
    return [command if isinstance(command, bytes) else wire.encode(command) for command in commands]


def random_bytes(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((1, 7, 8, 9, 100, 5000)))


def random_frames(rng: random.Random) -> bytes:
    """Known and nearly known types, right and wrong lengths, random content."""
    out = b""
    for _ in range(rng.randint(1, 30)):
        inside = rng.randbytes(rng.choice((0, 4, 16, 40, 300)))
        length = len(inside) if rng.random() < 0.9 else rng.choice((-1, 0, 1 << 24, (1 << 31) - 1, len(inside) + 1))
        out += struct.pack(">ii", rng.choice((rng.randint(-130, 130), 4, 9, 74)), length) + inside
    return out


def changed(rng: random.Random) -> bytes:
    """Good frames with a few changed bytes."""
    data = bytearray(b"".join(rng.sample(good_frames(), rng.randint(1, 21))))
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(data)


def cut_off(rng: random.Random) -> bytes:
    """Good frames in order that stop anywhere."""
    data = b"".join(good_frames())
    return data[: rng.randrange(len(data))]


def oversize(rng: random.Random) -> bytes:
    """A frame with a length above the limit, and much of its content."""
    return struct.pack(">ii", rng.choice((3, 4, 9, 74)), (1 << 24) + rng.randrange(1 << 30)) + bytes(1 << 20)


@pytest.mark.parametrize("kind", [random_bytes, random_frames, changed, cut_off, oversize])
def test_wild_bytes_end_only_their_connection(node, kind) -> None:
    more_descriptors(CLIENTS + 200)
    rng = random.Random(f"{SEED}/{kind.__name__}")
    before = len(node.log())

    async def main() -> None:
        async with RegularClient(node.controller) as regular:
            memory = node.resident_bytes()
            clients = await many(CLIENTS, lambda: bare(node.store, hello=rng.random() < 0.7))
            for client in clients:
                client.writer.write(kind(rng))
            await regular.served_again()
            for client in clients:
                if rng.random() < 0.5 and client.writer.can_write_eof():
                    client.writer.write_eof()
                else:
                    reset(client)
            await asyncio.gather(*(ends(client) for client in clients))
            await regular.served_again()
            assert node.resident_bytes() - memory < GROWTH_BYTES

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    said = node.log()[before:]
    assert said.count("\n") <= CLIENTS
    assert " ERROR " not in said
    assert "Traceback" not in said


def test_client_lost_in_middle_of_block_leaves_no_part_of_it(node) -> None:
    before = len(node.log())
    event = struct.pack(">ii", 0, 4) + b"half"
    whole = raw(3, WRITER + event) + raw(4, WRITER + struct.pack(">ii", 12, 0) + struct.pack(">iqq", 1, 9, 6))
    cuts = range(1, len(whole), 7)

    async def main() -> None:
        async with RegularClient(node.controller, "good/half") as regular:
            segment = regular.segment
            for cut in cuts:
                client = await bare(node.store)
                setup = await client.ask(wire.SetupAppend(2, WRITER, segment, ""))
                assert setup.last_event_number == NULL_ATTRIBUTE_VALUE, cut
                client.send(whole[:cut])
                client.writer.close()
            while node.log()[before:].count("ended inside a frame or block") < len(cuts):
                await asyncio.sleep(0.05)
            client = await bare(node.store)
            setup = await client.ask(wire.SetupAppend(2, WRITER, segment, ""))
            assert setup.last_event_number == NULL_ATTRIBUTE_VALUE
            client.send(whole)
            assert (await client.reply()).event_number == 9
            client.writer.close()
            await regular.served_again()
            stored = [event async for event in regular.client.reader("good/half", end="tail")]
            assert stored.count(b"half") == 1
            assert all(event == b"half" or event.startswith(b"round") for event in stored)

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert "Traceback" not in node.log()[before:]
