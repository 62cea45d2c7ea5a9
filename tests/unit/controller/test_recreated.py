"""What is deleted and made again: its segment numbers continue, and its creation id is another."""

from __future__ import annotations

import contextlib

import pytest

from sarit.controller import keys
from sarit.controller.calls.identity import IdentityCalls
from sarit.controller.model import codec
from sarit.controller.model.records import CreationRecord, GroupRecord, State, TableRecord
from sarit.controller.ports import TableUpdate
from sarit.core.errors import Exists, NotFound
from sarit.rpc.generated import sarit_pb2 as pb
from sarit.wire.limits import NO_VERSION
from tests.unit.controller.fakes import Crash, crash_at
from tests.unit.controller.world import STREAM, World, config, halves, run, stream_with

GROUP = GroupRecord(State.CREATING, "id", 0, 1, 2, 3, 2, 4, ((STREAM, ()),), ((STREAM, ()),))
TABLE = TableRecord(State.CREATING, 0, 2, 4, 4, 0, 0)
KINDS = ({"stream": "t"}, {"readerGroup": "g"}, {"table": "k"}, {})


async def fill(controller):
    await stream_with(controller, 2)
    upper = (await controller.streams.active(STREAM))[1].segment
    await controller.streams.scale(STREAM, [upper], halves(0.5, 1.0))
    await controller.groups.create("s", "g", GROUP)
    await controller.tables.create("s", "k", TABLE)


def used(world):
    """The highest segment number of each stream and table that exists now."""
    found = {}
    for name in world.segments.segments:
        scope, stream, segment = name.split("/")
        number = int(segment.partition(".")[0])
        found[f"{scope}/{stream}"] = max(number, found.get(f"{scope}/{stream}", -1))
    return found


def lowest(world):
    return {
        name: min(int(s.rpartition("/")[2].partition(".")[0]) for s in world.segments.segments if s.startswith(name))
        for name in used(world)
    }


async def ids(controller):
    calls = IdentityCalls(controller.catalog)
    return [(await calls.creationId(pb.CreationIdRequest(scope="s", **kind))).creationId for kind in KINDS]


def test_numbers_go_on_in_a_scope_that_was_made_again():
    async def main():
        world = World(page=3)
        controller = await world.controller()
        highest: dict[str, int] = {}
        for _ in range(3):
            await fill(controller)
            for name, first in lowest(world).items():
                assert first > highest.get(name, -1), name
            highest |= used(world)
            await controller.scopes.delete_recursive("s")
            assert not world.segments.segments
        assert set(highest) == {"s/t", "s/_RGg", "s/k_kvtable"}

    run(main())


def test_numbers_go_on_after_a_crash_at_each_call_of_the_deletion():
    async def main(at, after):
        world = World()
        controller = await world.controller()
        await fill(controller)
        highest = used(world)
        try:
            dying = await world.controller(crash_at(at, after=after))
            await dying.scopes.delete_recursive("s")
        except Crash:
            pass
        else:
            return False
        second = await world.controller()
        await world.sweep(second)
        with contextlib.suppress(NotFound):
            await second.scopes.delete_recursive("s")
        await fill(second)
        for name, first in lowest(world).items():
            assert first > highest[name], (name, at)
        return True

    async def every(after):
        at = 1
        while await main(at, after):
            at += 1
        assert at > 20

    run(every(False))
    run(every(True))


def test_creation_decided_in_an_earlier_scope_is_not_stored_in_a_later_one():
    async def main():
        world = World()
        slow, fast = await world.controller(), await world.controller()
        await slow.scopes.create("s")
        place = slow.catalog.numbers.place

        async def delayed(scope):
            found = await place(scope)
            slow.catalog.numbers.place = place
            await fast.streams.create(STREAM, config(2))
            await fast.scopes.delete_recursive("s")
            await fast.scopes.create("s")
            return found

        slow.catalog.numbers.place = delayed
        await slow.streams.create(STREAM, config(1))
        assert (await slow.streams.ready(STREAM)).first_number == 2

    run(main())


