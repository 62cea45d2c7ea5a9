"""A link under load whose network is cut, and whose both nodes are killed, again and again.

`make prove` makes 100 cuts and 40 kills, the default suite a tenth of that."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from sarit.core.names import StreamName
from sarit.mirror.links import Direction
from tests.limits import FULL, HANG_SECONDS
from tests.mirror.nodes import SCOPE, two_nodes, until_equal

CUTS, KILLS = (100, 40) if FULL else (10, 4)
NAMES = [StreamName(SCOPE, "sensors"), StreamName(SCOPE, "alarms")]
SEED = 46


class Load:
    """Writes numbered events into a stream until it is stopped, through all restarts of its node."""

    def __init__(self, client, name):
        self.written = 0
        self._client = client
        self._name = name
        self._stopped = False

    async def run(self):
        async with self._client.writer(str(self._name)) as writer:
            while not self._stopped:
                for _ in range(20):
                    writer.write(b"%08d" % self.written + b"." * 500, key=str(self.written % 11))
                    self.written += 1
                await writer.flush()
                await asyncio.sleep(0.02)

    def stop(self):
        self._stopped = True


async def check_prefix(edge, core, seen):
    """Check that what the mirrors have now is what the source has there, and not less than before."""
    for name in NAMES:
        mirror = await core.whole(name)
        source = await edge.whole(name)
        if mirror is None or source is None:  # one of them is away
            continue
        assert source.epochs[: len(mirror.epochs)] == mirror.epochs
        for segment, (start, data) in mirror.segments.items():
            assert source.segments[segment][0] == start
            assert source.segments[segment][1].startswith(data)
            assert len(data) >= seen.get((name, segment), 0)
            seen[name, segment] = len(data)


async def numbers(client, name, count):
    """The numbers of all events of a stream, in order."""
    found = []
    async with client.reader(str(name)) as reader:
        while len(found) < count:
            found.append(int(bytes(await asyncio.wait_for(reader.read(), HANG_SECONDS))[:8]))
        with suppress(TimeoutError):
            found.append(await asyncio.wait_for(reader.read(), 1))
    return sorted(found)


def test_mirror_is_the_source_after_many_cuts_and_kills(tmp_path):
    async def main():
        draw, seen = random.Random(SEED), {}
        async with two_nodes(tmp_path) as (edge, core, proxy):
            await edge.client.create_scope(SCOPE)
            await edge.client.create_stream(str(NAMES[0]), segments=2)
            await edge.client.create_stream(str(NAMES[1]))
            proxy.delay_seconds = 0.002
            await edge.link("north", Direction.PUSH, proxy.address, registry=False, tables=False)
            loads = [Load(edge.client, name) for name in NAMES]
            tasks = [asyncio.create_task(load.run()) for load in loads]
            breaks = ["cut"] * CUTS + ["edge", "core"] * (KILLS // 2)
            draw.shuffle(breaks)
            for turn, what in enumerate(breaks):
                await asyncio.sleep(draw.uniform(0.05, 0.6))
                if what == "cut":
                    proxy.cut()
                else:
                    await (edge if what == "edge" else core).restart(killed=True)
                if turn % 10 == 5:
                    await edge.client.stream(str(NAMES[0])).scale(2 + turn % 3)
                    await check_prefix(edge, core, seen)
            for load in loads:
                load.stop()
            await asyncio.gather(*tasks)
            await until_equal(edge, core, NAMES)
            await check_prefix(edge, core, seen)
            for load in loads:
                assert await numbers(core.client, load._name, load.written) == list(range(load.written))
            info = await edge.status("north")
            assert info.status.lost_bytes == 0

    asyncio.run(asyncio.wait_for(main(), 3 * HANG_SECONDS))
