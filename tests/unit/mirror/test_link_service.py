"""What administrators do with links: their rows, streams and jobs; promotions in pages."""

import asyncio
from dataclasses import replace

import pytest

from sarit.controller import keys
from sarit.controller.jobs import JobTable
from sarit.controller.model import codec
from sarit.controller.ports import TableUpdate
from sarit.core.errors import Conflict, Exists, Invalid, NotFound
from sarit.core.links import LinkDirection, LinkRole, LinkSettings, LinkState, LinkStatus, StreamProblem
from sarit.core.names import StreamName
from sarit.mirror import link_service
from sarit.mirror.link_codec import encode_status
from sarit.mirror.link_service import LinkService
from sarit.mirror.link_table import LinkTable, job_of, stream_of
from sarit.mirror.mirror_records import MirrorRecord, encode_mirror
from sarit.mirror.values import LinkIdentity, MirrorState, MirrorStatus
from sarit.rpc.generated import sarit_pb2 as pb
from sarit.rpc.link_messages import info_of, promotion_of, settings_message, settings_of
from sarit.wire.limits import NO_VERSION
from tests.unit.controller.fakes import Crash, crash_at
from tests.unit.controller.world import World, config
from tests.unit.mirror.test_links import FULL, SETTINGS

ID = bytes(range(16))
HERE, THERE = "here", "there"


class Mirrors:
    """An installation whose promotions only change the record."""

    def __init__(self, controller) -> None:
        self.installation = HERE
        self.catalog = controller.catalog
        self.links = LinkTable(controller.catalog.tables, HERE, lambda: 9)
        self.target = self.attached = self
        self.attached_of: list[str] = []
        self.refused: set[str] = set()

    async def promote_attached(self, link, scope):
        self.attached_of.append(scope)
        return []

    async def promote(self, link, scope, names):
        states = []
        for name in names:
            if name.stream in self.refused:
                states.append(MirrorState(name, MirrorStatus.REFUSED, reason="no"))
                continue
            found = await self.catalog.find(name)
            value = codec.encode_stream(replace(found.record, link=""))
            await self.catalog.update(scope, [TableUpdate(keys.stream_key(name.stream), value, found.version)])
            states.append(MirrorState(name, MirrorStatus.PROMOTED))
        return states

    async def add(self, controller, name: StreamName, link: LinkIdentity) -> None:
        """Make a stream a mirror."""
        await controller.streams.create(name, config(1))
        found = await self.catalog.find(name)
        value = codec.encode_stream(replace(found.record, link=link.name))
        row = encode_mirror(MirrorRecord(link, (THERE,)))
        await self.catalog.update(
            name.scope,
            [
                TableUpdate(keys.stream_key(name.stream), value, found.version),
                TableUpdate(keys.mirror_key(name.stream), row, NO_VERSION),
            ],
        )


class Service:
    def __init__(self, world: World, controller, runs_jobs: bool = True) -> None:
        self.controller = controller
        self.mirrors = Mirrors(controller)
        self.jobs = JobTable(controller.catalog)
        self.peer: str | Exception = THERE
        self.dropped: list[bytes] = []
        self.released: list[str] = []
        self.service = LinkService(
            self.mirrors, controller.streams, world.env, self.contact, self.drop_holds, self.release,
            runs_jobs=runs_jobs,
        )  # fmt: skip

    async def contact(self, settings: LinkSettings) -> str:
        if isinstance(self.peer, Exception):
            raise self.peer
        return self.peer

    async def drop_holds(self, link_id: bytes) -> None:
        self.dropped.append(link_id)

    async def release(self, link) -> str:
        self.released.append(link.name)
        return f"link {link.name} is held for elsewhere"

    async def create(self, name="plant", link_id=ID, settings=SETTINGS, paused=False):
        message = settings_message(settings)
        request = pb.CreateLinkRequest(name=name, linkId=link_id, settings=message, paused=paused)
        return info_of(await self.service.create(request))

    async def change(self, name="plant", state="", settings=None, version=0):
        message = None if settings is None else settings_message(settings)
        request = pb.ChangeLinkRequest(name=name, state=state, settings=message, version=version)
        return info_of(await self.service.change(request))

    async def status(self, name="plant"):
        return info_of(await self.service.status(name))

    async def promote(self, name="plant", planned=False):
        return promotion_of(await self.service.promote(name, planned=planned))


def run(test):
    async def main() -> None:
        world = World()
        controller = await world.controller()
        await controller.scopes.create("_system")
        await controller.scopes.create("a")
        await controller.scopes.create("b")
        await test(Service(world, controller), world, controller)

    asyncio.run(main())


