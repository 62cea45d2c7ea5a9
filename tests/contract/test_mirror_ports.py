"""One suite for the two ports of a link: installations in memory, over a real store, and behind their messages."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from sarit.controller import keys
from sarit.controller.model.records import GroupRecord, State
from sarit.controller.service import handlers
from sarit.core.errors import NotFound, Truncated
from sarit.core.keyspace import KeyRange
from sarit.core.links import LinkDirection, LinkSettings
from sarit.core.names import SegmentId, StreamName
from sarit.core.policies import ScaleType, ScalingPolicy, StreamConfig
from sarit.env.real import real_env
from sarit.mirror import group_states, growth
from sarit.mirror.attached_calls import AttachedCalls
from sarit.mirror.attachments import NO_POSITION, TableAsk, TableWrite
from sarit.mirror.calls import MirrorCalls
from sarit.mirror.limits import MIRROR_PROTOCOL
from sarit.mirror.peer import Peer
from sarit.mirror.remote import RemoteSource, RemoteTarget
from sarit.mirror.source import LocalSource
from sarit.mirror.target import LocalTarget
from sarit.mirror.values import FROM_HEAD, FROM_TAIL, LinkIdentity, MirrorStatus, Position, Range, Round, Write
from sarit.rpc.mirror_methods import MIRROR
from sarit.rpc.request_limiter import RequestLimiter
from tests.limits import HANG_SECONDS
from tests.rpc_calls import listen
from tests.unit.mirror.installations import installation
from tests.unit.mirror.memory_sides import MemorySource, MemoryTarget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from sarit.mirror.ports import AttachedSource, AttachedTarget, MirrorSource, MirrorTarget
    from sarit.mirror.values import MirrorState, Offer, StreamFacts
    from tests.unit.mirror.installations import Installation

LINK = LinkIdentity(b"l" * 16, "up", "edge")
OTHER = LinkIdentity(b"o" * 16, "another", "edge")
T = StreamName("app", "t")
NO_LIMIT = 1 << 40
MISSING = StreamName("app", "missing")


class MemoryEdge:
    """What users do at a source in memory."""

    def __init__(self, source: MemorySource) -> None:
        self._source = source

    async def create(self, name: StreamName, segments: int) -> None:
        self._source.create(str(name), segments)

    async def append(self, name: StreamName, which: int, data: bytes) -> None:
        self._source.streams_by_name[name].append(which, data)

    async def split(self, name: StreamName) -> None:
        """Split the first segment in two."""
        self._source.streams_by_name[name].scale(0)

    async def truncate(self, name: StreamName) -> None:
        """Truncate at the end."""
        self._source.streams_by_name[name].truncate(-1)

    async def record_cut(self, name: StreamName) -> None:
        """Have the cut of a stream recorded, as it is now and then."""

    async def held(self, link: LinkIdentity) -> list[StreamName]:
        """Return the streams that are held for a link."""
        return sorted(name for (link_id, name) in self._source.holders if link_id == link.link_id)


class StoredEdge:
    """What users do at an installation."""

    def __init__(self, here: Installation) -> None:
        self._here = here

    async def create(self, name: StreamName, segments: int) -> None:
        config = StreamConfig(ScalingPolicy(ScaleType.FIXED, 0, 0, segments))
        await self._here.controller.streams.create(name, config)

    async def _current(self, name: StreamName) -> Any:
        return (await self._here.controller.catalog.require(name)).record.current.segments

    async def append(self, name: StreamName, which: int, data: bytes) -> None:
        segments = self._here.controller.segments
        segment = name.segment(SegmentId.unpack((await self._current(name))[which].segment))
        at = (await segments.info(segment)).length
        assert await segments.append_at_many([(segment, at, data)]) == [at + len(data)]

    async def split(self, name: StreamName) -> None:
        one = (await self._current(name))[0]
        middle = (one.low + one.high) / 2
        ranges = [KeyRange(one.low, middle), KeyRange(middle, one.high)]
        await self._here.controller.streams.scale(name, [one.segment], ranges)

    async def truncate(self, name: StreamName) -> None:
        segments = self._here.controller.segments
        current = [one.segment for one in await self._current(name)]
        infos = await segments.infos([name.segment(SegmentId.unpack(s)) for s in current])
        await self._here.controller.streams.truncate(
            name, {s: info.length for s, info in zip(current, infos, strict=True) if info is not None}
        )

    async def record_cut(self, name: StreamName) -> None:
        timeline: Any = self._here.controller.timeline
        timeline._env.clock.seconds += 60
        await timeline.record(name)

    async def held(self, link: LinkIdentity) -> list[StreamName]:
        catalog = self._here.controller.catalog
        rows = await catalog.scan_once("app", keys.STREAMS)
        names = [StreamName("app", key[len(keys.STREAMS) :].decode()) for key, _ in rows]
        found = await catalog.get("app", [keys.hold_key(name.stream, link.link_id) for name in names])
        return [name for name, row in zip(names, found, strict=True) if row is not None]


@dataclass
class Sides:
    """An installation as both sides of links."""

    source: MirrorSource
    target: MirrorTarget


@dataclass
class Ends:
    """The two ends of a link, and what users do at its source."""

    source: MirrorSource
    target: MirrorTarget
    edge: MemoryEdge | StoredEdge
    stored: tuple[Installation, Installation] | None = None

    async def facts(self, start_ms: int = FROM_HEAD) -> StreamFacts:
        (found,) = await self.source.facts("app", [T], start_ms)
        assert found is not None
        return found

    async def offer(self, position: Position, limit: int = NO_LIMIT) -> Offer:
        (found,) = await self.source.offers("app", [position], limit)
        assert found is not None
        return found

    async def begin(self, link: LinkIdentity = LINK, **more: Any) -> MirrorState:
        (state,) = await self.target.begin(link, "app", [replace(await self.facts(), **more)])
        return state

    async def state(self) -> MirrorState:
        (state,) = await self.target.states(LINK, "app", [T])
        return state

    async def staged(self, state: MirrorState, *, but: int = -1, limit: int = NO_LIMIT) -> Round:
        """Stage what is behind a mirror, but of one segment.  Returns the round."""
        position = state.position
        assert position is not None
        offer = await self.offer(position, limit)
        last = offer.epochs[-1].ids if offer.epochs else set(position.lengths)
        for segment, end in sorted(offer.lengths.items()):
            at = position.lengths.get(segment, 0)
            if at < end and segment != but:
                data = await self.source.read("app", [Range(T, segment, at, end - at)])
                (written,) = await self.target.write(LINK, "app", [Write(T, segment, at, data[0], True)])
                assert (written.end, written.refused, written.reason) == (end, False, "")
        sealed = frozenset(offer.lengths.keys() - last)
        return Round(T, dict(position.lengths), dict(offer.lengths), sealed, offer.epochs)

    async def finish(self, one: Round) -> MirrorState:
        (state,) = await self.target.finish(LINK, "app", [one])
        return state


async def _stored_sides(here: Installation) -> Sides:
    c = here.controller
    source: Any = LocalSource(
        c.catalog, c.streams, c.segments, here.store.env, here.name, c.growth, attached=here.attached_source
    )
    target: Any = LocalTarget(
        c.catalog, c.streams, c.scopes, c.segments, here.store.env, here.name, here.attached_target, here.links
    )
    return Sides(source, target)


async def _peer_of(sides: Sides, stack: AsyncExitStack) -> Peer:
    server, port = await listen(handlers(MIRROR, (MirrorCalls(sides), AttachedCalls(sides)), RequestLimiter()))
    stack.callback(server.close)
    made = Peer(LinkSettings(LinkDirection.PUSH, f"127.0.0.1:{port}"), real_env(), "copier", "")
    stack.push_async_callback(made.close)
    return made


@asynccontextmanager
async def ends_of(kind: str) -> AsyncIterator[Ends]:
    if kind == "in memory":
        memory, target = MemorySource("edge"), MemoryTarget("core")
        yield Ends(memory, target, MemoryEdge(memory))
        return
    async with AsyncExitStack() as stack:
        edge, core = await installation("edge", 1), await installation("core", 2)
        stack.push_async_callback(edge.stop)
        stack.push_async_callback(core.stop)
        await edge.controller.scopes.create("app")
        there, here = await _stored_sides(edge), await _stored_sides(core)
        if kind == "local":
            yield Ends(there.source, here.target, StoredEdge(edge), (edge, core))
            return
        source, target = await _peer_of(there, stack), await _peer_of(here, stack)
        yield Ends(RemoteSource(source), RemoteTarget(target), StoredEdge(edge), (edge, core))


def _run(kind: str, test: Callable[[Ends], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(HANG_SECONDS), ends_of(kind) as ends:
            await test(ends)

    asyncio.run(main())


@pytest.fixture(params=["in memory", "local", "remote"])
def run(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    return lambda test: _run(request.param, test)


@pytest.fixture(params=["local", "remote"])
def run_stored(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    """With installations that have tables and reader groups."""
    return lambda test: _run(request.param, test)


# -- the source -----------------------------------------------------------------------------------


def test_each_side_says_which_installation_it_is(run) -> None:
    async def test(ends: Ends) -> None:
        source, target = await ends.source.site(), await ends.target.site()
        assert (source.installation, target.installation) == ("edge", "core")
        assert source.protocol == target.protocol == MIRROR_PROTOCOL

    run(test)


def test_scopes_and_streams_are_listed_in_pages_to_an_empty_one(run) -> None:
    async def test(ends: Ends) -> None:
        names = [StreamName("app", f"s{number}") for number in range(7)]
        for name in names:
            await ends.edge.create(name, 1)
        scopes: list[str] = []
        while page := await ends.source.scopes(scopes[-1] if scopes else ""):
            scopes += page
        assert scopes == ["app"]
        found: list[str] = []
        while streams := await ends.source.streams("app", found[-1] if found else ""):
            found += [one.name.stream for one in streams]
        assert [name for name in found if not name.startswith("_")] == [name.stream for name in names]
        assert await ends.source.streams("nowhere", "") == []

    run(test)


def test_facts_are_those_of_one_creation(run) -> None:
    async def test(ends: Ends) -> None:
        await ends.edge.create(T, 2)
        first, missing = await ends.source.facts("app", [T, MISSING], FROM_HEAD)
        assert missing is None
        assert (first.name, first.head, first.path) == (T, {0: 0, 1: 0}, ("edge",))
        assert first.first.ids == {0, 1}
        assert len(first.creation_id) == 16
        await ends.edge.append(T, 0, b"one")
        assert (await ends.facts(FROM_TAIL)).head == {0: 3, 1: 0}
        await ends.edge.truncate(T)
        later = await ends.facts()
        assert later.head == {0: 3, 1: 0}
        assert later.version > first.version
        assert later.creation_id == first.creation_id

    run(test)


def test_offers_lead_from_a_position_to_the_end_over_epochs(run) -> None:
    async def test(ends: Ends) -> None:
        await ends.edge.create(T, 1)
        await ends.edge.append(T, 0, b"abcde")
        beginning = Position(T, 0, {0: 0})
        first = await ends.offer(beginning)
        assert (first.lengths, first.epochs, first.sealed, first.behind) == ({0: 5}, (), frozenset(), 5)
        await ends.edge.split(T)
        await ends.edge.append(T, 1, b"xyz")
        found, missing = await ends.source.offers("app", [beginning, Position(MISSING, 0, {0: 0})], NO_LIMIT)
        assert missing is None
        low, high = sorted(found.epochs[0].ids)
        assert found.lengths == {0: 5, low: 0, high: 3}
        assert found.sealed == {0}
        end = Position(T, 1, {low: 0, high: 3})
        nothing = await ends.offer(end)
        assert (nothing.lengths, nothing.epochs, nothing.behind) == ({low: 0, high: 3}, (), 0)
        for strange in (Position(T, 7, {0: 0}), Position(T, 0, {5: 0})):
            assert (await ends.offer(strange)).lengths == {}

    run(test)


def test_ranges_are_read_in_order(run) -> None:
    async def test(ends: Ends) -> None:
        await ends.edge.create(T, 2)
        await ends.edge.append(T, 0, b"abcde")
        await ends.edge.append(T, 1, b"xyz")
        assert await ends.source.read("app", [Range(T, 1, 1, 2), Range(T, 0, 0, 5)]) == [b"yz", b"abcde"]
        await ends.edge.truncate(T)
        with pytest.raises(Truncated):
            await ends.source.read("app", [Range(T, 0, 0, 5)])
        with pytest.raises(NotFound):
            await ends.source.read("app", [Range(MISSING, 0, 0, 5)])

    run(test)


def test_a_link_learns_once_which_streams_have_grown(run, monkeypatch) -> None:
    monkeypatch.setattr(growth, "GROWN_INTERVAL_SECONDS", 0.002)
    monkeypatch.setattr(growth, "GROWN_PAUSE_FACTOR", 0)

    async def test(ends: Ends) -> None:
        await ends.edge.create(T, 1)
        assert await ends.source.grown(LINK, "app", 0.05) is None
        while await ends.source.grown(LINK, "app", 0.05):
            pass
        await ends.edge.append(T, 0, b"one")
        assert await ends.source.grown(LINK, "app", 5.0) == [T]
        assert await ends.source.grown(LINK, "app", 0.05) == []

    run(test)


def test_a_link_holds_streams_until_it_lets_them_go(run) -> None:
    async def test(ends: Ends) -> None:
        names = [StreamName("app", name) for name in "abc"]
        for name in names:
            await ends.edge.create(name, 1)
        for link in (LINK, OTHER):
            await ends.source.hold(link, "app", [(name, {0: 0}) for name in names])
        assert await ends.edge.held(LINK) == names
        await ends.source.hold(LINK, "app", [(names[1], {})])
        assert await ends.edge.held(LINK) == [names[0], names[2]]
        for _ in range(2):
            await ends.source.hold(LINK, "app", [])
            assert await ends.edge.held(LINK) == []
        assert await ends.edge.held(OTHER) == names

    run(test)


def test_a_fenced_stream_ends_where_it_is_and_stays_fenced(run) -> None:
    async def test(ends: Ends) -> None:
        await ends.edge.create(T, 1)
        await ends.edge.append(T, 0, b"one")
        for _ in range(2):
            await ends.source.fence(LINK, "app", [T], b"n" * 16)
            assert (await ends.facts()).fenced
        found = await ends.offer(Position(T, 0, {0: 0}))
        assert (found.lengths, found.more) == ({0: 3}, False)

    run(test)


# -- the target -----------------------------------------------------------------------------------


def test_a_mirror_is_begun_once_by_one_link(run) -> None:
    async def test(ends: Ends) -> None:
        await ends.edge.create(T, 2)
        (unknown,) = await ends.target.states(LINK, "app", [T])
        assert (unknown.status, unknown.position) == (MirrorStatus.READY, None)
        state = await ends.begin()
        assert (state.status, state.position) == (MirrorStatus.READY, Position(T, 0, {0: 0, 1: 0}))
        assert await ends.begin() == state
        assert await ends.state() == state
        for refused in (
            await ends.begin(OTHER),
            await ends.begin(path=("core", "edge")),
            await ends.begin(creation_id=b"c" * 16),
        ):
            assert refused.status is MirrorStatus.REFUSED
            assert refused.reason

    run(test)


def test_bytes_are_appended_at_their_offset_only(run) -> None:
    async def test(ends: Ends) -> None:
        await ends.edge.create(T, 2)
        await ends.begin()
        found = await ends.target.write(
            LINK, "app", [Write(T, 0, 0, b"abc", False), Write(T, 1, 2, b"x", False), Write(T, 0, 3, b"de", False)]
        )
        assert [(one.end, one.refused) for one in found] == [(3, False), (0, True), (5, False)]
        (again,) = await ends.target.write(LINK, "app", [Write(T, 0, 0, b"abc", False)])
        assert (again.end, again.refused) == (5, True)
        (other,) = await ends.target.write(OTHER, "app", [Write(T, 0, 5, b"f", False)])
        assert other.refused
        assert (await ends.state()).position == Position(T, 0, {0: 5, 1: 0})

    run(test)


def test_a_round_is_finished_as_a_whole_or_not(run) -> None:
    async def test(ends: Ends) -> None:
        await ends.edge.create(T, 2)
        await ends.edge.append(T, 0, b"abcde")
        await ends.edge.append(T, 1, b"xyz")
        await ends.edge.split(T)
        await ends.edge.append(T, 0, b"later")
        begun = await ends.begin()
        one = await ends.staged(begun, but=1)
        state = await ends.state()
        assert (state.position, state.staged) == (begun.position, {0: 5})
        assert (await ends.finish(one)).position == begun.position
        one = await ends.staged(replace(begun, position=Position(T, 0, {0: 5, 1: 0})))
        one = replace(one, before={0: 0, 1: 0})
        state = await ends.finish(one)
        last = one.epochs[-1].ids
        assert state.position == Position(T, 1, {s: one.after[s] for s in last})
        assert state.staged == {}
        assert await ends.finish(one) == state
        (late,) = await ends.target.write(LINK, "app", [Write(T, 0, 5, b"f", False)])
        assert late.refused or late.reason

    run(test)


def test_a_stream_of_several_segments_is_copied_in_pieces_over_its_epochs(run) -> None:
    async def test(ends: Ends) -> None:
        await ends.edge.create(T, 2)
        for data in (b"a" * 40, b"b" * 30):
            await ends.edge.append(T, 0, data)
            await ends.edge.append(T, 1, data)
            await ends.edge.record_cut(T)
        await ends.edge.split(T)
        await ends.edge.append(T, 1, b"c" * 20)
        await ends.edge.record_cut(T)
        await ends.edge.append(T, 0, b"d" * 9)
        state, copied = await ends.begin(), list[int]()
        while True:
            one = await ends.staged(state, limit=10)
            if one.after == one.before and not one.epochs:
                break
            copied.append(sum(at - one.before.get(s, 0) for s, at in one.after.items()))
            state = await ends.finish(one)
        assert state.position is not None
        assert state.position.epoch == 1
        assert sum(copied) == 169
        assert max(copied) <= 80
        assert (await ends.offer(state.position)).behind == 0

    run(test)


def test_what_is_staged_is_dropped(run) -> None:
    async def test(ends: Ends) -> None:
        await ends.edge.create(T, 2)
        await ends.edge.append(T, 0, b"abcde")
        await ends.edge.append(T, 1, b"xyz")
        begun = await ends.begin()
        for _ in range(2):
            one = await ends.staged(begun)
            await ends.target.drop(LINK, "app", [(T, 0)])
            assert (await ends.state()).staged == {1: 3}
            assert (await ends.finish(one)).position == begun.position
            await ends.target.drop(LINK, "app", [(T, 1)])
            assert (await ends.state()).staged == {}
        state = await ends.finish(await ends.staged(begun))
        assert state.position == Position(T, 0, {0: 5, 1: 3})

    run(test)


def test_a_mirror_begins_again_behind_lost_bytes(run) -> None:
    async def test(ends: Ends) -> None:
        await ends.edge.create(T, 1)
        await ends.begin()
        await ends.target.write(LINK, "app", [Write(T, 0, 0, b"ab", False)])
        await ends.edge.append(T, 0, b"abcde")
        await ends.edge.truncate(T)
        facts = await ends.facts()
        for _ in range(2):
            while (state := await ends.target.restart(LINK, "app", facts)).status is MirrorStatus.BUSY:
                pass
            assert (state.status, state.position) == (MirrorStatus.READY, Position(T, 0, {0: 5}))
            assert state.head == {0: 5}

    run(test)


def test_a_promoted_mirror_refuses_its_link_by_the_lineage(run) -> None:
    async def test(ends: Ends) -> None:
        await ends.edge.create(T, 1)
        await ends.edge.append(T, 0, b"abcde")
        await ends.finish(await ends.staged(await ends.begin()))
        (promoted,) = await ends.target.promote(LINK, "app", [T])
        assert promoted.status is MirrorStatus.PROMOTED
        assert promoted.lineage is not None
        assert promoted.lineage.ends == {0: 5}
        for again in (*await ends.target.promote(LINK, "app", [T]), await ends.begin(), await ends.state()):
            assert (again.status, again.lineage) == (MirrorStatus.PROMOTED, promoted.lineage)
        (late,) = await ends.target.write(LINK, "app", [Write(T, 0, 5, b"f", False)])
        assert late.refused
        (state,) = await ends.target.finish(LINK, "app", [Round(T, {0: 5}, {0: 6}, frozenset(), ())])
        assert state.status is MirrorStatus.PROMOTED

    run(test)


# -- what goes with streams -------------------------------------------------------------------------


def test_a_table_is_compared_then_follows_and_is_promoted(run_stored) -> None:
    async def test(ends: Ends) -> None:
        edge, core = ends.stored
        source: AttachedSource = ends.source.attached
        target: AttachedTarget = ends.target.attached
        await edge.make_table("app", "t")
        (segment,) = await edge.segments("app", "t")
        await edge.change(segment, aa="1")
        (facts,) = await source.tables("app", "")
        assert (facts.name, facts.partitions, facts.path) == (T, 1, ("edge",))
        assert await source.tables("app", "t") == []
        (state,) = await target.begin_tables(LINK, "app", [facts])
        assert state.status is MirrorStatus.READY
        (refused,) = await target.begin_tables(OTHER, "app", [facts])
        assert (refused.status, bool(refused.reason)) == (MirrorStatus.REFUSED, True)
        state = await target.compare_table(LINK, "app", T, 0)
        rows = await source.table_changes("app", TableAsk(T, facts.creation_id, 0, NO_POSITION))
        assert rows.rows == ((b"aa", b"1"),)
        state = await target.write_table(LINK, "app", TableWrite(rows, state.partitions[0], ends_comparison=True))
        assert state.partitions[0].source == rows.until
        await edge.change(segment, aa=None, bb="2")
        changes = await source.table_changes("app", TableAsk(T, facts.creation_id, 0, rows.until))
        assert not changes.lost
        late = TableWrite(changes, state.partitions[0])
        state = await target.write_table(LINK, "app", late)
        assert state.partitions[0].source == changes.until
        assert await target.write_table(LINK, "app", late) == state
        (mirror,) = await core.segments("app", "t")
        assert await core.rows(mirror) == {b"bb": b"2"}
        with pytest.raises(NotFound):
            await source.table_changes("app", TableAsk(T, b"c" * 16, 0, NO_POSITION))
        for _ in range(2):
            (promoted,) = await target.promote_attached(LINK, "app")
            assert (promoted.name, promoted.status) == (T, MirrorStatus.PROMOTED)

    run_stored(test)


def test_cuts_and_groups_go_with_their_mirrors(run_stored) -> None:
    async def test(ends: Ends) -> None:
        edge, _ = ends.stored
        source: AttachedSource = ends.source.attached
        target: AttachedTarget = ends.target.attached
        await ends.edge.create(T, 1)
        await ends.edge.append(T, 0, b"abcde")
        await edge.controller.timeline.record(T)
        found = await source.cuts("app", [(T, 0)])
        assert [one.name for one in found] == [T]
        await ends.begin()
        await target.add_cuts(LINK, "app", found)
        assert await target.cut_times(LINK, "app", [T]) == [0]  # the mirror does not reach there
        await ends.finish(await ends.staged(await ends.state()))
        for _ in range(2):
            await target.add_cuts(LINK, "app", found)
            assert await target.cut_times(LINK, "app", [T]) == [found[0].cuts[-1].time_ms]
        starts = ((T, ((0, 0),)),)
        group = GroupRecord(State.ACTIVE, "00000000-0000-0000-0000-000000000000", 0, 3000, 30_000, 3, 0, 0, starts, ())
        record = await edge.controller.groups.create("app", "g", group)
        segments = edge.controller.segments
        now = await group_states.read_state(edge.controller.catalog, segments, "app", "g")
        if now.state is None:
            await group_states.begin(segments, now.segment, now.end, record)
        (facts,) = await source.groups("app", "")
        assert facts.group == "g"
        assert await source.groups("app", "g") == []
        assert await target.put_groups(LINK, "app", [facts]) == [""]

    run_stored(test)
