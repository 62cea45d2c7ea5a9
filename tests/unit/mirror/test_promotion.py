"""Promotions and fences, with controllers that die at every call."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from dataclasses import replace

import pytest

from sarit.controller.limits import PROMOTED_EPOCHS
from sarit.controller.model.records import State
from sarit.core.errors import Invalid
from sarit.core.names import SegmentId
from sarit.mirror.fences import fence_stream
from sarit.mirror.mirror_records import MirrorRecord
from sarit.mirror.mirror_rows import find_known, put_known
from sarit.mirror.promotion import Promotion
from sarit.mirror.values import LinkIdentity, MirrorStatus, Round
from tests.unit.controller.fakes import Crash, crash_at
from tests.unit.controller.world import STREAM, World, halves, run, segment, stream_with

LINK = LinkIdentity(b"l" * 16, "up", "edge")
OTHER = LinkIdentity(b"o" * 16, "other", "edge")
FAR = 1 + PROMOTED_EPOCHS
FIRST_CALL = 5  # a controller that starts has made four


def ids(epoch: int, *numbers: int) -> list[int]:
    return [SegmentId(epoch, number).packed for number in numbers]


async def mirror(controller, world, **row) -> None:
    """A mirror with segment 0 in epoch 0, segments 1 (10 bytes) and 2 in epoch 1."""
    await stream_with(controller, 1)
    world.segments.append(segment(0), "abc")
    await controller.streams.scale(STREAM, [0], halves(0.0, 1.0))
    world.segments.append(segment(1, 1), "de")
    known = await find_known(controller.catalog, STREAM)
    record = MirrorRecord(LINK, ("edge",), version=7, **row)
    await put_known(controller.catalog, STREAM, known, record, replace(known.record, link="up"))


class Settled:
    """The mirror's target, as far as a promotion needs it: carries out the round that is decided, if there is one."""

    def __init__(self, controller) -> None:
        self._catalog = controller.catalog
        self.calls = 0

    async def __call__(self, name) -> None:
        self.calls += 1
        known = await find_known(self._catalog, name)
        if known.row.decided is not None:
            await put_known(self._catalog, name, known, replace(known.row, decided=None))


def promotion(controller, world) -> Promotion:
    return Promotion(controller.streams, world.segments, world.env, "core", Settled(controller))


async def check_promoted(controller, world, state) -> None:
    assert state.status is MirrorStatus.PROMOTED
    assert state.lineage.epoch == FAR
    assert state.lineage.installation == "core"
    known = await find_known(controller.catalog, STREAM)
    assert known.row.lineages == (state.lineage,)
    assert (known.row.promoting, known.row.decided, known.row.path) == (None, None, ())
    assert not known.record.mirrored
    assert not known.record.pending
    assert [s.segment for s in known.record.current.segments] == ids(FAR, 3, 4)
    assert state.lineage.ends == dict(zip(ids(1, 1, 2), (10, 0), strict=True))
    assert all(world.segments.segments[segment(n, 1)].sealed for n in (1, 2))
    followers = [s.segment for s, _ in await controller.streams.successors_of(STREAM, ids(1, 1)[0])]
    assert followers == ids(FAR, 3)
    world.check()


@pytest.mark.parametrize("decided", [False, True], ids=["between rounds", "in a round"])
def test_a_promoted_mirror_goes_on_in_a_far_epoch(decided) -> None:
    async def main() -> None:
        world = World()
        controller = await world.controller()
        await mirror(controller, world, decided=Round(STREAM, {}, {}, frozenset(), ()) if decided else None)
        promote = promotion(controller, world)
        state = await promote.promote(LINK, STREAM)
        await check_promoted(controller, world, state)
        assert await promote.promote(LINK, STREAM) == state, "a repeated promotion is another one"
        assert (await promote.promote(OTHER, STREAM)).status is MirrorStatus.REFUSED
        await controller.streams.scale(STREAM, ids(FAR, 3), halves(0.0, 0.5))

    run(main())


def test_a_controller_that_dies_at_any_call_leaves_a_promotion_that_another_one_finishes() -> None:
    async def attempt(number: int, after: bool) -> bool:
        world = World()
        controller = await world.controller()
        await mirror(controller, world, decided=Round(STREAM, {}, {}, frozenset(), ()))
        dying = await world.controller(crash_at(number, after=after))
        died = True
        with suppress(Crash):
            await promotion(dying, world).promote(LINK, STREAM)
            died = False
        survivor = await world.controller()
        known = await find_known(survivor.catalog, STREAM)
        decided = known.row.promoting or (known.row.lineages or (None,))[-1]
        await world.sweep(survivor)
        state = await promotion(survivor, world).promote(LINK, STREAM)
        await check_promoted(survivor, world, state)
        assert decided is None or state.lineage.lineage_id == decided.lineage_id
        return died

    async def main() -> None:
        for after in (False, True):
            for number in itertools.count(FIRST_CALL):
                if not await attempt(number, after):
                    assert number > 20, "the promotion was not under way"
                    break

    run(main())


