"""The life of a hosted container: its table, and commands in any order carried out on a store."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.errors import Corrupt, Unavailable
from sarit.store.hosting import hosted_container as hosted_module
from sarit.store.hosting.health import HealthState
from sarit.store.hosting.open_slots import OpenSlots
from sarit.store.hosting.states import SERVES, TRANSITIONS, WORK, Effect, Event, Hosting, State, Work
from tests.limits import HANG_SECONDS, examples
from tests.unit.store.harness import World
from tests.unit.store.placements import RecordedPlacement
from tests.unit.store.test_ownership import store_of

COMMANDS = (Event.OWN, Event.RELEASE, Event.DROP)
OUTCOMES = {
    Work.OPEN: (Event.OPENED, Event.DAMAGED, Event.FENCED),
    Work.FLUSH: (Event.FLUSHED,),
    Work.CLOSE: (Event.CLOSED,),
}


def test_every_state_takes_every_command():
    assert {(state, command) for state in State for command in COMMANDS} <= set(TRANSITIONS)


def test_every_state_takes_the_outcomes_of_its_work_and_faults_while_it_serves():
    for state in State:
        for event in OUTCOMES.get(WORK.get(state), ()):
            assert (state, event) in TRANSITIONS, (state, event)
        if state in SERVES:
            assert {(state, Event.FAILED), (state, Event.FENCED)} <= set(TRANSITIONS)


def test_work_interrupted_in_its_last_turn_is_taken_by_the_next_state():
    for (state, command), (after, _) in TRANSITIONS.items():
        work = WORK.get(state)
        if command in COMMANDS and work is not None and WORK.get(after) is not work and work is not Work.CLOSE:
            for event in OUTCOMES[work]:
                assert (after, event) in TRANSITIONS, (state, command, after, event)


def finish_work(hosting):
    """Let all work succeed."""
    for _ in range(10):
        work = WORK.get(hosting.state)
        if work is None:
            return
        hosting.on(OUTCOMES[work][0])
    raise AssertionError(hosting)


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from(Event), max_size=30))
def test_newest_command_wins_whatever_happened_before(events):
    hosting, version, wished = Hosting(), 0, None
    for event in events:
        if event is Event.OWN:
            version += 1
            hosting.own(version)
            wished = event
        elif (hosting.state, event) in TRANSITIONS and not (
            # Only the work that is being done has outcomes; a fault needs a container that is open.
            (event in (Event.OPENED, Event.DAMAGED) and hosting.state is not State.OPENING)
            or (event is Event.CLOSED and WORK.get(hosting.state) is not Work.CLOSE)
        ):
            effects = hosting.on(event)
            if event in COMMANDS:
                wished = event
            if event is Event.FENCED:
                wished = None
                assert Effect.REPORT_FENCED in effects
    damaged = hosting.state is State.FAILED
    finish_work(hosting)
    if wished is Event.OWN:
        assert hosting.state is (State.FAILED if damaged else State.SERVING)
    else:
        assert hosting.state is State.ABSENT


def test_fenced_container_opens_on_a_newer_map_only():
    hosting = Hosting()
    hosting.own(3)
    hosting.on(Event.OPENED)
    assert hosting.on(Event.FENCED) == (Effect.WITHDRAW, Effect.REPORT_FENCED)
    finish_work(hosting)
    for version in (1, 2, 3):
        hosting.own(version)
        assert hosting.state is State.ABSENT
    hosting.own(4)
    assert hosting.state is State.OPENING


def test_container_given_back_during_its_flush_serves_on():
    hosting = Hosting(State.SERVING)
    hosting.on(Event.RELEASE)
    assert hosting.state is State.FLUSHING
    assert hosting.own(2) == ()
    assert hosting.state is State.SERVING
    assert hosting.on(Event.FLUSHED) == ()


class Openings:
    """Opens containers really, counts how many are open at once, and fails on demand."""

    def __init__(self, monkeypatch):
        self.right, self.open, self.most, self.count, self.failures = hosted_module.open_container, 0, 0, 0, 0
        self.failure = Unavailable("made to fail")
        monkeypatch.setattr(hosted_module, "open_container", self)
        monkeypatch.setattr(hosted_module, "REOPEN_SECONDS", 0.0)

    async def __call__(self, *arguments, **options):
        self.count += 1
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await asyncio.sleep(0)
            if self.failures:
                self.failures -= 1
                raise self.failure
            opened = await self.right(*arguments, **options)
        except BaseException:
            self.open -= 1
            raise
        close = opened.container.index.close

        async def closed():
            await close()
            self.open -= 1

        opened.container.index.close = closed
        return opened


STEPS = st.lists(
    st.tuples(st.sampled_from(["own", "release", "drop", "lost", "fail", "broken"]), st.integers(0, 12)), max_size=12
)


@settings(max_examples=examples(60))
@given(STEPS)
def test_container_is_never_opened_twice_at_once_and_ends_where_the_newest_command_says(steps):
    async def main(monkeypatch):
        openings = Openings(monkeypatch)
        store = store_of(World())
        await store.start()
        released, wanted = [], False
        store.placement = RecordedPlacement(released=released.append)
        for version, (step, turns) in enumerate(steps, 1):
            if step == "own":
                store.own(0, version)
                wanted = True
            elif step in ("release", "drop"):
                store.release(0, graceful=step == "release")
                wanted = False
            elif step == "lost":
                store.lost()
                wanted = False
            elif step == "fail" and store.serving():
                store.serving()[0].fail(Unavailable("made to fail"))
            elif step == "broken":
                openings.failures += 1
            for _ in range(turns):
                await asyncio.sleep(0)
        expected = HealthState.SERVING if wanted else HealthState.ABSENT
        async with asyncio.timeout(HANG_SECONDS):
            while store.health()[0].state is not expected:
                await asyncio.sleep(0)
        assert openings.most <= 1
        assert openings.open == (1 if wanted else 0)
        assert len(store.serving()) == (1 if wanted else 0)
        await store.stop()
        assert openings.open == 0

    with pytest.MonkeyPatch.context() as monkeypatch:
        asyncio.run(main(monkeypatch))


@pytest.mark.parametrize(("times", "state"), [(1, HealthState.SERVING), (2, HealthState.FAILED)])
def test_damage_counts_only_when_the_next_attempt_meets_it_too(times, state, monkeypatch):
    """The store may have stood still, and another owner may have deleted what it read."""

    async def main():
        openings = Openings(monkeypatch)
        openings.failures, openings.failure = times, Corrupt("a frame is missing")
        store = store_of(World())
        await store.start()
        store.own(0, 1)
        async with asyncio.timeout(HANG_SECONDS):
            while store.health()[0].state is HealthState.OPENING or openings.failures:
                await asyncio.sleep(0)
        assert store.health()[0].state is state
        assert openings.count == 2
        await store.stop()

    asyncio.run(main())


def test_store_that_stops_while_containers_open_and_leave_closes_them(monkeypatch):
    async def main(turns):
        openings = Openings(monkeypatch)
        store = store_of(World())
        await store.start()
        store.own(0, 1)
        store.own(1, 1)
        while len(store.serving()) < 2:
            await asyncio.sleep(0)
        store.release(0, graceful=True)
        store.serving()[-1].fail(Unavailable("made to fail"))
        for _ in range(turns):
            await asyncio.sleep(0)
        await store.stop()
        assert openings.open == 0, turns

    for turns in range(25):
        with pytest.MonkeyPatch.context() as monkeypatch:
            asyncio.run(main(turns))


def test_few_containers_open_at_once_and_the_preferred_ones_first():
    async def main():
        slots, order = OpenSlots(2), []

        async def one(name, preferred):
            await slots.acquire(preferred=preferred)
            order.append(name)
            for _ in range(3):
                await asyncio.sleep(0)
            slots.release()

        tasks = [asyncio.ensure_future(one(name, name in "xy")) for name in "abcxdy"]
        await asyncio.sleep(0)
        assert order == ["a", "b"]
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == ["a", "b", "x", "y", "d"]
        await asyncio.gather(slots.acquire(preferred=False), slots.acquire(preferred=False))

    asyncio.run(main())


@pytest.mark.parametrize("graceful", [True, False])
def test_release_interrupts_an_opening_that_does_not_end(graceful):
    async def main():
        world = World()
        store = store_of(world)
        await store.start()
        claiming, never = asyncio.Event(), asyncio.Event()

        async def claim(number):
            claiming.set()
            await never.wait()

        world.logs.claim = claim
        store.own(0, 1)
        await claiming.wait()
        released = []
        store.placement = RecordedPlacement(released=released.append)
        store.release(0, graceful=graceful)
        async with asyncio.timeout(HANG_SECONDS):
            while not released:
                await asyncio.sleep(0)
        assert store.health()[0].state is HealthState.ABSENT
        await store.stop()

    asyncio.run(main())


@pytest.mark.parametrize("command", ["own", "release"])
def test_command_during_the_start_opens_nothing_twice(command, monkeypatch):
    async def main():
        world, gate = World(), asyncio.Event()
        openings, store = Openings(monkeypatch), store_of(world, 0)
        right = world.logs.claim

        async def claim(number):
            await gate.wait()
            return await right(number)

        world.logs.claim = claim
        starting = asyncio.ensure_future(store.start())
        while not openings.open:
            await asyncio.sleep(0)
        if command == "own":
            store.own(0, 1)
        else:
            store.release(0, graceful=True)
        for _ in range(20):
            await asyncio.sleep(0)
        gate.set()
        await starting
        expected = HealthState.SERVING if command == "own" else HealthState.ABSENT
        async with asyncio.timeout(HANG_SECONDS):
            while store.health()[0].state is not expected:
                await asyncio.sleep(0)
        assert openings.most == 1
        await store.stop()
        assert openings.open == 0

    asyncio.run(main())
