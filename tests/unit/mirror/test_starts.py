"""Mirrors that begin at a truncated head, at a time or at the end, through the real sides and the copier's plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sarit.core.keyspace import KeyRange
from sarit.core.names import SegmentId
from sarit.mirror import offers, rounds
from sarit.mirror.values import FROM_HEAD, FROM_TAIL, MirrorState, MirrorStatus, Position, Write
from tests.unit.controller.world import STREAM, config, halves, run
from tests.unit.mirror.test_full_circle import UP, Side, side

if TYPE_CHECKING:
    from sarit.controller.model.epochs import Epoch

LIMIT = 1 << 20


def sid(number: int, epoch: int = 0) -> int:
    return SegmentId(epoch, number).packed


async def scaled_source() -> tuple[Side, int]:
    """A stream whose recorded cut at the returned time has segments of three epochs."""
    edge = await side("edge", 1)
    await edge.controller.scopes.create("s")
    await edge.controller.streams.create(STREAM, config(2))
    await edge.append(sid(0), b"zero")
    await edge.append(sid(1), b"one")
    await edge.controller.streams.scale(STREAM, [sid(1)], halves(0.5, 1.0))
    await edge.append(sid(2, 1), b"two")
    await edge.append(sid(3, 1), b"three")
    await edge.controller.streams.scale(STREAM, [sid(2, 1)], halves(0.5, 0.75))
    await edge.append(sid(4, 2), b"four")
    edge.world.pass_time(60)
    await edge.controller.timeline.run_round()
    time = edge.world.env.clock.wall_ms() + 1
    edge.world.pass_time(60)
    await edge.append(sid(0), b", and more")
    await edge.controller.streams.scale(STREAM, [sid(5, 2)], halves(0.625, 0.75))
    await edge.append(sid(6, 3), b"six")
    return edge, time


async def copied(edge: Side, core: Side, start_ms: int) -> MirrorState:
    """Copy until nothing is behind, as the copier does."""
    (facts,) = await edge.source.facts("s", [STREAM], start_ms)
    assert facts is not None
    (state,) = await core.target.begin(UP, "s", [facts])
    for _ in range(20):
        assert state.status is MirrorStatus.READY, state.reason
        assert state.position is not None
        (offer,) = await edge.source.offers("s", [state.position], LIMIT)
        assert offer is not None
        plan = rounds.plan(state, facts, offer, 0)
        if isinstance(plan, rounds.Nothing):
            return state
        assert isinstance(plan, rounds.Copy), plan
        assert plan.round is not None
        for one in plan.ranges:
            (data,) = await edge.source.read("s", [one])
            (written,) = await core.target.write(UP, "s", [Write(STREAM, one.segment, one.offset, data, staged=True)])
            assert not written.refused, written
        (state,) = await core.target.finish(UP, "s", [plan.round])
        assert state.status is MirrorStatus.READY, state.reason
        assert state.position == plan.reached
    raise AssertionError("there is always more to copy")


def test_a_long_history_is_offered_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "MAX_OFFER_SEGMENTS", 4)

    async def main() -> None:
        edge, core = await side("edge", 1), await side("core", 2)
        for one in (edge, core):
            await one.controller.scopes.create("s")
        await edge.controller.streams.create(STREAM, config(2))
        for number in range(12):
            active = await edge.current()
            await edge.append(active[number % len(active)], b"x" * (number + 1))
            # The lower half of the key space is split and merged in turn.
            apart, together = halves(0.0, 0.5), [KeyRange(0.0, 0.5)]
            if len(active) == 2:
                await edge.controller.streams.scale(STREAM, active[:1], apart)
            else:
                await edge.controller.streams.scale(STREAM, active[:2], together)
        (offer,) = await edge.source.offers("s", [Position(STREAM, 0, {sid(0): 0, sid(1): 0})], LIMIT)
        assert offer is not None
        assert offer.more
        assert len(offer.epochs) == 1
        await copied(edge, core, FROM_HEAD)
        assert await edge.data() == await core.data()
        assert await epochs(edge) == await epochs(core)
        core.world.check()

    run(main())


async def epochs(one: Side) -> tuple[Epoch, ...]:
    return (await one.controller.catalog.require(STREAM)).record.epochs


@pytest.mark.parametrize("start", ["head", "truncated", "time", "end"])
def test_a_mirror_begins_at_a_cut_of_several_epochs(start: str) -> None:
    async def main() -> None:
        edge, time = await scaled_source()
        core = await side("core", 2)
        await core.controller.scopes.create("s")
        cut = {sid(0): 4, sid(3, 1): 5, sid(4, 2): 4, sid(5, 2): 0}
        if start == "truncated":
            await edge.controller.streams.truncate(STREAM, cut)
        start_ms = {"time": time, "end": FROM_TAIL}.get(start, FROM_HEAD)
        await copied(edge, core, start_ms)
        await edge.append(sid(0), b"!")
        await edge.append(sid(3, 1), b"!")
        await edge.controller.streams.scale(STREAM, [sid(0)], halves(0.0, 0.5))
        await copied(edge, core, start_ms)
        begins = {
            "head": {sid(0): 0, sid(1): 0},
            "end": {sid(0): 14, sid(3, 1): 5, sid(4, 2): 4, sid(6, 3): 3, sid(7, 3): 0},
        }.get(start, cut)
        record = (await core.controller.catalog.require(STREAM)).record
        assert (record.head or begins) == begins
        there, here = await edge.data(), core.world.segments.segments
        total = 0
        for name, segment in here.items():
            if name.startswith(f"{STREAM}/"):
                data = there[name.removeprefix(f"{STREAM}/")]
                offset = next((at for s, at in begins.items() if STREAM.segment(SegmentId.unpack(s)) == name), 0)
                assert (segment.begin, segment.data) == (offset, data[offset:]), name
                total += len(segment.data)
        assert total == {"head": 34, "end": 2}.get(start, 15)
        edge.world.check()
        core.world.check()

    run(main())
