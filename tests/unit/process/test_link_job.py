"""The job of a link, between two sides in memory, and the row that decides what it does."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sarit.controller.jobs import Job, JobKey
from sarit.core.errors import Conflict, Fenced, Invalid
from sarit.core.links import Link, LinkDirection, LinkRole, LinkSettings, LinkState, LinkStatus
from sarit.core.names import StreamName
from sarit.mirror.limits import MIRROR_FULL_HOLD_SECONDS
from sarit.mirror.link_codec import decode_status
from sarit.mirror.link_table import job_of
from sarit.process.job_kinds import JobConfig
from sarit.process.jobs import link as kind
from sarit.process.limits import LINK_FAILING_SECONDS, SERIES_AFTER_END_SECONDS
from simulation.world import run_world
from tests.unit.mirror.memory_sides import MemorySource, MemoryTarget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from simulation.world import World

LINK_ID = b"1" * 16
NAME = StreamName("scope", "one")


class Rows:
    """The table of links."""

    def __init__(self, link: Link | None) -> None:
        self.link = link

    async def get(self, name: str) -> Link | None:
        return self.link

    async def update(self, link: Link) -> Link:
        if self.link is None or link.version != self.link.version:
            raise Conflict("the row was changed")
        self.link = replace(link, version=link.version + 1)
        return self.link

    def change(self, **changes: Any) -> None:
        assert self.link is not None
        self.link = replace(self.link, version=self.link.version + 1, **changes)


class Attached:
    """Nothing goes with the streams but recorded cuts, of which there are none.  `asked`: the streams of each call."""

    def __init__(self) -> None:
        self.asked: list[list[StreamName]] = []

    async def cut_times(self, link: Any, scope: str, names: list[StreamName]) -> list[int]:
        self.asked.append(list(names))
        return [0] * len(names)

    async def cuts(self, scope: str, asked: Any) -> list[Any]:
        return []

    async def promote_attached(self, *_: Any) -> list[Any]:
        return []


class Bound:
    """Counts how often what is held was measured, and how often the writers were let go."""

    is_full = False

    def __init__(self) -> None:
        self.link: Any = None
        self.checks = self.let_goes = 0

    async def check(self) -> None:
        self.checks += 1

    async def let_go(self) -> None:
        self.let_goes += 1

    def is_given_up(self, *_: object) -> bool:
        return False


class Scene:
    """A site, its peer, and the job's row."""

    def __init__(self, world: World) -> None:
        settings = LinkSettings(LinkDirection.PUSH, "core.example:9090", registry=False, tables=False)
        self.links = Rows(Link("link", LINK_ID, 0, LinkRole.ACTIVE, LinkState.ACTIVE, settings))
        self.installation = "edge"
        self.source, self.target = MemorySource("edge"), MemoryTarget("core")
        self.attached = Attached()
        self.target.attached = self.source.attached = self.attached  # type: ignore[attr-defined]
        self.states: list[bytes] = []
        self.fenced = False
        self.refused: Exception | None = None
        self.connected = 0
        self.bound = Bound()
        self.env = world.machine("edge").start().env
        self.jobs = kind.LinkJobs(lambda: self, self.env, self.connect)  # type: ignore[arg-type, return-value]

    def hold_bound(self, link: Link) -> Any:
        self.bound.link = link
        return self.bound

    def connect(self, site: Any, link: Link) -> Any:
        if self.refused is not None:
            raise self.refused
        self.connected += 1
        return self

    async def close(self) -> None:
        self.connected -= 1

    async def save(self, state: bytes, held: Any = None) -> None:
        if self.fenced:
            raise Fenced("another worker has it")
        self.states.append(state)

    @property
    def status(self) -> LinkStatus:
        return decode_status(self.states[-1]) if self.states else LinkStatus()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        job = Job(job_of("link"), LINK_ID, self.states[-1] if self.states else b"")
        task = asyncio.create_task(self.jobs.run(job, self.save))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert self.connected == 0
        assert not self.jobs.copiers

    async def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(600):
            if holds():
                return
            await asyncio.sleep(0.5)
        raise AssertionError(f"it never holds: {self.status}")

    def copied(self) -> bytes:
        mirror = self.target.mirrors.get(NAME)
        return b"" if mirror is None else bytes(mirror.data[0])


