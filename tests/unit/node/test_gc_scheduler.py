"""The timer's garbage collections: each one is short, and all garbage is found eventually."""

import asyncio
import gc
import weakref
from types import SimpleNamespace

import pytest

from sarit.core.limits import (
    GC_INTERVAL_FACTOR,
    GC_INTERVAL_SECONDS,
    LONG_GC_SECONDS,
    MAX_GC_DELAY_SECONDS,
    MAX_GC_INTERVAL_SECONDS,
    QUIET_GC_OBJECTS,
)
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
    monkeypatch.setattr(gc_scheduler, "QUIET_GC_OBJECTS", 10 * TURN)

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


def test_long_full_collection_waits_for_a_quiet_moment():
    """With 50,000 segments it held the loop for 300 ms, about once a minute, in the middle of the load."""

    async def main() -> None:
        one = GcScheduler()
        assert not one._may_collect_all(100.0, 2 * QUIET_GC_OBJECTS), "its length is not known yet: it may be long"
        assert one._may_collect_all(101.0, QUIET_GC_OBJECTS - 1)
        assert not one._may_collect_all(99.0 + MAX_GC_DELAY_SECONDS, 2 * QUIET_GC_OBJECTS)
        assert one._may_collect_all(100.0 + MAX_GC_DELAY_SECONDS, 2 * QUIET_GC_OBJECTS)
        one._full_seconds = LONG_GC_SECONDS
        assert one._may_collect_all(100.0, 2 * QUIET_GC_OBJECTS)

    asyncio.run(main())


@pytest.mark.usefixtures("collects_often")
def test_long_full_collection_does_not_wait_for_ever(collected, monkeypatch):
    monkeypatch.setattr(gc_scheduler, "FULL_GC_OBJECTS", 10 * TURN)
    monkeypatch.setattr(gc_scheduler, "MAX_GC_DELAY_SECONDS", 0.02)
    monkeypatch.setattr(gc_scheduler, "QUIET_GC_OBJECTS", -1)

    async def main() -> None:
        GcScheduler().start()
        collected.clear()
        held = []
        while 2 not in {generation for generation, _ in collected}:
            held += [Held() for _ in range(TURN)]
            await asyncio.sleep(0.002)
        assert len(held) > 10 * TURN

    asyncio.run(asyncio.wait_for(main(), 10))


def test_objects_that_the_interpreter_collected_between_count(monkeypatch):
    """Each of its collections sets its counter to 0."""

    async def main() -> None:
        one = GcScheduler()
        one._collections = gc_scheduler._collections()
        monkeypatch.setattr(gc, "get_threshold", lambda: (5_000, 0, 0))
        gc.collect(0)
        gc.collect(1)
        assert one._objects_made() >= 2 * 5_000

    asyncio.run(main())