def test_settings_and_links_survive_their_messages() -> None:
    for settings in (SETTINGS, FULL):
        assert settings_of(settings_message(settings)) == settings
    with pytest.raises(Invalid, match="the direction of a link is 'up': give push or pull"):
        settings_of(pb.LinkSettings(direction="up"))
    with pytest.raises(Invalid, match="cannot be printed"):
        settings_of(pb.LinkSettings(direction="\0"))
    with pytest.raises(Invalid, match="the type 9"):
        message = settings_message(FULL)
        message.retention.retentionType = 9  # type: ignore[assignment]
        settings_of(message)


def test_a_link_is_created_listed_and_deleted() -> None:
    async def test(s, world, controller) -> None:
        made = await s.create()
        assert (made.state, made.role, made.peer_installation) == (LinkState.ACTIVE, LinkRole.ACTIVE, THERE)
        assert made.created_ms == world.env.clock.wall_ms()
        (job,) = await s.jobs.list(stream_of("plant"))
        assert (job.settings, str(job.key)) == (ID, "_system/_link-plant/link/plant")
        assert (await s.create()).version == made.version  # repeated: nothing changes
        with pytest.raises(Exists, match="give another name"):
            await s.create(link_id=bytes(16))
        claim = await s.jobs.claim(await s.jobs.find(job_of("plant")), "w:1")
        status = LinkStatus(True, 5, 3, 100, 1.5, failing=1, problems=(StreamProblem("a/x", "refused"),))
        await claim.save(encode_status(status))
        found = await s.status()
        assert (found.status, found.holder) == (status, "w:1")
        (listed,) = (await s.service.all()).links
        assert (listed.status.failing, len(listed.status.problems)) == (1, 0)
        await s.service.delete("plant")
        assert list((await s.service.all()).links) == []
        assert s.dropped == [ID]
        assert await s.jobs.find(job_of("plant")) is None
        assert await controller.catalog.find(stream_of("plant")) is None
        with pytest.raises(NotFound, match="there is no link plant"):
            await s.service.delete("plant")
        await s.create(link_id=b"\1" * 16)  # another one of the name
        assert (await s.jobs.list(stream_of("plant")))[0].settings == b"\1" * 16

    run(test)


def test_the_source_of_a_link_that_pulls_hears_of_its_end() -> None:
    async def test(s, world, controller) -> None:
        pulls = replace(SETTINGS, direction=LinkDirection.PULL)
        await s.create("pushes", settings=replace(SETTINGS, hold_bytes=1 << 30))
        assert await s.service.delete("pushes") == ""
        await s.create("holds-nothing", settings=pulls)
        assert await s.service.delete("holds-nothing") == ""
        assert s.released == []
        await s.create("pulls", settings=replace(pulls, hold_bytes=1 << 30))
        assert await s.service.delete("pulls") == "link pulls is held for elsewhere"
        assert s.released == ["pulls"]
        assert list((await s.service.all()).links) == []

    run(test)


def test_a_bad_link_is_refused_before_anything_is_stored() -> None:
    async def test(s, world, controller) -> None:
        with pytest.raises(Invalid, match="16 bytes"):
            await s.create(link_id=b"x")
        with pytest.raises(Invalid, match="never the password"):
            await s.create(settings=replace(SETTINGS, user="a", password="secret"))
        s.peer = Invalid("this is another version")
        with pytest.raises(Invalid, match="another version"):
            await s.create()
        s.peer = HERE
        with pytest.raises(Invalid, match="from this installation to itself"):
            await s.create()
        with pytest.raises(Invalid, match="start it with --jobs on"):
            await Service(world, controller, runs_jobs=False).create()
        assert await s.mirrors.links.list() == []
        s.peer = ""  # away
        assert (await s.create()).peer_installation == ""

    run(test)


@pytest.mark.parametrize("after", [False, True])
def test_a_creation_and_a_deletion_that_were_interrupted_are_completed(after: bool) -> None:
    async def test(s, world, controller) -> None:
        for number in range(5, 90):  # a controller creates four tables when it starts
            dying = await world.controller(faults := crash_at(number, after=after))
            try:
                await Service(world, dying).create()
            except Crash:
                if await s.mirrors.links.get("plant") is not None:
                    await s.change(state="active")
            await s.create()
            assert [job.settings for job in await s.jobs.list(stream_of("plant"))] == [ID]
            dying = await world.controller(faults := crash_at(number, after=after))
            try:
                await Service(world, dying).service.delete("plant")
                finished = len(faults.calls) < number
            except Crash:
                finished = False
            if await s.mirrors.links.get("plant") is not None:
                await s.service.delete("plant")
            assert await s.jobs.find(job_of("plant")) is None
            if finished:
                return
        raise AssertionError("the calls never ended")

    run(test)


