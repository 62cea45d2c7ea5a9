"""What a checkpoint wrote is no longer held by the flusher; the cache alone decides what stays in memory."""

import asyncio
import gc
import weakref
from dataclasses import replace

from sarit.store.flusher import FlushLimits
from sarit.wire.append import Append
from tests.unit.store.harness import SMALL, World, Writer

SEGMENT = "s/t/0.#epoch.0"


class Part(bytearray):
    """Bytes that can be seen to go."""


def test_bytes_that_a_checkpoint_has_written_leave_memory():
    async def main():
        world = World(replace(SMALL, containers=1, cache_bytes=0, flush=FlushLimits(interval_seconds=1000)))
        store = await world.start()
        await store.container(SEGMENT).create(SEGMENT)
        writer = Writer(store, SEGMENT)
        await writer.set_up()
        part = Part(b"x" * 100_000)
        writer.session.append(Append(writer.writer, [part], len(part), 1, 1, 0))
        await writer.settled()
        held = weakref.ref(part)
        del part
        assert held() is not None
        await store.opened()[0].flusher.checkpoint()
        gc.collect()
        still_held = held() is not None
        assert not still_held

    asyncio.run(main())
