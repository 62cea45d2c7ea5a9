"""Invalid names are refused on entry.  Stored ones, and work that fails, do not stop the work on other streams."""

from __future__ import annotations

import asyncio
import dataclasses
import logging

import pytest

from sarit.controller import keys
from sarit.controller.model import codec
from sarit.controller.model.records import GroupRecord, State
from sarit.controller.ports import TableUpdate
from sarit.core.errors import Invalid, NotFound
from sarit.core.limits import MAX_TABLE_KEY_BYTES
from sarit.core.metering import ScaleAdvice
from sarit.core.names import StreamName
from sarit.core.policies import RetentionPolicy, RetentionType, StreamConfig
from sarit.rpc.generated import controller_pb2 as pb
from sarit.wire.limits import NO_VERSION
from tests.unit.controller.test_api import api
from tests.unit.controller.test_crashes import group
from tests.unit.controller.world import STREAM, World, run, segment

KEPT = StreamConfig(retention=RetentionPolicy(RetentionType.TIME, 100_000))
OTHER = StreamName("s", "u")


async def maintained(c):
    return [name for name, _ in await c.catalog.maintained_streams(keys.RETENTION_INDEX)]


def test_call_with_invalid_stream_name_leaves_no_index_entry():
    """The name was entered before the stream was read.  It was unreadable, which ended retention of all streams."""

    async def main():
        async with api() as c:
            policy = pb.RetentionPolicy(retentionType=pb.RetentionPolicy.TIME, retentionParam=100_000)
            scaling = pb.ScalingPolicy(minNumSegments=1)
            names = [("s", "t/u"), ("s", "a b"), ("s", ""), ("s", "none"), ("s/t", "u"), ("", "u"), ("none", "u")]
            for scope, stream in names:
                info = pb.StreamInfo(scope=scope, stream=stream)
                config = pb.StreamConfig(streamInfo=info, retentionPolicy=policy, scalingPolicy=scaling)
                updated, status = (await c.updateStream(config)).status, pb.UpdateStreamStatus
                assert updated in (status.STREAM_NOT_FOUND, status.SCOPE_NOT_FOUND)
                if (scope, stream) != ("s", "none"):
                    created, status = (await c.createStream(config)).status, pb.CreateStreamStatus
                    assert created in (status.INVALID_STREAM_NAME, status.SCOPE_NOT_FOUND)
            assert c.world.tables.tables[keys.MAINTENANCE_TABLE] == {}
            with pytest.raises(Invalid):
                await c.controller.catalog.index_for_maintenance(keys.RETENTION_INDEX, StreamName("s", "t/u"))

    run(main())


NAMES = ["", "a b", "a/b", "a_b", "__a", "ä", "a\n", "a\0", "_", "x" * 256, "_" + "x" * 255]


def test_every_kind_of_name_is_checked_by_the_controller_as_pravega_does():
    """Clients check some of these.  The Rust client checks none, and the controller must answer by a status."""

    async def main():
        async with api() as c:
            scaling = pb.ScalingPolicy(minNumSegments=1)

            async def scope(name):
                return (await c.createScope(pb.ScopeInfo(scope=name))).status

            async def stream(name):
                info = pb.StreamInfo(scope="s", stream=name)
                return (await c.createStream(pb.StreamConfig(streamInfo=info, scalingPolicy=scaling))).status

            async def reader_group(name):
                return (await c.createReaderGroup(pb.ReaderGroupConfiguration(scope="s", readerGroupName=name))).status

            async def table(name):
                config = pb.KeyValueTableConfig(scope="s", kvtName=name, partitionCount=1, primaryKeyLength=1)
                return (await c.createKeyValueTable(config)).status

            internal, user = ["_x", "x" * 255, "_" + "x" * 254], ["x" * 250, "a.b-C", "7"]
            for create, invalid, allowed, refused in (
                (scope, pb.CreateScopeStatus.INVALID_SCOPE_NAME, internal + user, []),
                (stream, pb.CreateStreamStatus.INVALID_STREAM_NAME, internal + user, []),
                (reader_group, pb.CreateReaderGroupResponse.INVALID_RG_NAME, user, internal),
                (table, pb.CreateKeyValueTableStatus.INVALID_TABLE_NAME, user, internal),
            ):
                for name in NAMES + refused:
                    assert await create(name) == invalid, (create, name)
                for name in allowed:
                    assert await create(name) == 0, (create, name)

    run(main())


def test_invalid_maintenance_entry_is_removed_and_others_are_processed(caplog):
    async def main():
        world = World()
        c = await world.controller()
        await c.scopes.create("s")
        await c.streams.create(STREAM, KEPT)
        bad = [TableUpdate(key, b"\x01", NO_VERSION) for key in (b"r/s", b"r/s/t/u", b"r/\xff/t")]
        await c.catalog.tables.update(keys.MAINTENANCE_TABLE, bad)
        assert await maintained(c) == [STREAM]
        assert list(world.tables.tables[keys.MAINTENANCE_TABLE]) == [keys.maintenance_key(keys.RETENTION_INDEX, STREAM)]
        assert caplog.text.count("removing an entry") == 3

    run(main())


