"""Former sources that become mirrors, and mirrors that begin again: what is kept, what is refused, and every kill."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import replace

import pytest

from sarit.controller.model.records import State
from sarit.core.names import SegmentId, StreamName
from sarit.mirror import kept_copies
from sarit.mirror.divergence import Divergence, next_lineage
from sarit.mirror.kept_copies import KeptCopies
from sarit.mirror.mirror_records import MirrorRecord
from sarit.mirror.mirror_rows import find_known, put_known
from sarit.mirror.restarts import Restarts, has_gap, kept_name, lost_bytes
from sarit.mirror.values import Lineage, LinkIdentity, MirrorStatus, StreamFacts
from tests.unit.controller.fakes import Crash, crash_at
from tests.unit.controller.world import STREAM, World, halves, run, segment, stream_with

LINK = LinkIdentity(b"b" * 16, "back", "core")
PROMOTED = b"p" * 16
EXPORT = StreamName("s", f"t.divergent-{PROMOTED.hex()[:8]}")
FIRST_CALL = 5  # a controller that starts has made four


def ids(epoch: int, *numbers: int) -> list[int]:
    return [SegmentId(epoch, number).packed for number in numbers]


def lineage(ends: tuple[int, int], lineage_id: bytes = PROMOTED) -> Lineage:
    return Lineage(lineage_id, 1_000_001, "core", dict(zip(ids(1, 1, 2), ends, strict=True)))


async def append(world: World, name: str, data: bytes) -> None:
    at = world.segments.segments[name].length
    (end,) = await world.segments.append_at_many([(name, at, data)])
    assert end == at + len(data)


async def source(controller, world: World, scaled: bool = False) -> None:
    """Segment 0 in epoch 0 with 3 bytes; segments 1 and 2 in epoch 1 with 7 and 4 bytes; perhaps epoch 2."""
    await stream_with(controller, 1)
    await append(world, segment(0), b"abc")
    await controller.streams.scale(STREAM, [0], halves(0.0, 1.0))
    await append(world, segment(1, 1), b"0123456")
    await append(world, segment(2, 1), b"wxyz")
    if scaled:
        await controller.streams.scale(STREAM, ids(1, 1), halves(0.0, 0.5))
        await append(world, segment(3, 2), b"new")


async def facts_of(controller, *lineages: Lineage) -> StreamFacts:
    record = (await controller.catalog.require(STREAM)).record
    return StreamFacts(
        STREAM, b"c" * 16, record.first_number, 1, 9, record.config, {}, False, False, {0: 0}, record.epochs[0],
        ("core",), lineages,
    )  # fmt: skip


def divergence(controller, world: World) -> Divergence:
    copies = KeptCopies(controller.catalog, world.segments, world.env)
    return Divergence(controller.streams, world.segments, copies)


async def content(controller, world: World, name: StreamName) -> dict[str, tuple[int, bytes]]:
    """The segments of a sealed stream: where they begin, and their bytes."""
    found = (await controller.catalog.require(name)).record
    assert found.state is State.SEALED
    prefix = f"{name}/"
    mine = {n.removeprefix(prefix): s for n, s in world.segments.segments.items() if n.startswith(prefix)}
    assert all(s.sealed for s in mine.values())
    return {n: (s.start, s.data) for n, s in mine.items()}


def test_a_source_that_ends_where_its_mirror_was_promoted_becomes_the_mirror() -> None:
    async def main() -> None:
        world = World()
        controller = await world.controller()
        await source(controller, world)
        facts = await facts_of(controller, lineage((7, 4)))
        before = dict(world.segments.segments)
        assert await divergence(controller, world).rejoin(LINK, facts, discard=False) is None
        known = await find_known(controller.catalog, STREAM)
        assert (known.record.state, known.record.link) == (State.ACTIVE, "back")
        assert known.row == MirrorRecord(LINK, ("core",), facts.lineages)
        assert world.segments.segments == before, "something was copied"
        assert all(s.sealed for s in world.segments.segments.values() if s.start == 0 and s.data)
        # Repeated: it is a mirror, and stays one.
        assert await divergence(controller, world).rejoin(LINK, facts, discard=False) is None

    run(main())


@pytest.mark.parametrize(
    ("scaled", "ends", "beyond"), [(False, (5, 4), 2), (False, (0, 0), 11), (True, (7, 4), 3), (True, (6, 1), 7)]
)
def test_bytes_beyond_the_promotion_are_refused_by_number_and_kept_if_given_up(scaled, ends, beyond) -> None:
    async def main() -> None:
        world = World()
        controller = await world.controller()
        await source(controller, world, scaled)
        facts, back = await facts_of(controller, lineage(ends)), divergence(controller, world)
        state = await back.rejoin(LINK, facts, discard=False)
        assert state.status is MirrorStatus.REFUSED
        assert f" {beyond} bytes " in state.reason
        known = await find_known(controller.catalog, STREAM)
        assert (known.record.state, known.row.fenced) == (State.SEALED, PROMOTED), "it can be written still"
        assert await back.rejoin(LINK, facts, discard=True) is None
        assert await controller.catalog.find(STREAM) is None
        kept = {
            "1.#epoch.1": (ends[0], b"0123456"[ends[0] :]),
            "2.#epoch.1": (ends[1], b"wxyz"[ends[1] :]),
        }
        if scaled:
            kept |= {"3.#epoch.2": (0, b"new"), "4.#epoch.2": (0, b"")}
        assert await content(controller, world, EXPORT) == kept
        record = (await controller.catalog.require(EXPORT)).record
        assert await controller.streams.is_cut(EXPORT, record.head)
        await controller.streams.delete(EXPORT)
        assert not [name for name in world.segments.segments if "divergent" in name]

    run(main())


def test_a_source_that_has_less_is_refused_or_made_again() -> None:
    async def main() -> None:
        world = World()
        controller = await world.controller()
        await stream_with(controller, 1)
        facts, back = await facts_of(controller, lineage((7, 4))), divergence(controller, world)
        assert "ends before its mirror was promoted" in (await back.rejoin(LINK, facts, discard=False)).reason
        assert await back.rejoin(LINK, facts, discard=True) is None
        assert await controller.catalog.find(STREAM) is None
        assert await controller.catalog.find(EXPORT) is None

    run(main())


def test_the_export_is_made_in_parts(monkeypatch) -> None:
    async def main() -> None:
        world = World()
        controller = await world.controller()
        await source(controller, world)
        monkeypatch.setattr(kept_copies, "KEPT_COPY_BYTES", 2)
        monkeypatch.setattr(kept_copies, "MIRROR_BATCH_BYTES", 2)
        facts, back = await facts_of(controller, lineage((1, 1))), divergence(controller, world)
        states = [await back.rejoin(LINK, facts, discard=True)]
        while states[-1] is not None:
            assert states[-1].status is MirrorStatus.BUSY
            assert await controller.catalog.find(EXPORT) is None, "half of it can be read"
            states.append(await back.rejoin(LINK, facts, discard=True))
        assert len(states) > 3
        assert await content(controller, world, EXPORT) == {"1.#epoch.1": (1, b"123456"), "2.#epoch.1": (1, b"xyz")}

    run(main())


def test_a_controller_that_dies_at_any_call_loses_nothing_of_what_is_given_up() -> None:
    async def attempt(number: int, after: bool) -> bool:
        world = World()
        controller = await world.controller()
        await source(controller, world, scaled=True)
        facts = await facts_of(controller, lineage((5, 4)))
        dying = await world.controller(crash_at(number, after=after))
        died = True
        with suppress(Crash):
            await divergence(dying, replaced(world, dying)).rejoin(LINK, facts, discard=True)
            died = False
        survivor = await world.controller()
        if await survivor.catalog.find(STREAM) is None:
            assert not [name for name in world.segments.segments if name.startswith("s/t/")]
        await divergence(survivor, world).rejoin(LINK, facts, discard=True)
        assert (await survivor.streams.complete_pending(STREAM)) is None
        assert (await content(survivor, world, EXPORT))["1.#epoch.1"] == (5, b"56")
        return died

    async def main() -> None:
        for after in (False, True):
            for number in itertools.count(FIRST_CALL):
                if not await attempt(number, after):
                    assert number > 30, "nothing was under way"
                    break

    run(main())


def replaced(world: World, controller) -> World:
    """The world, with the faults of the segments of this controller."""
    other = World()
    other.segments, other.env = controller.segments, world.env
    return other


def test_two_histories_do_not_become_one() -> None:
    one, two, three = (lineage((1, 1), letter * 16) for letter in (b"1", b"2", b"3"))
    assert next_lineage((), (one, two)) is one
    assert next_lineage((one,), (one, two)) is two
    assert next_lineage((one,), (one,)) is None
    assert next_lineage((one, two), (one,)) is None
    assert next_lineage((one, two), (one, three)) is None

    async def main() -> None:
        world = World()
        controller = await world.controller()
        await source(controller, world)
        known = await find_known(controller.catalog, STREAM)
        await put_known(controller.catalog, STREAM, known, MirrorRecord(lineages=(one, two)))
        back = divergence(controller, world)
        for theirs, text in (((one, three), "two histories"), ((one,), "written here"), ((), "written here")):
            state = await back.rejoin(LINK, await facts_of(controller, *theirs), discard=True)
            assert state.status is MirrorStatus.REFUSED
            assert text in state.reason
        assert (await controller.catalog.require(STREAM)).record.state is State.ACTIVE, "it was made read-only"

    run(main())


# -- restarts -------------------------------------------------------------------------------------


async def as_mirror(controller, lost: int = 0) -> None:
    known = await find_known(controller.catalog, STREAM)
    row = MirrorRecord(LINK, ("core",), version=7, lost=lost)
    await put_known(controller.catalog, STREAM, known, row, replace(known.record, link="back"))


def restarts(controller, world: World) -> Restarts:
    return Restarts(controller.streams, world.segments, KeptCopies(controller.catalog, world.segments, world.env))


def test_a_mirror_that_begins_again_is_kept_and_its_lost_bytes_are_counted() -> None:
    async def main() -> None:
        world = World()
        controller = await world.controller()
        await source(controller, world)
        await as_mirror(controller, lost=100)
        facts = replace(await facts_of(controller), head=dict(zip(ids(1, 1, 2), (20, 4), strict=True)))
        restart = restarts(controller, world)
        assert await restart.clear(LINK, facts) == 113
        assert await controller.catalog.find(STREAM) is None
        kept = await content(controller, world, StreamName("s", "t.before-1-11"))
        assert kept == {"0.#epoch.0": (0, b"abc"), "1.#epoch.1": (0, b"0123456"), "2.#epoch.1": (0, b"wxyz")}
        assert await restart.clear(LINK, facts) == 0

    run(main())


def test_a_mirror_that_began_again_does_not_begin_once_more() -> None:
    async def main() -> None:
        world = World()
        controller = await world.controller()
        await source(controller, world)
        await as_mirror(controller)
        assert await restarts(controller, world).clear(LINK, await facts_of(controller)) == 0
        other = replace(LINK, link_id=b"x" * 16)
        facts = replace(await facts_of(controller), head=dict.fromkeys(ids(1, 1, 2), 9))
        assert await restarts(controller, world).clear(other, facts) == 0
        assert (await controller.catalog.require(STREAM)).record.mirrored

    run(main())


def test_lost_bytes_are_those_between_the_mirror_and_the_head() -> None:
    assert lost_bytes({1: 10, 2: 5}, {1: 15, 2: 3, 3: 7}) == 5
    long = StreamName("s", "n" * 245)
    assert kept_name(long, 1, {1: 2}) == StreamName("s", "before-1-2")


def test_a_gap_is_what_lies_between_the_end_of_a_mirror_and_the_head_of_its_source() -> None:
    async def main() -> None:
        world = World()
        controller = await world.controller()
        await source(controller, world)
        record = (await controller.catalog.require(STREAM)).record
        facts = await facts_of(controller)
        lengths = dict(zip(ids(1, 1, 2), (7, 4), strict=True))
        first = record.current
        for head, expected in (
            ({0: 0}, False),
            (dict(zip(ids(1, 1, 2), (7, 4), strict=True)), False),
            (dict(zip(ids(1, 1, 2), (7, 5), strict=True)), True),
            ({**dict.fromkeys(ids(1, 2), 0), **dict.fromkeys(ids(2, 3, 4), 0)}, True),
        ):
            begins = record.epochs[0] if 0 in head else first
            assert has_gap(record, lengths, replace(facts, head=head, first=begins)) is expected

    run(main())
