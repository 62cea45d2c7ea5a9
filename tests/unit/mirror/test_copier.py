"""The copier between two sides in memory, in virtual time: calls get lost, copiers and targets are killed."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from checkers.mirror import check
from sarit.core.errors import Unavailable
from sarit.core.links import HoldOverflow, Link, LinkDirection, LinkRole, LinkSettings, LinkState, LinkStatus
from sarit.core.names import StreamName
from sarit.mirror.copier import Copier
from sarit.mirror.values import FROM_TAIL, LinkIdentity, MirrorState
from simulation.world import run_world
from tests.unit.mirror.memory_sides import LossyCalls, MemorySource, MemoryTarget, SourceStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from simulation.world import World

NAME = StreamName("scope", "one")


def link(state: LinkState = LinkState.ACTIVE, **settings: Any) -> Link:
    chosen = LinkSettings(LinkDirection.PUSH, "core.example:9090", **settings)
    return Link("link", b"1" * 16, 0, LinkRole.ACTIVE, state, chosen)


class Scene:
    """A source, a target, and copiers between them."""

    def __init__(self, world: World, chosen: Link | None = None, step: Callable[[], None] = lambda: None) -> None:
        self.process = world.machine("edge").start()
        self.source = MemorySource("edge")
        self.target = MemoryTarget("core", step)
        self.calls: tuple[Any, Any] = self.source, self.target
        self.link = chosen or link()
        self.copier = self.make()

    def make(self) -> Copier:
        self.source.wall_ms = self.target.wall_ms = self.process.env.clock.wall_ms()
        self.copier = Copier(self.link, "edge", *self.calls, self.process.env)
        return self.copier

    @asynccontextmanager
    async def copying(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.make().run())
        try:
            yield task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            elif not task.cancelled() and task.exception():
                raise task.exception()  # type: ignore[misc]

    async def until(self, holds: Callable[[], bool], seconds: float = 600.0) -> None:
        for _ in range(int(seconds * 5)):
            if holds():
                return
            await asyncio.sleep(0.2)
        raise AssertionError(f"it never holds: {self.copier.status()}")

    def is_copied(self) -> bool:
        return all(self.is_equal(one) for one in self.source.streams_by_name.values())

    def is_equal(self, stream: SourceStream) -> bool:
        mirror = self.target.mirrors.get(stream.name)
        if mirror is None or mirror.decided is not None or mirror.epochs[-1] != stream.epochs[-1]:
            return False
        return all(mirror.end(s) == len(stream.data[s]) for s in mirror.data)

    def violations(self, *, caught_up: bool = False) -> list[Any]:
        return [
            one
            for stream in self.source.streams_by_name.values()
            if (mirror := self.target.mirrors.get(stream.name)) is not None
            for one in check(stream.history(), mirror.seen, caught_up=caught_up)
        ]


def run(main: Callable[[World], Awaitable[None]], seed: int = 1) -> None:
    outcome = run_world(seed, main)
    if outcome.error is not None:
        raise outcome.error


def change(rng: random.Random, stream: SourceStream) -> None:
    """Make something happen to a stream."""
    kind = rng.random()
    if kind < 0.55:
        stream.append(rng.randrange(4), rng.randbytes(rng.randrange(1, 2000)))
    elif kind < 0.7:
        stream.begin_commit({which: rng.randbytes(rng.randrange(1, 50)) for which in range(rng.randrange(1, 4))})
    elif kind < 0.92:
        stream.commit_next()
    elif kind < 0.97:
        stream.scale(rng.randrange(4))
    elif kind < 0.98:
        stream.append(0, rng.randbytes(300_000))
    elif kind < 0.985:
        stream.seal()


@pytest.mark.parametrize("seed", range(12))
def test_mirrors_are_prefixes_whatever_is_lost_or_killed(seed: int) -> None:
    rng = random.Random(seed)
    faulty = True

    def fate(_: str) -> str:
        if faulty and (chance := rng.random()) < 0.12:
            return ("lost", "unanswered", "late")[int(chance * 25)]
        return "ok"

    def step() -> None:
        if faulty and rng.random() < 0.05:
            raise Unavailable("the target was killed in a round")

    async def main(world: World) -> None:
        nonlocal faulty
        scene = Scene(world, link(bytes_per_second=rng.choice([0, 50_000, 1_000_000])), step)
        scene.calls = LossyCalls(scene.source, fate, 0.01), LossyCalls(scene.target, fate, 0.01)
        streams = [scene.source.create(f"{'ab'[n % 2]}/s{n}", 1 + n % 3) for n in range(6)]
        for _ in range(8):
            async with scene.copying():
                for _ in range(rng.randrange(5, 60)):
                    for _ in range(rng.randrange(1, 6)):
                        change(rng, rng.choice(streams))
                    await asyncio.sleep(rng.random() * 2)
        faulty = False
        for stream in streams:
            stream.commit_all()
        async with scene.copying():
            await scene.until(lambda: scene.is_copied() and scene.copier.status().streams == 6)
            await scene.until(lambda: not scene.copier.status().lag_bytes)
        assert not scene.violations(caught_up=True)
        status = scene.copier.status()
        assert (status.up, status.failing, status.streams) == (True, 0, 6)

    run(main, seed)


def test_status_says_what_is_not_copied() -> None:
    async def main(world: World) -> None:
        scene = Scene(world, link(bytes_per_second=10_000))
        stream = scene.source.create("scope/one")
        stream.append(0, bytes(100_000))
        async with scene.copying():
            await asyncio.sleep(4)
            status = scene.copier.status()
            assert status.lag_bytes == 100_000
            assert status.lag_seconds > 2
            await scene.until(scene.is_copied)
            await asyncio.sleep(1)
            status = scene.copier.status()
            assert (status.lag_bytes, status.lag_seconds, status.copied_bytes) == (0, 0.0, 100_000)
            assert status.problems == ()

    run(main)


def test_lag_grows_while_the_target_is_away() -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        stream = scene.source.create("scope/one")
        away = False
        calls = LossyCalls(scene.target, lambda _: "lost" if away else "ok")
        scene.calls = scene.source, calls
        async with scene.copying():
            await scene.until(scene.is_copied)
            away = True
            contact_ms = scene.copier.status().contact_ms
            for _ in range(60):
                stream.append(0, bytes(1000))
                await asyncio.sleep(5)
                status = scene.copier.status()
                assert not status.up or status.lag_bytes <= 2000
                assert status.contact_ms <= contact_ms + 20_000
            assert calls.calls["begin"] < 30  # the pauses grow
            assert (status.up, status.note) == (False, "the call was lost")
            assert status.lag_bytes > 50_000
            away = False
            await scene.until(scene.is_copied)
            await scene.until(lambda: scene.copier.status().lag_bytes == 0)
            assert scene.copier.status().up

    run(main)


class Meter:
    """A target that notes when how many bytes were written to it."""

    def __init__(self, target: Any, now: Callable[[], float]) -> None:
        self._target, self._now = target, now
        self.written: list[tuple[float, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    async def write(self, identity: LinkIdentity, scope: str, writes: Sequence[Any]) -> Any:
        self.written.append((self._now(), sum(len(one.data) for one in writes)))
        return await self._target.write(identity, scope, writes)

    def most_in(self, seconds: float) -> int:
        """Return the most bytes within so many seconds."""
        return max(sum(n for at, n in self.written if begin <= at < begin + seconds) for begin, _ in self.written)


@pytest.mark.parametrize(("segments", "seconds"), [(1, 0.0), (1, 0.05), (4, 0.05)])
def test_a_link_is_as_fast_as_it_may_be_and_never_faster(segments: int, seconds: float) -> None:
    """Each call and each answer take 50 ms; streams are long, or short ones that come now and then."""
    rate = 1_000_000

    async def main(world: World) -> None:
        scene = Scene(world, link(bytes_per_second=rate))
        meter = Meter(scene.target, lambda: world.now)
        scene.calls = scene.source, LossyCalls(meter, seconds=seconds)
        long = scene.source.create("scope/one", segments)
        for which in range(segments):
            long.append(which, bytes(40_000_000 // segments))
        short = [scene.source.create(f"scope/short{n}") for n in range(50)]
        async with scene.copying():
            for _ in range(60):
                for stream in short:
                    stream.append(0, bytes(1000))
                await asyncio.sleep(0.5)
            assert world.now >= 30
            copied = sum(n for at, n in meter.written if 5 <= at < 25)
            assert copied >= 0.95 * 20 * rate
            await scene.until(scene.is_copied)
        assert meter.most_in(10) <= 1.05 * 10 * rate
        assert not scene.violations(caught_up=True)

    run(main)


def test_growth_is_found_though_the_answer_was_lost() -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        stream = scene.source.create("scope/one")
        lost = False

        def fate(name: str) -> str:
            nonlocal lost
            found = "unanswered" if lost and name == "grown" else "ok"
            lost = lost and name != "grown"
            return found

        scene.calls = LossyCalls(scene.source, fate), scene.target
        async with scene.copying():
            await asyncio.sleep(50)
            lost = True
            await asyncio.sleep(25)  # the next call takes what has grown since, and its answer is lost
            stream.append(0, b"abc")
            await scene.until(scene.is_copied, 60)
            assert not lost

    run(main)


def test_higher_classes_are_copied_first() -> None:
    async def main(world: World) -> None:
        scene = Scene(world, link(bytes_per_second=100_000, priorities=(("scope/urgent*", 5),)))
        for n in range(8):
            scene.source.create(f"scope/bulk{n}").append(0, bytes(400_000))
        async with scene.copying():
            await asyncio.sleep(5)
            urgent = scene.source.create("scope/urgent")
            urgent.append(0, bytes(50_000))
            await scene.until(lambda: scene.is_equal(urgent), 3)
            assert scene.copier.status().lag_bytes > 1_000_000

    run(main)


def test_a_window_of_the_day() -> None:
    async def main(world: World) -> None:
        minute = scene_minute = world.machine("edge").clock.wall_ms() // 60_000 % 1440
        begin, end = (minute + 5) % 1440, (scene_minute + 7) % 1440
        texts = [f"{at // 60:02}:{at % 60:02}" for at in (begin, end)]
        scene = Scene(world, link(window="-".join(texts)))
        stream = scene.source.create("scope/one")
        stream.append(0, b"abc")
        async with scene.copying():
            await asyncio.sleep(200)
            assert NAME not in scene.target.mirrors
            await scene.until(scene.is_copied)
            await asyncio.sleep(300)
            stream.append(0, b"def")
            await asyncio.sleep(300)
            assert not scene.is_copied()

    run(main)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"installation": "edge"}, "leads to its own installation edge"),
        ({"protocol": 99}, "speaks version 99 of links"),
        ({"installation": "other"}, "and other answers there now"),
    ],
)
def test_a_wrong_peer_is_named_and_tried_again(changes: dict[str, Any], text: str) -> None:
    async def main(world: World) -> None:
        scene = Scene(world, replace(link(), peer_installation="core"))
        scene.source.create("scope/one").append(0, b"abc")
        before = {name: getattr(scene.target, name) for name in changes}
        for name, value in changes.items():
            setattr(scene.target, name, value)
        async with scene.copying():
            await asyncio.sleep(60)
            status = scene.copier.status()
            assert not status.up
            assert text in status.note
            assert not scene.target.mirrors
            for name, value in before.items():
                setattr(scene.target, name, value)
            await scene.until(scene.is_copied)
            assert scene.copier.status().note == ""

    run(main)


def problem(status: LinkStatus) -> str:
    assert len(status.problems) == 1, status
    return status.problems[0].text


@pytest.mark.parametrize("restart", [False, True])
def test_bytes_that_are_gone_are_named_or_the_mirror_begins_again(restart: bool) -> None:
    async def main(world: World) -> None:
        scene = Scene(world, link(restart=restart))
        stream, other = scene.source.create("scope/one"), scene.source.create("scope/two")
        stream.append(0, b"abc")
        async with scene.copying():
            await scene.until(scene.is_copied)
        stream.append(0, b"defgh")
        stream.append(0, b"ijk")
        stream.truncate(2)
        other.append(0, b"xyz")
        async with scene.copying():
            await scene.until(lambda: scene.is_equal(other))
            await asyncio.sleep(1)
            status = scene.copier.status()
            if not restart:
                assert "5 bytes were truncated at the source before they were copied" in problem(status)
                assert status.failing == 1
                return
            await scene.until(scene.is_copied)
            assert scene.copier.status().lost_bytes == 5
            assert scene.target.mirrors[NAME].head == {0: 8}
            assert not scene.violations(caught_up=True)

    run(main)


def test_a_target_that_does_not_begin_a_mirror_again_is_not_asked_without_end() -> None:
    async def main(world: World) -> None:
        scene = Scene(world, link(overflow=HoldOverflow.DROP))
        stream = scene.source.create("scope/one")
        stream.append(0, b"abc")
        async with scene.copying():
            await scene.until(scene.is_copied)
        stream.append(0, b"defgh")
        stream.append(0, b"ijk")
        stream.truncate(2)

        async def restart(*_: Any) -> MirrorState:
            return scene.target.mirrors[NAME].state()

        scene.target.restart = restart  # type: ignore[method-assign]
        scene.calls = scene.source, (calls := LossyCalls(scene.target))
        async with scene.copying():
            await asyncio.sleep(120)
            assert "the target does not begin the mirror again" in problem(scene.copier.status())
            assert calls.calls["restart"] < 10
            assert scene.copier.status().lost_bytes == 0

    run(main)


def test_a_source_without_a_moment_between_commits_is_asked_again_and_not_at_once() -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        stream = scene.source.create("scope/one", 2)
        offers, merging = scene.source.offers, True

        async def none_now(scope: str, positions: Sequence[Any], limit: int) -> list[Any]:
            found = await offers(scope, positions, limit)
            if not merging:
                return found
            return [replace(one, lengths=dict(p.lengths), sealed=frozenset(), epochs=(), more=True, version=0)
                    for one, p in zip(found, positions, strict=True) if one]  # fmt: skip

        scene.source.offers = none_now  # type: ignore[method-assign]
        scene.calls = (calls := LossyCalls(scene.source)), scene.target
        async with scene.copying():
            stream.append(0, b"abc")
            await asyncio.sleep(60)
            assert not scene.is_copied()
            assert calls.calls["offers"] < 400
            assert calls.calls.get("facts", 0) < 20
            merging = False
            await scene.until(scene.is_copied, 5)

    run(main)


def test_streams_that_are_deleted_created_again_or_refused() -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        for name in ("one", "two", "three"):
            scene.source.create(f"scope/{name}").append(0, b"abc")
        scene.target.mirrors[StreamName("scope", "three")] = made = await _mirror_of_another_link(scene)
        async with scene.copying():
            await scene.until(lambda: len(scene.copier.status().problems) == 1 and scene.copier.status().failing == 1)
            assert "the target does not take it: another link has it" in problem(scene.copier.status())
            del scene.source.streams_by_name[NAME]
            again = scene.source.create("scope/two", 2)
            again.append(0, b"xyzxyzxyz")
            await scene.until(lambda: len(scene.copier.status().problems) == 3, 700)
            texts = {one.stream: one.text for one in scene.copier.status().problems}
            assert "deleted at the source" in texts["scope/one"]
            assert "created again" in texts["scope/two"]
            assert bytes(scene.target.mirrors[StreamName("scope", "two")].data[0]) == b"abc"
            assert not made.data[0]

    run(main)


async def _mirror_of_another_link(scene: Scene) -> Any:
    target, facts = MemoryTarget("core"), (await scene.source.facts("scope", [StreamName("scope", "three")], 0))[0]
    assert facts is not None
    await target.begin(LinkIdentity(b"2" * 16, "other", "edge"), "scope", [facts])
    return target.mirrors[facts.name]


def test_a_scope_without_permission_does_not_stop_the_others() -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        allowed = scene.source.create("allowed/one")
        allowed.append(0, b"abc")
        scene.source.create("secret/one").append(0, b"abc")
        forbidden = LossyCalls(scene.source, lambda _: "forbidden")

        class Guarded:
            def __getattr__(self, name: str) -> Any:
                async def call(*args: Any) -> Any:
                    side = forbidden if "secret" in args and name != "scopes" else scene.source
                    return await getattr(side, name)(*args)

                return call

        scene.calls = Guarded(), scene.target
        async with scene.copying():
            await scene.until(lambda: scene.is_equal(allowed))
            status = scene.copier.status()
            assert status.up
            assert [(one.stream, one.text) for one in status.problems] == [
                ("secret/*", "the link's user has no permission")
            ]

    run(main)


def test_old_streams_begin_at_their_tail_and_new_ones_at_their_head() -> None:
    async def main(world: World) -> None:
        scene = Scene(world, replace(link(start_ms=FROM_TAIL), created_ms=500))
        old = scene.source.create("scope/one")
        old.append(0, b"abc")
        async with scene.copying():
            await scene.until(lambda: NAME in scene.target.mirrors)
            old.append(0, b"def")
            new = scene.source.create("scope/two", created_ms=501)
            new.append(0, b"xyz")
            await scene.until(scene.is_copied)
        assert scene.target.mirrors[NAME].head == {0: 3}
        assert scene.target.mirrors[new.name].head == {0: 0}
        async with scene.copying():
            old.append(0, b"ghi")
            await scene.until(scene.is_copied)
        assert not scene.violations(caught_up=True)

    run(main)


def test_seals_and_truncations_are_followed() -> None:
    async def main(world: World) -> None:
        scene = Scene(world, link(follow_truncation=True))
        stream = scene.source.create("scope/one", 2)
        for n in range(4):
            stream.append(n, b"abc")
        async with scene.copying():
            await scene.until(scene.is_copied)
            stream.scale(0)
            stream.append(0, b"def")
            await scene.until(scene.is_copied)
            stream.truncate(len(stream.moments) - 1)
            await scene.until(lambda: scene.target.mirrors[NAME].head == stream.head)
            stream.seal()
            await scene.until(lambda: scene.target.mirrors[NAME].ended)
            mirror = scene.target.mirrors[NAME]
            assert mirror.sealed >= set(stream.active)
            rounds = len(mirror.seen)
            await asyncio.sleep(400)
            assert len(mirror.seen) == rounds

    run(main)


def test_the_source_holds_what_is_not_copied() -> None:
    async def main(world: World) -> None:
        scene = Scene(world, link(hold_bytes=1 << 30))
        stream = scene.source.create("scope/one", 2)
        async with scene.copying():
            await scene.until(scene.is_copied)
            stream.append(0, b"abc")
            await scene.until(lambda: scene.source.held.get(NAME) == {0: 3, 1: 0})
            stream.scale(0)
            await scene.until(lambda: scene.source.held.get(NAME) == {s: 0 for s in stream.active})

    run(main)


def test_a_promotion_at_the_target_makes_the_source_read_only() -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        streams = [scene.source.create(f"scope/s{n}") for n in range(3)]
        async with scene.copying() as task:
            await scene.until(scene.is_copied)
            identity = LinkIdentity(b"1" * 16, "link", "edge")
            await scene.target.promote(identity, "scope", [one.name for one in streams])
            streams[0].append(0, b"late")
            await scene.until(task.done, 700)
        assert scene.source.fenced == {one.name: b"L" * 16 for one in streams}
        assert all(one.is_fenced for one in streams)
        assert all("promoted" in one.text for one in scene.copier.status().problems)

    run(main)


def test_a_planned_promotion_loses_nothing() -> None:
    """The streams are made read-only, the rest is copied, and then the mirrors are promoted."""

    async def main(world: World) -> None:
        scene = Scene(world, link(LinkState.DRAINING, bytes_per_second=100_000))
        streams = [scene.source.create(f"scope/s{n}", 1 + n) for n in range(3)]
        for stream in streams:
            stream.append(0, bytes(200_000))
            stream.begin_commit({0: b"abc", 1: b"def"})
        async with scene.copying() as task:
            await scene.until(task.done)
        for stream in streams:
            mirror = scene.target.mirrors[stream.name]
            assert stream.is_fenced
            assert mirror.lineage is not None
            assert scene.is_equal(stream)
            assert not mirror.sealed
        assert not scene.violations(caught_up=True)

    run(main)


def test_a_busy_mirror_is_asked_again() -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        stream = scene.source.create("scope/one")
        async with scene.copying():
            await scene.until(scene.is_copied)
            scene.target.busy.add(NAME)
            stream.append(0, b"abc")
            await asyncio.sleep(3)
            assert not scene.is_copied()
            assert scene.copier.status().failing == 0
            scene.target.busy.clear()
            await scene.until(scene.is_copied)

    run(main)
