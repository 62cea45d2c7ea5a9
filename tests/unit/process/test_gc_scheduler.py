"""The timer's garbage collections: none visits many objects while the node is busy, and all garbage is found."""

import asyncio
import gc
import mmap
import weakref

import pytest

from sarit.env.real import RealClock
from sarit.env.real_limits import resident_memory
from sarit.process.limits import (
    FULL_GC_OBJECTS,
    GC_INTERVAL_FACTOR,
    GC_INTERVAL_SECONDS,
    GC_MEMORY_GROWTH_BYTES,
    MAX_GC_DELAY_SECONDS,
    MAX_YOUNG_GC_OBJECTS,
    QUIET_SECONDS,
    QUIET_SHARE,
)
from sarit.process.observation import gc_scheduler
from sarit.process.observation.gc_scheduler import GcScheduler
from tests.limits import HANG_SECONDS


class Held:
    """Something that could be in a cycle."""


def cycle() -> weakref.ref[Held]:
    one = Held()
    one.itself = one
    return weakref.ref(one)


class Machine:
    """A node whose clocks and memory are set by the test, and whose timer it fires."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.used = 0.0
        self.memory = 0
        self.scheduler = GcScheduler(lambda: self.now, lambda: self.used, lambda: self.memory)

    def tick(self, *, seconds: float = GC_INTERVAL_SECONDS, share: float = 1.0) -> None:
        """One tick, after the loop has used a share of the processor."""
        self.now += seconds
        self.used += share * seconds
        self.scheduler._tick()

    def quiet(self) -> None:
        """Ticks of an idle loop for so long that a full collection may be made."""
        for _ in range(int(QUIET_SECONDS / GC_INTERVAL_SECONDS) + 2):
            self.tick(share=QUIET_SHARE / 2)


@pytest.fixture
def visited():
    """(generation, objects visited) of each collection; the settings are restored."""
    found: list[tuple[int, int]] = []

    def collect(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generation = info["generation"]
            found.append((generation, sum(len(gc.get_objects(young)) for young in range(min(generation, 1) + 1))))

    gc.callbacks.append(collect)
    yield found
    gc.callbacks.remove(collect)
    gc.unfreeze()
    gc.enable()


def run(main) -> None:
    asyncio.run(main())


def test_no_collection_visits_many_objects_while_objects_are_made(visited):
    """Freed objects hide from the interpreter's counter how many are young: it then visited 100,000 and more."""

    async def main() -> None:
        old = [Held() for _ in range(30 * MAX_YOUNG_GC_OBJECTS)]
        one = Machine()
        one.scheduler.start()
        visited.clear()
        young = []
        for _ in range(20):
            young += [Held() for _ in range(2 * MAX_YOUNG_GC_OBJECTS)]
            # As many are freed as were made.
            for _ in range(min(len(old), 2 * MAX_YOUNG_GC_OBJECTS)):
                old.pop()
            one.tick(seconds=10.0)
        assert all(generation < 2 and objects <= MAX_YOUNG_GC_OBJECTS for generation, objects in visited), visited

    run(main)


def test_the_interpreter_makes_no_collection_by_itself(visited):
    async def main() -> None:
        Machine().scheduler.start()
        visited.clear()
        held = [Held() for _ in range(10 * MAX_YOUNG_GC_OBJECTS)]
        assert visited == []
        assert held

    run(main)


def test_young_garbage_is_collected_while_the_node_is_busy(visited):
    async def main() -> None:
        one = Machine()
        one.scheduler.start()
        gone = cycle()
        assert gone() is not None
        one.tick()
        assert gone() is None

    run(main)


def test_garbage_that_was_set_aside_is_found_in_a_quiet_moment(visited, monkeypatch):
    monkeypatch.setattr(gc_scheduler, "FULL_GC_OBJECTS", 10 * MAX_YOUNG_GC_OBJECTS)

    async def main() -> None:
        one = Machine()
        one.scheduler.start()
        gone = cycle()
        held = [Held() for _ in range(2 * MAX_YOUNG_GC_OBJECTS)]
        one.tick()  # too many young objects: they are set aside
        one.quiet()
        assert gone() is not None, "little has been made since the last full collection"
        held += [Held() for _ in range(10 * MAX_YOUNG_GC_OBJECTS)]
        one.tick()
        assert gone() is not None, "a moment ago the node was busy"
        one.quiet()
        assert gone() is None

    run(main)


