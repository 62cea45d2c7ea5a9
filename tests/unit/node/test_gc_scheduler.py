"""The timer's garbage collections: each one is short, and all garbage is found eventually."""

import asyncio
import gc
import weakref
from types import SimpleNamespace

import pytest

from sarit.core.limits import GC_INTERVAL_FACTOR, GC_INTERVAL_SECONDS, MAX_GC_INTERVAL_SECONDS
from sarit.node import gc_scheduler as gc_scheduler
from sarit.node.gc_scheduler import GcScheduler

TURN = 2_000


class Held:
    """Something that could be in a cycle."""


@pytest.fixture
def collected():
    """(generation, objects traversed) of each collection; the settings are restored."""
    found: list[tuple[int, int]] = []

    def collect(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generation = info["generation"]
            found.append((generation, sum(len(gc.get_objects(young)) for young in range(generation + 1))))

    before = gc.get_threshold()
    gc.callbacks.append(collect)
    yield found
    gc.callbacks.remove(collect)
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.fixture
def collects_often(monkeypatch):
    """Collections every millisecond, however long they take."""
    monkeypatch.setattr(gc_scheduler, "GC_INTERVAL_SECONDS", 0.001)
    monkeypatch.setattr(gc_scheduler, "GC_INTERVAL_FACTOR", 0)


@pytest.mark.usefixtures("collects_often")
def test_freed_objects_do_not_delay_collections(collected):
    async def main() -> list[Held]:
        old, young = [Held() for _ in range(50 * TURN)], []
        GcScheduler().start()
        collected.clear()
        for _ in range(50):
            young += [Held() for _ in range(TURN)]
            del old[-TURN:]
            await asyncio.sleep(0.002)
        return young

    assert len(asyncio.run(main())) == 50 * TURN
    assert len(collected) > 10
    assert max(objects for _, objects in collected) < 20 * TURN


@pytest.mark.usefixtures("collects_often")
def test_old_garbage_is_collected_by_a_full_collection(collected, monkeypatch):
    monkeypatch.setattr(gc_scheduler, "FULL_GC_OBJECTS", 10 * TURN)

    async def main() -> None:
        GcScheduler().start()
        one = Held()
        one.itself = one
        gone = weakref.ref(one)
        await asyncio.sleep(0.01)
        collected.clear()
        del one
        held = [Held() for _ in range(TURN)]
        await asyncio.sleep(0.01)
        assert gone() is not None
        assert {generation for generation, _ in collected} == {1}
        while gone() is not None:
            held += [Held() for _ in range(TURN)]
            await asyncio.sleep(0.002)
            assert len(held) < 50 * TURN

    asyncio.run(main())


@pytest.mark.parametrize(
    ("took", "pause"), [(0.001, GC_INTERVAL_SECONDS), (0.01, 0.01 * GC_INTERVAL_FACTOR), (0.5, MAX_GC_INTERVAL_SECONDS)]
)
def test_long_collections_are_less_frequent(took, pause, monkeypatch):
    """With thousands of appends under way they took a tenth of a busy node's time."""
    times = iter((10.0, 10.0 + took))
    monkeypatch.setattr(gc_scheduler.gc, "collect", lambda *_: 0)
    monkeypatch.setattr(gc_scheduler, "RealClock", lambda: SimpleNamespace(monotonic=lambda: next(times)))
    pauses: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one = GcScheduler()
        monkeypatch.setattr(loop, "call_later", lambda seconds, _call: pauses.append(seconds))
        one._collect()

    asyncio.run(main())
    assert pauses == [pytest.approx(pause)]
