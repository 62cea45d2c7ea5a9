"""Reader groups of mirrors: they start where the source's group is, once the bytes are there, until readers join."""

from dataclasses import replace

import pytest

from sarit.client.groups import codec
from sarit.client.groups.state import AcquireSegment, AddReader, ReleaseSegment, RemoveReader, SegmentCompleted
from sarit.client.groups.values import GroupSegment
from sarit.client.sync.synchronizer import encode_updates
from sarit.controller.model.epochs import Epoch, SegmentRange
from sarit.controller.model.records import GroupRecord, State
from sarit.core.errors import Unavailable
from sarit.core.keyspace import KeyRange
from sarit.core.links import LinkDirection, LinkSettings
from sarit.core.names import SegmentId, StreamName
from sarit.mirror import group_states
from sarit.mirror.attached import LocalAttachedSource
from sarit.mirror.attached_copy import AttachedCopy
from sarit.mirror.attachments import GroupFacts
from sarit.mirror.group_copies import GroupTarget
from sarit.mirror.group_positions import cut_at, segments_read
from tests.unit.controller.world import STREAM, halves, run
from tests.unit.mirror.installations import Side
from tests.unit.mirror.test_full_circle import BACK, UP, carry, two_sides
from tests.unit.mirror.test_timeline_copies import attached_target

SETTINGS = LinkSettings(LinkDirection.PUSH, "core:9090", tables=False, groups=True)
WANTED = GroupRecord(
    State.ACTIVE, "00000000-0000-0000-0000-000000000000", 0, 3000, 30_000, 3, 0, 0, ((STREAM, ()),), ()
)
OTHER_ID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
AT_FIRST = ((STREAM, ((0, 0),)),)
FIRST = GroupSegment(STREAM, SegmentId.unpack(0))


async def stored(side):
    found = await group_states.read_state(side.controller.catalog, side.world.segments, "s", "g")
    assert found is not None
    return found


async def write(side, *updates):
    """Write updates of the group as readers do."""
    now = await stored(side)
    await group_states._append(side.world.segments, now.segment, now.end, encode_updates(map(codec.encode, updates)))


async def make(side, offset=0):
    """Make the group `g`."""
    record = await side.controller.groups.create("s", "g", replace(WANTED, starts=((STREAM, ((0, offset),)),)))
    now = await stored(side)
    if now.state is None:
        await group_states.begin(side.world.segments, now.segment, now.end, record)


async def read_to(side, offset, reader="r"):
    """Have a reader join, read up to an offset, and leave."""
    await write(side, AddReader(reader), AcquireSegment(reader, FIRST))
    await write(side, ReleaseSegment(reader, FIRST, offset), RemoveReader(reader, {}))


async def copy(edge, core, link=UP):
    source = Side(LocalAttachedSource(edge.controller.catalog, "edge", edge.world.segments))
    problems = await AttachedCopy().copy(source, Side(attached_target(core)), link, SETTINGS, "s", [])
    return [problem.text for problem in problems]


async def position(side):
    state = (await stored(side)).state
    assert state.config == group_states.config_of(await side.controller.groups.find("s", "g"))
    assert not state.updating
    return {one.segment.packed: at for one, at in state.positions().items()}


def test_group_starts_where_the_source_is_and_moves_until_a_reader_joins():
    async def test():
        edge, core = await two_sides()
        await edge.append(0, b"second")
        await make(edge)
        await carry(edge, core, UP)
        await read_to(edge, 5)
        assert await copy(edge, core) == []
        assert await position(core) == {0: 5}
        there = await edge.controller.groups.find("s", "g")
        here = await core.controller.groups.find("s", "g")
        assert replace(here, starts=there.starts, generation=there.generation) == there
        # Repeated: nothing changes.
        before = await stored(core), here
        assert await copy(edge, core) == []
        assert before == (await stored(core), await core.controller.groups.find("s", "g"))
        await read_to(edge, 11)
        assert await copy(edge, core) == []
        assert await position(core) == {0: 11}
        await read_to(core, 11, "mine")
        await edge.append(0, b"third")
        await read_to(edge, 16)
        await carry(edge, core, UP)
        assert await copy(edge, core) == ["readers have joined it here: it is left alone"]
        assert await position(core) == {0: 11}

    run(test())