def test_full_collection_waits_for_a_quiet_moment():
    """With 50,000 segments it held the loop for a second, in the middle of the load."""

    async def main() -> None:
        one = Machine()
        scheduler = one.scheduler
        scheduler._grown = FULL_GC_OBJECTS
        assert not scheduler._full_collection_now(one.now)
        assert not scheduler._full_collection_now(one.now + QUIET_SECONDS / 2)
        assert scheduler._full_collection_now(one.now + QUIET_SECONDS)
        scheduler._busy_at = one.now + 2 * MAX_GC_DELAY_SECONDS
        assert not scheduler._full_collection_now(one.now + MAX_GC_DELAY_SECONDS), "the memory has not grown"
        one.memory = GC_MEMORY_GROWTH_BYTES
        assert scheduler._full_collection_now(one.now + MAX_GC_DELAY_SECONDS)
        scheduler._grown = FULL_GC_OBJECTS - 1
        assert not scheduler._full_collection_now(one.now + MAX_GC_DELAY_SECONDS), "little has been made"

    run(main)


def test_memory_growth_demands_a_full_collection_once(visited, monkeypatch):
    monkeypatch.setattr(gc_scheduler, "FULL_GC_OBJECTS", MAX_YOUNG_GC_OBJECTS)

    async def main() -> None:
        one = Machine()
        one.scheduler.start()
        visited.clear()
        held = []
        for seconds, memory in (
            (1.0, GC_MEMORY_GROWTH_BYTES - 1),
            (MAX_GC_DELAY_SECONDS, GC_MEMORY_GROWTH_BYTES),
            (1.0, GC_MEMORY_GROWTH_BYTES),
            (MAX_GC_DELAY_SECONDS, 2 * GC_MEMORY_GROWTH_BYTES - 1),
        ):
            one.memory = memory
            held += [Held() for _ in range(2 * MAX_YOUNG_GC_OBJECTS)]
            one.tick(seconds=seconds)
        assert [generation for generation, _ in visited] == [2], "the memory has grown once by so much"
        assert held

    run(main)


def test_a_long_collection_is_followed_by_a_pause_in_which_objects_are_set_aside(monkeypatch):
    """With thousands of appends under way they took a tenth of a busy node's time."""
    done: list[str] = []
    took = 0.01

    async def main() -> None:
        one = Machine()

        def collect(_generation: int) -> None:
            done.append("collect")
            one.now += took

        monkeypatch.setattr(gc_scheduler.gc, "collect", collect)
        monkeypatch.setattr(gc_scheduler.gc, "freeze", lambda: done.append("freeze"))
        one.tick()
        while done.count("collect") < 2:
            one.tick()
        pause = took * GC_INTERVAL_FACTOR / GC_INTERVAL_SECONDS
        assert pause - 2 <= done.count("freeze") <= pause + 1

    run(main)


def test_the_timer_runs_on_the_event_loop(monkeypatch):
    monkeypatch.setattr(gc_scheduler, "GC_INTERVAL_SECONDS", 0.001)

    async def main() -> None:
        GcScheduler().start()
        try:
            made = [cycle()]
            while all(one() is not None for one in made):
                made.append(cycle())
                await asyncio.sleep(0.002)
        finally:
            gc.enable()
            gc.unfreeze()

    run(lambda: asyncio.wait_for(main(), HANG_SECONDS))


def test_own_processor_time_and_memory_are_read():
    before = RealClock().thread_seconds(), resident_memory()
    # A mapping of its own: an object might be made in memory that the process has freed before.
    with mmap.mmap(-1, 64 << 20) as held:
        held.write(bytes(len(held)))
        assert RealClock().thread_seconds() > before[0]
        assert resident_memory() >= before[1] + len(held) // 2
