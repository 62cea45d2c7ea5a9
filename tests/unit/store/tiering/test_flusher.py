"""When the flusher evaluates whether a checkpoint is due."""

import asyncio
from dataclasses import replace

from sarit.store.tiering.checkpoint import FlushLimits
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import SMALL, World

RARELY = FlushLimits(interval_seconds=1000.0)


def test_wake_during_an_idle_cycle_starts_an_evaluation_at_once(monkeypatch):
    async def main():
        world = World(limits=replace(SMALL, containers=1, flush=RARELY))
        store = await world.start()
        (hosted,) = store.opened()
        flusher = hosted.flusher
        evaluate, idles, twice = flusher._seconds_until_due, [], asyncio.Event()

        def evaluated(began, idle):
            idles.append(idle)
            if idles[-2:] == [True, False]:  # after the idle cycle, and again for the wake that came during it
                twice.set()
            return 0.0 if len(idles) == 1 else evaluate(began, idle)

        async def nothing_to_do():
            flusher.wake()  # bytes that were in flight have been applied
            return False

        monkeypatch.setattr(flusher, "_seconds_until_due", evaluated)
        monkeypatch.setattr(flusher, "checkpoint", nothing_to_do)
        flusher.wake()
        await asyncio.wait_for(twice.wait(), HANG_SECONDS)
        monkeypatch.undo()
        await store.stop()

    asyncio.run(main())