@pytest.mark.parametrize("kind", [keys.RETENTION_INDEX, keys.WATERMARK_INDEX])
def test_unexpected_error_in_one_stream_does_not_stop_maintenance(kind, caplog):
    async def main():
        world = World()
        c = await world.controller()
        await c.scopes.create("s")
        for name in (STREAM, OTHER):
            await c.streams.create(name, KEPT)
            await c.catalog.index_for_maintenance(kind, name)
        processed = []

        async def process(name):
            processed.append(name)
            if name == STREAM:
                raise KeyError("a bug")
            return True

        c.retention.apply = c.watermarks.advance = process
        await (
            c.maintenance.run_retention_round() if kind == keys.RETENTION_INDEX else c.maintenance.run_watermark_round()
        )
        assert processed == [STREAM, OTHER]
        assert "unexpected error" in caplog.text

    run(main())


def test_blocked_watermark_does_not_block_other_streams():
    async def main():
        world = World()
        c = await world.controller()
        await c.scopes.create("s")
        for name in (STREAM, OTHER):
            await c.catalog.index_for_maintenance(keys.WATERMARK_INDEX, name)
        processed = asyncio.Event()

        async def process(name):
            if name == STREAM:
                await asyncio.Event().wait()
            processed.set()
            return True

        c.watermarks.advance = process
        round_ = asyncio.ensure_future(c.maintenance.run_watermark_round())
        await processed.wait()
        round_.cancel()
        await asyncio.gather(round_, return_exceptions=True)

    run(main())


def test_unexpected_error_in_one_pending_entry_does_not_stop_the_sweep(caplog):
    async def main():
        caplog.set_level(logging.WARNING)
        world = World()
        c = await world.controller()
        recovered = []

        async def recover(name):
            recovered.append(name)
            if name == STREAM:
                raise KeyError("a bug")
            return True

        c.streams.recover = recover
        for name in (STREAM, OTHER):
            await c.catalog.index_pending(keys.pending_stream_key(name))
        await world.sweep(c)
        assert recovered[:2] == [STREAM, OTHER]
        assert "unexpected error" in caplog.text

    run(main())


@pytest.mark.parametrize("bad", [b"s/\xff/t", b"x/s/\xff/0"])
def test_pending_entry_that_is_not_text_does_not_stop_the_sweep(bad, caplog):
    """The name could not be logged: that ended the sweep for good."""

    async def main():
        world = World()
        c = await world.controller()
        await c.catalog.tables.update(keys.WORK_TABLE, [TableUpdate(bad, b"", NO_VERSION)])
        await world.sweep(c)
        assert r"\xff" in caplog.text

    run(main())


def test_unexpected_error_in_one_segment_does_not_stop_autoscaling(caplog):
    async def main():
        world = World()
        c = await world.controller()
        considered, both = [], asyncio.Event()

        async def evaluate(name):
            considered.append(name)
            if name == segment(0):
                raise KeyError("a bug")
            both.set()

        c.autoscale.evaluate = evaluate
        running = asyncio.ensure_future(c.autoscale.run())
        c.autoscale.request(segment(0), ScaleAdvice.SPLIT)
        c.autoscale.request(segment(1), ScaleAdvice.SPLIT)
        await asyncio.wait([running, asyncio.ensure_future(both.wait())], return_when=asyncio.FIRST_COMPLETED)
        assert considered == [segment(0), segment(1)]
        running.cancel()
        assert "unexpected error" in caplog.text

    run(main())


def test_groups_read_only_what_can_be_a_stream():
    """A stream whose name no table can hold left a group that could not be finished, changed or deleted."""
    for name in (StreamName("s", "u" * 9000), StreamName("s", "t/u"), StreamName("", "u")):
        run(_odd_group(name))


async def _odd_group(name: StreamName) -> None:
    world = World()
    c = await world.controller()
    strict_keys(world.tables)
    await c.scopes.create("s")
    await c.streams.create(STREAM, StreamConfig())
    odd = dataclasses.replace(group(), retention=1, starts=((STREAM, ()), (name, ())), ends=())
    with pytest.raises(Invalid):
        await c.groups.create("s", "g", odd)
    with pytest.raises(NotFound):
        await c.groups.find("s", "g")
    made = await c.groups.create("s", "g", group())
    with pytest.raises(Invalid):
        await c.groups.update("s", "g", dataclasses.replace(odd, generation=made.generation, group_id=made.group_id))
    await c.groups.delete("s", "g")
    # One that an earlier release stored can be finished and deleted.
    stored = codec.encode_group(dataclasses.replace(odd, state=State.CREATING))
    await c.catalog.update("s", [TableUpdate(keys.group_key("g"), stored, NO_VERSION)])
    await c.groups.recover("s", "g")
    found: GroupRecord = await c.groups.find("s", "g")
    assert found.state is State.ACTIVE
    assert await c.groups.subscribers(STREAM) == ["s/g"]
    await c.groups.delete("s", "g")
    assert await c.groups.subscribers(STREAM) == []


def strict_keys(tables):
    """Refuse keys as a store does."""
    update = tables.update

    async def checked_update(table, updates):
        if any(len(change.key) > MAX_TABLE_KEY_BYTES for change in updates):
            raise Invalid("a key too long")
        return await update(table, updates)

    tables.update = checked_update