def test_a_link_is_paused_resumed_and_changed() -> None:
    async def test(s, world, controller) -> None:
        made = await s.create(paused=True)
        assert made.state is LinkState.PAUSED
        assert (await s.change(state="active")).state is LinkState.ACTIVE
        paused = await s.change(state="paused")
        faster = replace(SETTINGS, bytes_per_second=1 << 20)
        with pytest.raises(Conflict, match="read it again"):
            await s.change(settings=faster, version=made.version)
        changed = await s.change(settings=faster, version=paused.version)
        assert (changed.settings, changed.state) == (faster, LinkState.PAUSED)
        for state in ("promoted", "draining", "x"):
            with pytest.raises(Invalid, match="made active or paused"):
                await s.change(state=state)
        s.peer = "third"
        moved = await s.change(settings=replace(faster, peer="other:9090"), version=changed.version)
        assert moved.peer_installation == "third"

    run(test)


def test_a_planned_promotion_begins_where_the_link_runs() -> None:
    async def test(s, world, controller) -> None:
        await s.create()
        assert (await s.promote(planned=True)).link.state is LinkState.DRAINING
        assert (await s.promote(planned=True)).link.state is LinkState.DRAINING
        with pytest.raises(Invalid, match="read-only already"):
            await s.change(state="paused")
        with pytest.raises(Invalid, match="promote them there"):
            await s.promote()
        link = await s.mirrors.links.require("plant")
        await s.mirrors.links.update(replace(link, state=LinkState.PROMOTED))
        assert (await s.promote(planned=True)).link.state is LinkState.PROMOTED
        with pytest.raises(Invalid, match="create one the other way"):
            await s.change(state="active")
        await s.mirrors.links.passive(LinkIdentity(b"\2" * 16, "other", THERE), "a")
        with pytest.raises(Invalid, match="promote unplanned here"):
            await s.promote("other", planned=True)
        with pytest.raises(Invalid, match="change it there"):
            await s.change("other", state="paused")

    run(test)


@pytest.mark.parametrize("role", LinkRole)
def test_an_unplanned_promotion_promotes_all_mirrors_of_its_link_and_no_others(role: LinkRole, monkeypatch) -> None:
    async def test(s, world, controller) -> None:
        runs_at = HERE if role is LinkRole.ACTIVE else THERE
        link, other = LinkIdentity(ID, "plant", runs_at), LinkIdentity(b"\2" * 16, "other", THERE)
        if role is LinkRole.ACTIVE:
            await s.create(settings=replace(SETTINGS, direction=LinkDirection.PULL))
        names = [StreamName(scope, f"x{number}") for scope in "ab" for number in range(5)]
        for name in names:
            await s.mirrors.links.passive(link, name.scope)
            await s.mirrors.add(controller, name, link)
        await s.mirrors.links.passive(other, "a")
        await s.mirrors.add(controller, StreamName("a", "theirs"), other)
        await controller.streams.create(StreamName("a", "ours"), config(1))
        monkeypatch.setattr(link_service, "MAX_MIRROR_STREAMS_PER_CALL", 2)
        s.mirrors.refused = {"x3"}
        promoted = await s.promote()
        assert (promoted.promoted, promoted.left) == (8, 2)
        assert [problem.stream for problem in promoted.problems] == ["a/x3", "b/x3"]
        assert promoted.link.state is LinkState.PROMOTED
        s.mirrors.refused = set()
        assert (await s.promote()).promoted == 2
        done = await s.promote()
        assert (done.promoted, done.left, done.problems) == (0, 0, ())
        assert set(s.mirrors.attached_of) == {"a", "b", "_system"}
        left = [n for n in (*names, StreamName("a", "theirs")) if (await controller.catalog.find(n)).record.mirrored]
        assert left == [StreamName("a", "theirs")]

    run(test)


def test_a_promotion_of_many_mirrors_takes_several_calls(monkeypatch) -> None:
    async def test(s, world, controller) -> None:
        link = LinkIdentity(ID, "plant", THERE)
        for number in range(6):
            await s.mirrors.links.passive(link, "a")
            await s.mirrors.add(controller, StreamName("a", f"x{number}"), link)
        monkeypatch.setattr(link_service, "MAX_MIRROR_STREAMS_PER_CALL", 2)
        monkeypatch.setattr(link_service, "LINK_PROMOTE_SECONDS", 0.0)
        assert [((p := await s.promote()).promoted, p.left) for _ in range(4)] == [(2, 4), (2, 2), (2, 0), (0, 0)]

    run(test)
