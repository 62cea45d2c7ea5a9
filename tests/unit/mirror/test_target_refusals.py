"""What a target refuses, by name, and that a refused link has touched nothing."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sarit.controller.model.epochs import Epoch, SegmentRange
from sarit.core.errors import Exists, Invalid
from sarit.core.links import LinkState
from sarit.core.names import SegmentId, StreamName
from sarit.core.policies import ScaleType, ScalingPolicy, StreamConfig
from sarit.mirror.limits import MAX_MIRROR_STREAMS_PER_CALL, MAX_ROUND_SEGMENTS
from sarit.mirror.link_table import LinkTable
from sarit.mirror.values import Lineage, LinkIdentity, MirrorStatus, Write
from tests.unit.controller.world import STREAM, World, config, halves, run
from tests.unit.mirror.target_world import LINK, OTHER, Edge, copy, named, ready, target_of

MARK = StreamName("s", "_MARKt")
FIRST = Edge(2).epochs[0]
GAP = Epoch(0, (SegmentRange(0.0, 0.4, 0), SegmentRange(0.5, 1.0, 1)), 5)
NAN = Epoch(0, (SegmentRange(0.0, float("nan"), 0), SegmentRange(0.5, 1.0, 1)), 5)
TWICE = Epoch(0, (SegmentRange(0.0, 0.5, 0), SegmentRange(0.5, 1.0, 0)), 5)
YOUNG = Epoch(0, (SegmentRange(0.0, 1.0, SegmentId(3, 0).packed),), 5)

# Facts that no source says, and a part of the reason.
IMPOSSIBLE = {
    "itself": ({"path": ("edge", "core")}, "to itself"),
    "a loop": ({"path": ("core", "edge")}, "loop.*core → edge"),
    "no path": ({"path": ()}, "through no installation"),
    "another scope": ({"name": StreamName("other", "t")}, "another one"),
    "a reader group": ({"name": StreamName("s", "_RGg")}, "name of a user's stream"),
    "a slash": ({"name": StreamName("s", "a/b")}, "name of a user's stream"),
    "a short id": ({"creation_id": b"1"}, "creation id"),
    "a gap in the epoch": ({"first": GAP}, "tile"),
    "no number": ({"first": NAN}, "not a range"),
    "a segment twice": ({"first": TWICE}, "twice"),
    "a segment of a later epoch": ({"first": YOUNG, "head": {SegmentId(3, 0).packed: 0}}, "does not create"),
    "a negative offset": ({"head": {0: -1, 1: 0}}, "out of range"),
    "a huge offset": ({"head": {0: 1 << 62, 1: 0}}, "out of range"),
    "a head of half": ({"head": {0: 0}}, "no cut"),
    "a head elsewhere": ({"head": {7: 0}}, "does not fit"),
    "no head": ({"head": {}}, "does not fit"),
    "a negative version": ({"version": -1}, "number -1"),
    "a huge number": ({"first_number": 1 << 31}, "first number"),
    "a rate out of range": (
        {"config": StreamConfig(ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 1 << 40, 2, 1))}, "out of range|rate",
    ),
    "a tag with a zero": ({"config": StreamConfig(tags=("a\0",))}, "tag"),
    "an unknown property": ({"properties": {"x": "y"}}, "no property x"),
    "a promotion without an id": ({"lineages": (Lineage(b"", 1, "edge"),)}, "has an id"),
    "promotions without end": (
        {"lineages": (Lineage(b"l" * 16, 1, "edge", dict.fromkeys(range(MAX_ROUND_SEGMENTS + 1), 0)),)}, "segments",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_source_that_says_what_cannot_be_gets_no_mirror(case):
    more, reason = IMPOSSIBLE[case]

    async def test():
        world = World()
        controller = await world.controller()
        target = target_of(controller, world.segments, world.env)
        try:
            (state,) = await target.begin(LINK, "s", [Edge(2).facts(**more)])
        except Invalid as error:
            found = str(error)
        else:
            assert state.status is MirrorStatus.REFUSED
            found = state.reason
        assert re.search(reason, found), found
        assert world.segments.segments == {}
        assert world.scopes().get("s", {}) == {}

    run(test())


def test_stream_has_one_source():
    async def test():
        world, edge = World(), Edge()
        controller = await world.controller()
        links = LinkTable(controller.catalog.tables, "core")
        target = target_of(controller, world.segments, world.env, links=links)
        await ready(target, edge.facts())
        (state,) = await target.begin(OTHER, "s", [edge.facts()])
        assert state.status is MirrorStatus.REFUSED
        assert "mirror of link up, and a stream has one source" in state.reason
        again = LinkIdentity(b"n" * 16, LINK.name, LINK.installation)
        (state,) = await target.begin(again, "s", [edge.facts()])
        assert state.status is MirrorStatus.REFUSED  # anybody can say the name of another link
        (up,) = [link for link in await links.list() if link.link_id == LINK.link_id]
        await links.delete(up)
        (state,) = await target.begin(again, "s", [edge.facts()])
        assert state.status is MirrorStatus.READY
        (state,) = await target.begin(LINK, "s", [edge.facts()])
        assert state.status is MirrorStatus.REFUSED

    run(test())


def test_stream_created_again_at_the_source_is_not_taken_for_the_one_before():
    async def test():
        world, edge = World(), Edge()
        controller = await world.controller()
        target = target_of(controller, world.segments, world.env)
        await ready(target, edge.facts())
        edge.data[0] = b"abc"
        await copy(target, edge, edge.round({0: 0}))
        before = world.scopes()
        (state,) = await target.begin(LINK, "s", [edge.facts(creation_id=b"x" * 16)])
        assert (state.status, "created again at its source" in state.reason) == (MirrorStatus.REFUSED, True)
        assert world.scopes() == before

    run(test())


def test_stream_of_a_user_is_left_alone():
    async def test():
        world = World()
        controller = await world.controller()
        await controller.scopes.create("s")
        await controller.streams.create(STREAM, config(1))
        await controller.streams.ready(MARK)
        world.segments.append(named(STREAM, 0), "ff", 1)
        target = target_of(controller, world.segments, world.env)
        before = world.scopes()
        (state,) = await target.begin(LINK, "s", [Edge().facts()])
        assert (state.status, "no mirror of this link" in state.reason) == (MirrorStatus.REFUSED, True)
        (mark,) = await target.begin(LINK, "s", [Edge(name=MARK).facts()])
        assert mark.status is MirrorStatus.REFUSED
        (written,) = await target.write(LINK, "s", [Write(STREAM, 0, 1, b"x", False)])
        assert (written.refused, bool(written.reason)) == (True, True)
        assert world.scopes() == before
        assert world.segments.segments[named(STREAM, 0)].length == 1

    run(test())


def test_link_touches_mirrors_of_its_own_alone():
    async def test():
        world, edge = World(), Edge(2)
        controller = await world.controller()
        target = target_of(controller, world.segments, world.env)
        state = await ready(target, edge.facts())
        edge.data |= {0: b"a" * 4, 1: b"b" * 4}
        one = edge.round(state.position.lengths)
        await target.write(LINK, "s", edge.writes(one))
        tables, segments = world.scopes(), {n: replace(s) for n, s in world.segments.segments.items()}
        for state in (
            *await target.states(OTHER, "s", [STREAM]),
            *await target.begin(OTHER, "s", [edge.facts(version=9)]),
            *await target.finish(OTHER, "s", [one]),
            *await target.promote(OTHER, "s", [STREAM]),
            await target.restart(OTHER, "s", edge.facts(head={0: 9, 1: 9})),
        ):
            assert state.status is MirrorStatus.REFUSED
        direct = [Write(STREAM, 0, 0, b"x", False), Write(STREAM, 1, 4, b"x", True)]
        assert all(written.refused for written in await target.write(OTHER, "s", direct))
        await target.drop(OTHER, "s", [(STREAM, 0), (STREAM, 1)])
        assert world.scopes() == tables
        assert world.segments.segments == segments
        (state,) = await target.finish(LINK, "s", [one])
        assert state.position.lengths == {0: 4, 1: 4}

    run(test())


def test_calls_are_bounded_and_stay_in_their_scope():
    async def test():
        world = World()
        controller = await world.controller()
        target = target_of(controller, world.segments, world.env)
        for link, scope, names in (
            (LINK, "_system", [StreamName("_system", "t")]),
            (LINK, "s", [StreamName("other", "t")]),
            (LINK, "s", [STREAM] * (MAX_MIRROR_STREAMS_PER_CALL + 1)),
            (LinkIdentity(b"", "up", "edge"), "s", [STREAM]),
            (LinkIdentity(b"l" * 16, "", "edge"), "s", [STREAM]),
            (LinkIdentity(b"l" * 16, "u" * 99, "edge"), "s", [STREAM]),
            (LinkIdentity(b"l" * 16, "up\n", "edge"), "s", [STREAM]),
        ):
            with pytest.raises(Invalid):
                await target.states(link, scope, names)
        assert await target.states(LINK, "s", []) == []

    run(test())


def _rounds(edge: Edge) -> dict[str, tuple]:
    """Rounds that no source leads to, from the lengths 4 and 4, and a part of the reason."""
    low, high = edge.scale([0], halves(0.0, 0.5))
    good = edge.round({0: 4, 1: 4}, edge.epochs[1:])
    far = Epoch(1, edge.epochs[1].segments[:1], 6)
    return {
        "back": (replace(good, after=good.after | {0: 3}), "before the mirror"),
        "a segment left out": (replace(good, after={s: n for s, n in good.after.items() if s != low}), "leaves out"),
        "a segment too many": (replace(good, after=good.after | {99: 1}), "has not"),
        "no tiling": (replace(good, epochs=(far,)), "tile"),
        "an epoch before": (replace(good, epochs=(edge.epochs[0],)), "does not follow"),
        "a segment of another epoch": (
            replace(good, epochs=(replace(edge.epochs[1], number=2),)), "does not create",
        ),
        "beyond all offsets": (replace(good, after=good.after | {high: 1 << 62}), "out of range"),
    }  # fmt: skip


@pytest.mark.parametrize("case", _rounds(Edge(2)))
def test_round_that_cannot_be_is_refused(case):
    async def test():
        world, edge = World(), Edge(2)
        controller = await world.controller()
        target = target_of(controller, world.segments, world.env)
        await ready(target, edge.facts())
        edge.data |= {0: b"a" * 4, 1: b"b" * 4}
        await copy(target, edge, edge.round({0: 0, 1: 0}))
        before = world.scopes()
        one, reason = _rounds(edge)[case]
        (state,) = await target.finish(LINK, "s", [one])
        assert state.status is MirrorStatus.REFUSED
        assert re.search(reason, state.reason), state.reason
        assert world.scopes() == before
        world.check()

    run(test())


def test_watermarks_come_before_their_stream_and_go_with_it():
    async def test():
        world = World()
        controller = await world.controller()
        target = target_of(controller, world.segments, world.env)
        states = await target.begin(LINK, "s", [Edge().facts(), Edge(name=MARK).facts()])
        assert [state.name for state in states] == [STREAM, MARK]
        assert world.segments.created == [named(MARK, 0), named(STREAM, 0)]
        with pytest.raises(Exists):
            await controller.streams.create(STREAM, config(1))
        await controller.streams.delete(STREAM)
        assert world.segments.segments == {}

    run(test())


def test_a_promoted_link_makes_no_more_mirrors():
    async def test():
        world, edge = World(), Edge()
        controller = await world.controller()
        links = LinkTable(controller.catalog.tables, "core")
        target = target_of(controller, world.segments, world.env, links=links)
        await ready(target, edge.facts())
        (link,) = await links.list()
        await links.update(replace(link, state=LinkState.PROMOTED))
        other = Edge(name=StreamName("s", "other"))
        elsewhere = Edge(name=StreamName("elsewhere", "other"))
        known, no = await target.begin(LINK, "s", [edge.facts(), other.facts()])
        assert known.status is MirrorStatus.READY  # it is promoted in a moment
        (there,) = await target.begin(LINK, "elsewhere", [elsewhere.facts()])
        for state in (no, there):
            assert (state.status, state.reason) == (
                MirrorStatus.REFUSED,
                "the mirrors of link up are promoted here, and it makes no more: delete the link",
            )
        assert await controller.catalog.find(other.name) is None
        assert not await controller.catalog.scope_exists("elsewhere")

    run(test())