def test_position_waits_for_the_bytes_below_it():
    async def test():
        edge, core = await two_sides()
        await make(edge)
        await carry(edge, core, UP)
        await edge.append(0, b"second")
        await read_to(edge, 11)
        assert await copy(edge, core) == [f"its position in {STREAM} is not here yet"]
        with pytest.raises(LookupError):
            await core.controller.groups.find("s", "g")
        await carry(edge, core, UP)
        assert await copy(edge, core) == []
        assert await position(core) == {0: 11}

    run(test())


def test_group_of_a_user_and_one_of_another_link_are_left_alone():
    async def test():
        edge, core = await two_sides()
        await make(edge, 5)
        await carry(edge, core, UP)
        assert await copy(edge, core, BACK) == [f"this link does not copy stream {STREAM}, which the group reads"]
        await make(core)
        mine = await stored(core)
        assert await copy(edge, core) == ["a reader group of this name was made here: it is left alone"]
        assert await stored(core) == mine

    run(test())


def test_groups_of_a_promoted_mirror_belong_to_its_users():
    async def test():
        edge, core = await two_sides()
        await edge.append(0, b"second")
        await make(edge)
        await read_to(edge, 5)
        await carry(edge, core, UP)
        assert await copy(edge, core) == []
        await core.target.promote(UP, "s", [STREAM])
        await read_to(edge, 11)
        assert await copy(edge, core) == []
        assert await position(core) == {0: 5}
        await core.controller.groups.delete("s", "g")
        assert await copy(edge, core) == []
        with pytest.raises(LookupError):
            await core.controller.groups.find("s", "g")

    run(test())


@pytest.mark.parametrize("lost", ["after the record", "after the announcement", "after the update"])
def test_a_copy_that_ended_anywhere_is_completed_by_the_next(lost, monkeypatch):
    async def test():
        edge, core = await two_sides()
        await edge.append(0, b"second")
        await make(edge)
        await read_to(edge, 5)
        await carry(edge, core, UP)
        if lost != "after the record":
            await copy(edge, core)
            await read_to(edge, 11)

        async def unavailable(*_):
            raise Unavailable("lost")

        with monkeypatch.context() as patch:
            if lost == "after the announcement":
                patch.setattr(core.controller.groups, "update", unavailable)
            else:
                patch.setattr("sarit.mirror.group_copies.begin", unavailable)
            with pytest.raises(Unavailable):
                await copy(edge, core)
        assert await copy(edge, core) == []
        assert await position(core) == {0: 5 if lost == "after the record" else 11}

    run(test())


def test_position_between_a_split_and_the_next_is_a_cut():
    async def test():
        edge, core = await two_sides()
        await make(edge)
        await edge.controller.streams.scale(STREAM, [0], halves(0.0, 1.0))
        one, two = await edge.current()
        await write(edge, AddReader("r"), AcquireSegment("r", FIRST))
        after = {GroupSegment(STREAM, SegmentId.unpack(s)): frozenset((FIRST,)) for s in (one, two)}
        await write(edge, SegmentCompleted("r", FIRST, after), RemoveReader("r", {}))
        await carry(edge, core, UP)
        assert await copy(edge, core) == []
        assert await position(core) == {one: 0, two: 0}
        # A merged segment waits for one of its predecessors: the other one was read to its end.
        await edge.append(one, b"1st")
        await edge.append(two, b"2nd")
        await edge.controller.streams.scale(STREAM, [one, two], [KeyRange(0.0, 1.0)])
        (merged,) = await edge.current()
        first, second, last = (GroupSegment(STREAM, SegmentId.unpack(s)) for s in (one, two, merged))
        await write(edge, AddReader("r"), AcquireSegment("r", first))
        after = {last: frozenset((first, second))}
        await write(edge, SegmentCompleted("r", first, after), RemoveReader("r", {}))
        await carry(edge, core, UP)
        assert await copy(edge, core) == []
        assert await position(core) == {one: 3, two: 0}

    run(test())