def run(main: Callable[[World], Awaitable[None]]) -> None:
    outcome = run_world(1, main)
    if outcome.error is not None:
        raise outcome.error


def test_a_link_is_paused_resumed_and_deleted_by_its_row() -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        stream = scene.source.create("scope/one")
        stream.append(0, b"abc")
        async with scene.running() as task:
            await scene.until(lambda: scene.copied() == b"abc")
            assert scene.links.link is not None
            assert scene.links.link.peer_installation == "core"
            scene.links.change(state=LinkState.PAUSED)
            await scene.until(lambda: scene.status.note == "it is paused")
            saves, checks = len(scene.states), scene.bound.checks
            stream.append(0, b"def")
            await asyncio.sleep(60)
            assert scene.copied() == b"abc"
            assert len(scene.states) == saves
            assert scene.bound.checks > checks  # what is held grows while it is paused
            scene.links.change(state=LinkState.ACTIVE)
            await scene.until(lambda: scene.copied() == b"abcdef" and scene.status.copied_bytes == 6)
            scene.links.link = None
            await scene.until(task.done)

    run(main)


def test_cuts_of_streams_that_have_grown_are_copied_once_a_minute() -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        stream = scene.source.create("scope/one")
        scene.source.create("scope/two")
        async with scene.running():
            for _ in range(300):
                stream.append(0, b"abc")
                await asyncio.sleep(1)
            await asyncio.sleep(300)
        assert 5 <= len(scene.attached.asked) <= 7
        assert all(names == [NAME] for names in scene.attached.asked)

    run(main)


@pytest.mark.parametrize("ends", ["deleted", "deleted with its job", "promoted"])
def test_the_source_keeps_nothing_for_a_link_that_has_ended(ends: str) -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        assert scene.links.link is not None
        scene.links.change(settings=replace(scene.links.link.settings, hold_bytes=1 << 20))
        scene.source.create("scope/one").append(0, b"abc")
        async with scene.running() as task:
            await scene.until(lambda: scene.source.held.get(NAME) == {0: 3})
            scene.fenced = ends == "deleted with its job"
            if ends.startswith("deleted"):
                scene.links.link = None
            else:
                scene.links.change(state=LinkState.PROMOTED)
            await scene.until(task.done)
        assert scene.source.held[NAME] == {}
        assert scene.bound.let_goes  # no writer waits for it

    run(main)


def test_a_new_stream_is_held_at_once() -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        assert scene.links.link is not None
        scene.links.change(settings=replace(scene.links.link.settings, hold_bytes=1 << 20))
        scene.source.create("scope/one").append(0, b"abc")
        async with scene.running():
            await scene.until(lambda: scene.copied() == b"abc")
            await asyncio.sleep(2 * MIRROR_FULL_HOLD_SECONDS)
            assert scene.source.held.get(NAME) == {0: 3}

    run(main)


def test_new_settings_count_at_once_and_bytes_are_counted_on() -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        scene.source.create("scope/one").append(0, b"abc")
        other = scene.source.create("scope/two")
        assert scene.links.link is not None
        settings = scene.links.link.settings
        scene.links.change(settings=replace(settings, include=("scope/one",)))
        async with scene.running():
            await scene.until(lambda: scene.copied() == b"abc" and scene.status.streams == 1)
            scene.links.change(settings=settings)
            other.append(0, b"def")
            await scene.until(lambda: scene.status.streams == 2 and scene.status.copied_bytes == 6)
        async with scene.running():  # another worker
            other.append(0, b"ghi")
            await scene.until(lambda: scene.status.copied_bytes == 9)

    run(main)