def test_ids_stay_as_long_as_what_they_belong_to():
    async def main():
        world = World()
        controller = await world.controller()
        await fill(controller)
        first = await ids(controller)
        await controller.streams.update(STREAM, config(4, ("a",)))
        with pytest.raises(Exists):
            await controller.streams.create(STREAM, config(4))
        await controller.streams.seal(STREAM)
        other = await world.controller()
        assert await ids(other) == first
        assert len({len(each) for each in first}) == 1
        assert len(first[0]) == 16
        await controller.scopes.delete_recursive("s")
        await fill(controller)
        second = await ids(controller)
        assert not set(first) & set(second)
        assert len(set(second)) == len(KINDS)

    run(main())


def test_ids_differ_when_only_the_thing_itself_was_made_again():
    async def main():
        world = World()
        controller = await world.controller()
        await fill(controller)
        first = await ids(controller)
        await controller.streams.seal(STREAM)
        await controller.streams.delete(STREAM)
        await controller.groups.delete("s", "g")
        await controller.tables.delete("s", "k")
        await controller.streams.create(STREAM, config(2))
        await controller.groups.create("s", "g", GROUP)
        await controller.tables.create("s", "k", TABLE)
        second = await ids(controller)
        assert second[3] == first[3], "the scope is the same"
        assert not set(first[:3]) & set(second[:3])

    run(main())


def test_record_of_before_has_an_id_that_stays_and_that_its_successor_has_not():
    async def main():
        world = World()
        controller = await world.controller()
        await fill(controller)
        owners = ("t", "_RGg", "k_kvtable")
        removed = [TableUpdate(keys.creation_key(owner), None, NO_VERSION) for owner in owners]
        await controller.catalog.update("s", removed)
        first = await ids(controller)
        assert first == await ids(await world.controller())
        # A release before deletes a table and leaves its id there.
        stale = CreationRecord(7, b"x" * 16)
        await controller.catalog.update(
            "s", [TableUpdate(keys.creation_key("k_kvtable"), codec.encode_creation(stale), NO_VERSION)]
        )
        assert await ids(controller) == first
        await controller.scopes.delete_recursive("s")
        await fill(controller)
        assert not set(first) & set(await ids(controller))

    run(main())


def test_scope_that_had_nothing_leaves_no_number():
    async def main():
        world = World()
        controller = await world.controller()
        await controller.scopes.create("s")
        await controller.scopes.delete("s")
        assert world.tables.tables[keys.NUMBERS_TABLE] == {}

    run(main())


def test_scope_that_is_not_deleted_keeps_its_numbers():
    async def main():
        world = World()
        controller = await world.controller()
        await fill(controller)
        with pytest.raises(Exists):
            await controller.scopes.delete("s")
        assert world.tables.tables[keys.NUMBERS_TABLE] == {}

    run(main())


def test_id_of_nothing_is_not_found():
    async def main():
        controller = await World().controller()
        await stream_with(controller, 2)
        calls = IdentityCalls(controller.catalog)
        nothing = [("s", {"stream": "none"}), ("s", {"table": "none"}), ("s", {"readerGroup": "none"}), ("none", {})]
        for scope, kind in nothing:
            with pytest.raises(NotFound, match="none does not exist"):
                await calls.creationId(pb.CreationIdRequest(scope=scope, **kind))
        await controller.streams.seal(STREAM)
        await controller.streams.delete(STREAM)
        with pytest.raises(NotFound):
            await calls.creationId(pb.CreationIdRequest(scope="s", stream="t"))

    run(main())


def test_cut_of_a_deleted_stream_truncates_nothing_of_its_successor():
    async def main():
        world = World()
        controller = await world.controller()
        await fill(controller)
        cut = {s.segment: 0 for s in await controller.streams.active(STREAM)}
        await controller.scopes.delete_recursive("s")
        await fill(controller)
        assert not await controller.streams.is_cut(STREAM, cut)
        with pytest.raises(Exception, match="cover the stream exactly once|has no segment"):
            await controller.streams.truncate(STREAM, cut)

    run(main())