def test_a_cut_lies_at_the_position_or_before_it():
    a, b, d = (SegmentRange(low, high, n) for n, low, high in ((0, 0.0, 0.25), (1, 0.25, 0.5), (2, 0.5, 1.0)))
    merged = SegmentRange(0.0, 0.5, SegmentId(1, 3).packed)
    left, right = (SegmentRange(0.5 + n / 4, 0.75 + n / 4, SegmentId(2, 4 + n).packed) for n in range(2))
    epochs = [Epoch(0, (a, b, d), 0), Epoch(1, (merged, d), 0), Epoch(2, (merged, left, right), 0)]
    head = dict.fromkeys((0, 1, 2), 0)
    # The first segment was read, and its successor waits for the second one; the rest went on to the last epoch.
    there = {1: 5, left.segment: 7, right.segment: 8}
    assert segments_read(epochs, there) == [0, 2]
    assert cut_at(epochs, head, there, {0: 10, 2: 20}) == {0: 10, **there}
    # There is no cut at this position: the one before it is in the first epoch.
    assert cut_at(epochs, head, {1: 5, left.segment: 7}, {0: 10, 2: 20}) == {0: 10, 1: 5, 2: 20}
    # What was truncated is not read again, and what is no segment of the stream is no position.
    assert cut_at(epochs, {**head, 1: 6}, there, {0: 10, 2: 20}) == {0: 10, **there, 1: 6}
    assert cut_at(epochs, head, {9: 1}, {}) is None


def test_damaged_group_is_named_and_keeps_no_other_from_being_copied():
    async def test():
        edge, core = await two_sides()
        await make(edge)
        await carry(edge, core, UP)
        assert await copy(edge, core) == []
        for side in (edge, core):
            other = await side.controller.groups.create("s", "a", replace(WANTED, group_id=OTHER_ID))
            assert other.group_id == OTHER_ID
            (segment,) = [name for name in side.world.segments.segments if name.startswith("s/_RGa/")]
            if side is edge:
                await side.world.segments.append_at_many([(segment, 0, b"no entry")])
                assert await copy(edge, core) == ["the source knows no position of it at the moment"]
                await side.world.segments.truncate(segment, 8)
                await group_states.begin(side.world.segments, segment, 8, replace(other, starts=AT_FIRST))
            else:
                await side.world.segments.append_at_many([(segment, 0, b"no entry")])
        await read_to(edge, 5)
        (problem,) = await copy(edge, core)
        assert "in the middle of an entry" in problem
        assert await position(core) == {0: 5}

    run(test())


HOSTILE = {
    "no position": {"starts": ()},
    "another scope": {"starts": ((StreamName("t", "t"), ((0, 0),)),)},
    "negative segment": {"starts": ((STREAM, ((-1, 0),)),)},
    "negative offset": {"starts": ((STREAM, ((0, -1),)),)},
    "no cut": {"starts": ((STREAM, ()),)},
    "twice": {"starts": ((STREAM, ((0, 0),)), (STREAM, ((0, 0),)))},
    "too many": {"starts": tuple((StreamName("s", f"t{n}"), ((0, 0),)) for n in range(100_000))},
    "generation": {"generation": 1 << 62},
    "id": {"group_id": "x"},
    "ends": {"ends": ((STREAM, ((-1, 0),)),)},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_what_a_source_must_not_say_is_refused_by_a_reason(change):
    async def test():
        edge, core = await two_sides()
        await carry(edge, core, UP)
        good = replace(WANTED, group_id=OTHER_ID, starts=AT_FIRST)
        target = GroupTarget(core.controller.catalog, core.controller.groups, core.world.segments)
        assert await target.put(UP, "s", GroupFacts("g", replace(good, **change)))
        with pytest.raises(LookupError):
            await core.controller.groups.find("s", "g")
        assert await target.put(UP, "s", GroupFacts("_bad", good))
        assert await target.put(UP, "s", GroupFacts("g", good)) == ""

    run(test())