@pytest.mark.parametrize("planned", [False, True])
def test_a_promoted_link_is_done(planned: bool) -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        stream = scene.source.create("scope/one")
        stream.append(0, b"abc")
        async with scene.running() as task:
            await scene.until(lambda: scene.copied() == b"abc")
            stream.append(0, b"def")
            await scene.until(lambda: scene.copied() == b"abcdef")
            if planned:
                scene.links.change(state=LinkState.DRAINING)
            else:
                scene.links.change(state=LinkState.PROMOTED)
            await scene.until(task.done)
            task.result()
        assert scene.links.link is not None
        assert scene.links.link.state is LinkState.PROMOTED
        assert (scene.status.note, scene.status.copied_bytes) == ("it is promoted", 6)
        assert scene.bound.let_goes
        assert stream.is_fenced == planned

    run(main)


def test_a_worker_that_lost_the_job_ends_its_copier() -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        stream = scene.source.create("scope/one")
        stream.append(0, b"abc")
        async with scene.running() as task:
            await scene.until(lambda: scene.copied() == b"abc")
            scene.fenced = True
            stream.append(0, b"def")
            await scene.until(task.done)
            with pytest.raises(Fenced):
                task.result()

    run(main)


def test_sides_that_cannot_be_made_are_named() -> None:
    """The file with the password is missing, and then it is there."""

    async def main(world: World) -> None:
        scene = Scene(world)
        scene.source.create("scope/one").append(0, b"abc")
        scene.refused = Invalid("the password of the link: there is no file /etc/link")
        async with scene.running():
            await scene.until(lambda: bool(scene.states))
            assert (scene.status.up, scene.status.note) == (False, str(scene.refused))
            scene.refused = None
            await scene.until(lambda: scene.copied() == b"abc" and scene.status.up)

    run(main)


def test_jobs_of_links_are_created_by_links_alone() -> None:
    kind.check(job_of("link"), LINK_ID, JobConfig())
    for key, settings in ((job_of("link"), b"short"), (JobKey("link", NAME, "link"), LINK_ID)):
        with pytest.raises(Invalid, match="create links with `sarit link create`"):
            kind.check(key, settings, JobConfig())


def test_metrics_and_health_say_how_a_link_is() -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        watch = scene.jobs.watch

        def found() -> dict[str, float]:
            return {name: value for name, labels, value in watch.samples() if labels == ("link",)}

        scene.source.create("scope/one").append(0, b"abc")
        scene.refused = Invalid("there is no file /etc/link")
        async with scene.running() as task:
            await asyncio.sleep(LINK_FAILING_SECONDS - 10)
            assert found()["sarit_link_up"] == 0
            assert not watch.reasons()
            await asyncio.sleep(20)
            (reason,) = watch.reasons()
            assert (reason.code, reason.part, reason.ready) == ("link-down", "link link", True)
            assert reason.text.endswith("there is no file /etc/link")
            scene.refused = None
            await scene.until(lambda: found()["sarit_link_copied_bytes_total"] == 3)
            assert not watch.reasons()
            assert found() == {
                "sarit_link_up": 1, "sarit_link_lag_bytes": 0, "sarit_link_lag_seconds": 0,
                "sarit_link_copied_bytes_total": 3, "sarit_link_lost_bytes_total": 0, "sarit_link_failing_streams": 0,
            }  # fmt: skip
            scene.links.change(state=LinkState.PAUSED)
            await asyncio.sleep(LINK_FAILING_SECONDS + 10)
            assert set(found()) == {"sarit_link_copied_bytes_total", "sarit_link_lost_bytes_total"}
            assert not watch.reasons()
            scene.links.link = None
            await scene.until(task.done)
        assert not found()

    run(main)


def test_a_link_whose_run_failed_is_down_and_then_forgotten() -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        scene.source.create("scope/one").append(0, b"abc")
        async with scene.running() as task:
            await scene.until(lambda: scene.status.up)
            scene.refused = RuntimeError("a defect")
            assert scene.links.link is not None
            scene.links.change(settings=replace(scene.links.link.settings, window="00:00-23:59"))
            await scene.until(task.done)
        assert ("sarit_link_up", ("link",), 0) in list(scene.jobs.watch.samples())
        await asyncio.sleep(max(SERIES_AFTER_END_SECONDS, LINK_FAILING_SECONDS) + 1)
        assert not scene.jobs.watch.reasons()  # whoever runs it now has them
        assert not list(scene.jobs.watch.samples())

    run(main)
