"""Mirrors of a target over the controller's fakes: begun, written, finished, refused."""

from __future__ import annotations

from dataclasses import replace

from sarit.controller.model.records import State
from sarit.core.keyspace import KeyRange
from sarit.mirror.values import MirrorStatus, Write
from tests.unit.controller.world import STREAM, World, halves, run
from tests.unit.mirror.target_world import LINK, Edge, copy, named, ready, target_of


def data_of(world: World, segment: int) -> bytes:
    return world.segments.segments[named(STREAM, segment)].data


def test_stream_grows_in_rounds_over_epochs_and_is_sealed_with_its_source():
    async def test():
        world, edge = World(), Edge(2)
        controller = await world.controller()
        target = target_of(controller, world.segments, world.env)
        state = await ready(target, edge.facts())
        assert (state.position.epoch, state.position.lengths) == (0, {0: 0, 1: 0})
        edge.data |= {0: b"a" * 7, 1: b"b" * 3}
        (written,) = await target.write(LINK, "s", [Write(STREAM, 0, 0, edge.data[0], False)])
        assert written.end == 7
        one = edge.round({0: 7, 1: 0})
        state = await copy(target, edge, one)
        assert state.position.lengths == {0: 7, 1: 3}
        one_two = edge.scale([0], halves(0.0, 0.5))
        edge.data |= {one_two[0]: b"c" * 5, 1: b"b" * 4}
        state = await copy(target, edge, edge.round(state.position.lengths, edge.epochs[1:]), size=2)
        assert state.position.epoch == 1
        assert state.position.lengths == {1: 4, one_two[0]: 5, one_two[1]: 0}
        (again,) = await target.states(LINK, "s", [STREAM])
        assert again == state
        assert data_of(world, one_two[0]) == b"c" * 5
        assert world.segments.segments[named(STREAM, 0)].sealed
        assert all(segment.mirror for segment in world.segments.segments.values())
        world.check()
        (state,) = await target.finish(LINK, "s", [edge.round(state.position.lengths, ends=True)])
        assert state.status is MirrorStatus.READY
        assert (await controller.catalog.find(STREAM)).record.state is State.SEALED
        world.check()

    run(test())


def test_source_that_begins_amid_its_epochs_has_a_mirror_that_begins_there():
    async def test():
        world, edge = World(), Edge(2)
        controller = await world.controller()
        target = target_of(controller, world.segments, world.env)
        low = edge.scale([0], [KeyRange(0.0, 0.5)])[0]
        end = edge.scale([low], [KeyRange(0.0, 0.5)])[0]
        edge.data |= {0: b"gone", low: b"lost", end: b"e" * 9, 1: b"b" * 6}
        facts = edge.facts(head={end: 4, 1: 2})
        state = await ready(target, facts)
        assert state.position.lengths == {1: 2}
        assert state.head == {end: 4, 1: 2}
        one = replace(edge.round({1: 2}, edge.epochs[1:]), after={1: 6, end: 9})
        await target.write(LINK, "s", [Write(STREAM, 1, 2, b"bbbb", True), Write(STREAM, end, 4, b"e" * 5, True)])
        (state,) = await target.finish(LINK, "s", [one])
        assert (state.status, state.position.lengths) == (MirrorStatus.READY, {1: 6, end: 9})
        record = (await controller.catalog.find(STREAM)).record
        assert record.head == {end: 4, 1: 2}
        assert sorted(world.segments.segments) == sorted([named(STREAM, 1), named(STREAM, end)])
        assert data_of(world, end) == b"e" * 5
        world.check()

    run(test())


def test_history_of_many_epochs_is_moved_out_of_the_record():
    async def test():
        world, edge = World(), Edge(1)
        controller = await world.controller()
        target = target_of(controller, world.segments, world.env)
        state = await ready(target, edge.facts())
        active = 0
        for n in range(150):
            (active,) = edge.scale([active], [KeyRange(0.0, 1.0)])
            edge.data[active] = b"x" * (n % 3)
        state = await copy(target, edge, edge.round(state.position.lengths, edge.epochs[1:]))
        assert (state.position.epoch, state.position.lengths) == (150, {active: 149 % 3})
        found = (await controller.catalog.find(STREAM)).record
        assert len(found.epochs) <= 64
        assert list(await controller.catalog.epochs(STREAM, found, 0)) == edge.epochs
        ((follower, _),) = await controller.streams.successors_of(STREAM, 0)
        assert follower.segment in edge.epochs[1].ids
        world.check()

    run(test())


def test_mirror_is_truncated_where_its_source_was_if_the_link_says_so():
    async def test():
        world, edge = World(), Edge(2)
        controller = await world.controller()
        target = target_of(controller, world.segments, world.env)
        state = await ready(target, edge.facts())
        edge.data |= {0: b"a" * 7, 1: b"b" * 3}
        state = await copy(target, edge, edge.round(state.position.lengths, head={0: 4, 1: 0}))
        assert (state.head, state.position.lengths) == ({0: 4, 1: 0}, {0: 7, 1: 3})
        (state,) = await target.finish(LINK, "s", [edge.round(state.position.lengths, head={0: 2, 1: 0})])
        assert (state.status, state.head) == (MirrorStatus.READY, {0: 4, 1: 0})
        assert world.segments.segments[named(STREAM, 0)].start == 4
        world.check()

    run(test())
