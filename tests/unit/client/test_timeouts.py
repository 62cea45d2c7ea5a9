"""`read(timeout=)` of every reader, on both clients: what comes; nothing in time; nothing more."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

import sarit
from sarit import aio
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode
from tests.unit.client.away_cases import wait

SHORT = 0.2
NOTHING = {"events": None, "batch": None, "group": None, "bytes": b""}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("timeouts") / "node") as running:
        with sarit.connect(running.controller) as client:
            client.create_scope("s")
        yield running


async def opened(client, kind: str, stream: str):
    if kind == "events":
        return client.reader(stream)
    if kind == "bytes":
        return client.byte_reader(stream)
    if kind == "batch":
        return await wait(client.stream(stream).batch())
    group = await wait(client.reader_groups.create(f"{stream}-group", stream, automatic_checkpoint=None))
    return await wait(group.reader("r"))


def shown(found: object) -> object:
    return found.event if isinstance(found, sarit.GroupEvent) else found


async def use(client, kind: str) -> None:
    stream = f"s/{kind}-{next(_numbers)}"
    await wait(client.create_stream(stream))
    writer = client.byte_writer(stream) if kind == "bytes" else client.writer(stream)
    for text in (b"one", b"two"):
        writer.write(text)
    await wait(writer.close())
    reader = await opened(client, kind, stream)
    found: list = []
    while sum(map(len, found)) < 6:
        found.append(shown(await wait(reader.read(timeout=60))))
    assert b"".join(found) == b"onetwo"
    assert found == [b"one", b"two"] or kind == "bytes"
    assert not reader.at_end
    if kind != "batch":  # of which the end is known
        began = time.monotonic()
        assert await wait(reader.read(timeout=SHORT)) == NOTHING[kind]
        assert time.monotonic() - began >= 0.9 * SHORT
        assert await wait(reader.read(timeout=0)) == NOTHING[kind]
        assert not reader.at_end
        await wait(client.seal_stream(stream))
    assert await wait(reader.read()) == NOTHING[kind]
    assert reader.at_end
    assert await wait(reader.read(SHORT) if kind != "bytes" else reader.read(10, SHORT)) == NOTHING[kind]


@pytest.mark.parametrize("kind", NOTHING)
def test_read_of_the_asyncio_client_returns_what_comes_in_time(node, kind) -> None:
    async def go() -> None:
        async with aio.connect(node.controller) as client:
            await use(client, kind)

    asyncio.run(go())


@pytest.mark.parametrize("kind", NOTHING)
def test_read_of_the_blocking_client_returns_what_comes_in_time(node, kind) -> None:
    with sarit.connect(node.controller) as client:
        work = use(client, kind)
        with pytest.raises(StopIteration):  # it never waits
            work.send(None)


@pytest.mark.parametrize("kind", NOTHING)
def test_cancelled_read_loses_no_event(node, kind) -> None:
    """Nor does each begin again: a reader that was not open never came to its first event."""

    async def go() -> None:
        async with aio.connect(node.controller) as client, asyncio.timeout(HANG_SECONDS):
            stream = f"s/cancelled-{kind}"
            await client.create_stream(stream)
            writer = client.byte_writer(stream) if kind == "bytes" else client.writer(stream)
            for number in range(100):
                writer.write(b"%02d" % number)
            await writer.close()
            reader, found = await opened(client, kind, stream), b""
            while len(found) < 200:
                try:
                    async with asyncio.timeout(0.0005):
                        found += shown(await reader.read()) or b""
                except TimeoutError:
                    continue
            assert found == b"".join(b"%02d" % number for number in range(100))

    asyncio.run(go())


def test_read_continues_where_the_other_methods_stop(node) -> None:
    with sarit.connect(node.controller) as client:
        client.create_stream("s/mixed")
        with client.writer("s/mixed") as writer:
            writer.write_many([f"{number}" for number in range(10)], ["k"] * 10)
        reader = client.reader("s/mixed", end="tail")
        assert reader.read() == b"0"
        assert reader.read_events(2) == [b"1", b"2"]
        assert reader.read() == b"3"
        assert reader.read_arrow(2).column(0).to_pylist() == [b"4", b"5"]
        assert reader.read() == b"6"
        assert list(reader) == [b"7", b"8", b"9"]
        assert reader.read() is None
        assert reader.at_end


def test_reader_closed_while_it_opens_raises_and_fetches_nothing(node) -> None:
    async def go() -> None:
        async with aio.connect(node.controller) as client:
            await client.create_stream("s/closing")
            reader = client.reader("s/closing")
            reading = asyncio.ensure_future(reader.read())
            await asyncio.sleep(0)
            reader.close()
            with pytest.raises(sarit.Invalid, match="is closed"):
                await reading
            assert "0 segments" in repr(reader)

    asyncio.run(go())
