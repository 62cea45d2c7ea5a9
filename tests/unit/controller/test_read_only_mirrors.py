"""Mirrors are read-only for everybody but their link: what the controller refuses, and what it allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sarit.controller import keys
from sarit.controller.calls.properties import PropertyCalls
from sarit.controller.model.autoscale import segments_to_measure
from sarit.controller.ports import TableUpdate
from sarit.core.errors import Forbidden, NotFound
from sarit.core.names import staging_segment
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy
from sarit.rpc.generated import sarit_pb2 as pb
from sarit.wire.limits import NO_VERSION
from tests.unit.controller.world import STREAM, World, halves, run
from tests.unit.mirror.target_world import LINK, Edge, copy, named, ready, target_of


async def mirror(world: World):
    """A controller with a mirror of one segment, 9 bytes long."""
    controller = await world.controller()
    edge = Edge()
    target = target_of(controller, world.segments, world.env)
    await ready(target, edge.facts())
    edge.data[0] = b"a" * 9
    await copy(target, edge, edge.round({0: 0}))
    return controller, target, edge


def test_nobody_but_the_link_changes_a_mirror():
    async def test():
        world = World()
        controller, *_ = await mirror(world)
        streams = controller.streams
        before = world.scopes()
        config = (await controller.catalog.find(STREAM)).record.config
        wider = replace(config, scaling=ScalingPolicy(ScaleType.FIXED, 0, 0, 2))
        properties = PropertyCalls(controller.catalog)
        change = pb.ChangeStreamPropertiesRequest(scope="s", stream="t", properties={"time-unit": "seconds"})
        for call in (
            streams.update(STREAM, wider),
            streams.scale(STREAM, [0], halves(0.0, 1.0)),
            streams.seal(STREAM),
            controller.transactions.create(STREAM, 1000),
            controller.writers.note(STREAM, "w", 1, {0: 0}),
            properties.changeStreamProperties(change),
        ):
            with pytest.raises(Forbidden, match="sarit link promote up"):
                await call
        assert [s for s in world.segments.segments if "transaction" in s] == []
        assert world.scopes() == before
        measured = replace(wider, scaling=ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 1, 2, 1))
        record = replace((await controller.catalog.find(STREAM)).record, config=measured)
        assert segments_to_measure(record, 0) == ()
        assert segments_to_measure(replace(record, link=""), 0) != ()
        world.check()

    run(test())


def test_mirror_has_a_retention_of_its_own_and_can_be_truncated():
    async def test():
        world = World()
        controller, target, edge = await mirror(world)
        config = (await controller.catalog.find(STREAM)).record.config
        kept = replace(config, retention=RetentionPolicy(RetentionType.SIZE, 1000, 0))
        await controller.streams.update(STREAM, kept)
        await controller.streams.truncate(STREAM, {0: 4})
        edge.version += 1
        state = await ready(target, edge.facts(properties={"time-unit": "seconds"}))
        assert (state.version, state.position.lengths, state.head) == (2, {0: 9}, {0: 4})
        found = (await controller.catalog.find(STREAM)).record
        assert found.config == kept
        given = replace(config, retention=RetentionPolicy(RetentionType.TIME, 7, 0))
        await ready(target, edge.facts(config=given))
        assert (await controller.catalog.find(STREAM)).record.config.retention.type is RetentionType.TIME

    run(test())


def test_mirror_is_deleted_with_what_is_staged_once_its_link_is_gone():
    async def test():
        world = World()
        controller, target, edge = await mirror(world)
        edge.data[0] += b"b" * 5
        await target.write(LINK, "s", edge.writes(edge.round({0: 9})))
        assert staging_segment(named(STREAM, 0), 9) in world.segments.segments
        await target.drop(LINK, "s", [(STREAM, 0)])
        assert list(world.segments.segments) == [named(STREAM, 0)]
        await target.write(LINK, "s", edge.writes(edge.round({0: 9})))
        assert staging_segment(named(STREAM, 0), 9, 1) in world.segments.segments
        await controller.catalog.tables.create(keys.LINKS_TABLE)
        await controller.catalog.tables.update(keys.LINKS_TABLE, [TableUpdate(keys.link_key("up"), b"x", NO_VERSION)])
        with pytest.raises(Forbidden, match="delete the link"):
            await controller.streams.delete(STREAM)
        await controller.catalog.tables.update(keys.LINKS_TABLE, [TableUpdate(keys.link_key("up"), None, NO_VERSION)])
        await controller.streams.delete(STREAM)
        assert world.segments.segments == {}
        with pytest.raises(NotFound):
            await controller.catalog.require(STREAM)
        await controller.scopes.delete("s")

    run(test())


def test_scope_with_mirrors_is_deleted_as_a_whole():
    async def test():
        world = World()
        controller, *_ = await mirror(world)
        await controller.scopes.delete_recursive("s")
        assert world.segments.segments == {}

    run(test())
