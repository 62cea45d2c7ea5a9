"""The acts whose way through the code is measured, on a node and clients in this process.

Client, wire and node count alike: they are one way for who follows it.  A recording ends when the act has its result;
what the node does afterwards (flushing to long-term storage) is no part of it.

- write: `write(event)` without a key and `flush()`, on an open writer of a stream of several segments.
- tail read: from `write(event)` by the open writer of another client until a reader, which waits at the tail, hands the
  event out.  The write is a part of it, up to the moment when the event is handed out.
- scale: `scale(2)` of a stream of one segment, while a reader waits at its tail and goes on to the new segments.
- scale alone: the same, of a stream that nobody reads.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import count
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import uvloop

from sarit.client.aio import Client, connect
from sarit.env.real import real_env
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from tools.crossings import Recorder, Way, quietest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    Once = Callable[[], Awaitable[Way]]  # do the act once, prepare it unheard, and give what was recorded
    Act = Callable[[Client, Client, Recorder], AbstractAsyncContextManager[Once]]

SCOPE: Final = "trace"
SEGMENTS: Final = 4
EVENT: Final = b"an event"
QUIESCENCE_SECONDS: Final = 0.15  # longer than what the node does after an acknowledgement
WARM: Final = 2 * SEGMENTS  # events without a key go to one segment after the other


@asynccontextmanager
async def _write(client: Client, _: Client, recorder: Recorder) -> AsyncIterator[Once]:
    await client.create_stream(SCOPE, "write", SEGMENTS)
    async with client.writer(f"{SCOPE}/write") as writer:

        async def once() -> Way:
            with recorder.record() as way:
                writer.write(EVENT)
                await writer.flush()
            return way

        yield once


@asynccontextmanager
async def _tail_read(client: Client, other: Client, recorder: Recorder) -> AsyncIterator[Once]:
    await client.create_stream(SCOPE, "read", SEGMENTS)
    reader = client.reader(f"{SCOPE}/read", "tail")
    events = aiter(reader)
    async with other.writer(f"{SCOPE}/read") as writer:

        async def once() -> Way:
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(QUIESCENCE_SECONDS)
            with recorder.record() as way:
                writer.write(EVENT)
                await waiting
            await writer.flush()
            return way

        yield once
    reader.close()


@asynccontextmanager
async def _scale(client: Client, other: Client, recorder: Recorder) -> AsyncIterator[Once]:
    number = count()

    async def once() -> Way:
        name = f"{SCOPE}/scale-{next(number)}"
        await client.create_stream(name)
        reader = other.reader(name)
        waiting = asyncio.ensure_future(anext(aiter(reader)))
        way = await _scaled(client, name, recorder)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        reader.close()
        return way

    yield once


@asynccontextmanager
async def _scale_alone(client: Client, _: Client, recorder: Recorder) -> AsyncIterator[Once]:
    number = count()

    async def once() -> Way:
        name = f"{SCOPE}/alone-{next(number)}"
        await client.create_stream(name)
        return await _scaled(client, name, recorder)

    yield once


async def _scaled(client: Client, name: str, recorder: Recorder) -> Way:
    stream = client.stream(name)
    await asyncio.sleep(QUIESCENCE_SECONDS)
    with recorder.record() as way:
        await stream.scale(2)
    return way


ACTS: Final[dict[str, Act]] = {
    "write": _write, "tail read": _tail_read, "scale": _scale, "scale alone": _scale_alone,
}  # fmt: skip


async def _measure_all(recorder: Recorder, directory: str, repeats: int) -> dict[str, Way]:
    config = NodeConfig(data_dir=directory, controller_port=0, store_port=0).validated()
    node = await open_node(config, real_env())
    await node.start()
    address = f"{config.host}:{node.controller_port}"
    found = {}
    try:
        async with await connect(address) as client, await connect(address) as other:
            await client.create_scope(SCOPE)
            for name, act in ACTS.items():
                async with act(client, other, recorder) as once:
                    ways = []
                    for _ in range(WARM + repeats):
                        await asyncio.sleep(QUIESCENCE_SECONDS)
                        ways.append(await once())
                    found[name] = quietest(ways[WARM:])
    finally:
        await node.stop()
    return found


def measure(root: Path, repeats: int) -> dict[str, Way]:
    """Each act's quietest way out of so many through the package at `root`, after some that are not counted."""
    recorder = Recorder(root)
    with TemporaryDirectory(prefix="sarit-trace-") as directory, recorder.install():
        return uvloop.run(_measure_all(recorder, directory, repeats))