def test_two_controllers_promote_once() -> None:
    async def main() -> None:
        world = World()
        controllers = [await world.controller(), await world.controller()]
        await mirror(controllers[0], world)
        states = await asyncio.gather(*(promotion(c, world).promote(LINK, STREAM) for c in controllers))
        assert states[0] == states[1]
        await check_promoted(controllers[0], world, states[0])

    run(main())


def test_a_sealed_mirror_stays_sealed() -> None:
    async def main() -> None:
        world = World()
        controller = await world.controller()
        await mirror(controller, world)
        known = await find_known(controller.catalog, STREAM)
        await put_known(controller.catalog, STREAM, known, known.row, replace(known.record, state=State.SEALED))
        state = await promotion(controller, world).promote(LINK, STREAM)
        assert (state.status, state.lineage.ends) == (
            MirrorStatus.PROMOTED,
            dict(zip(ids(1, 1, 2), (10, 0), strict=True)),
        )
        record = (await controller.catalog.require(STREAM)).record
        assert (record.state, record.mirrored, record.current.number) == (State.SEALED, False, 1)
        assert await promotion(controller, world).promote(LINK, STREAM) == state

    run(main())


def test_what_is_no_mirror_is_not_promoted() -> None:
    async def main() -> None:
        world = World()
        controller = await world.controller()
        promote = promotion(controller, world)
        await controller.scopes.create("s")
        assert (await promote.promote(LINK, STREAM)).reason == "stream s/t is no mirror"
        await controller.scopes.delete("s")
        await stream_with(controller)
        assert (await promote.promote(LINK, STREAM)).reason == "stream s/t is no mirror"
        await fence_stream(controller.streams, STREAM, b"x" * 16)
        assert (await promote.promote(LINK, STREAM)).status is MirrorStatus.REFUSED

    run(main())


# -- fences ---------------------------------------------------------------------------------------


def test_a_fenced_stream_is_sealed_and_says_why() -> None:
    async def main() -> None:
        world = World()
        controller = await world.controller()
        await stream_with(controller)
        txn, _ = await controller.transactions.create(STREAM, 30_000)
        for lineage in (b"1" * 16, b"1" * 16, b"2" * 16):
            await fence_stream(controller.streams, STREAM, lineage)
            known = await find_known(controller.catalog, STREAM)
            assert (known.record.state, known.row.fenced) == (State.SEALED, lineage)
        assert (await controller.transactions.state(STREAM, txn)).name == "ABORTED"

    run(main())


def test_a_stream_that_a_user_sealed_is_not_fenced() -> None:
    async def main() -> None:
        controller = await World().controller()
        await stream_with(controller)
        await controller.streams.seal(STREAM)
        await fence_stream(controller.streams, STREAM, b"1" * 16)
        assert (await find_known(controller.catalog, STREAM)).row is None

    run(main())


def test_a_mirror_is_not_fenced() -> None:
    async def main() -> None:
        world = World()
        controller = await world.controller()
        await mirror(controller, world)
        with pytest.raises(Invalid, match="is a mirror of the link up"):
            await fence_stream(controller.streams, STREAM, b"1" * 16)

    run(main())


def test_no_moment_of_a_fence_is_taken_for_a_seal_by_a_user() -> None:
    async def attempt(number: int, after: bool) -> bool:
        world = World()
        controller = await world.controller()
        await stream_with(controller)
        dying = await world.controller(crash_at(number, after=after))
        died = True
        with suppress(Crash):
            await fence_stream(dying.streams, STREAM, b"1" * 16)
            died = False
        survivor = await world.controller()
        known = await find_known(survivor.catalog, STREAM)
        assert known.record.state is State.ACTIVE or known.row.fenced
        await world.sweep(survivor)
        known = await find_known(survivor.catalog, STREAM)
        assert known.record.state is State.ACTIVE or known.row.fenced
        await fence_stream(survivor.streams, STREAM, b"1" * 16)
        known = await find_known(survivor.catalog, STREAM)
        assert (known.record.state, known.row.fenced) == (State.SEALED, b"1" * 16)
        return died

    async def main() -> None:
        for after in (False, True):
            for number in itertools.count(FIRST_CALL):
                if not await attempt(number, after):
                    assert number > 5, "the fence was not under way"
                    break

    run(main())
