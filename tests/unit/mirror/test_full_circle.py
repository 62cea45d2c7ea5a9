"""Two installations over fakes: copied, promoted, fenced, copied back, promoted back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sarit.controller.limits import PROMOTED_EPOCHS, RECOVERY_GRACE_SECONDS
from sarit.controller.model.records import State
from sarit.core.errors import Invalid, Unavailable
from sarit.core.names import SegmentId, StreamName, staging_segment
from sarit.mirror.mirror_rows import find_known
from sarit.mirror.round_steps import RoundSteps
from sarit.mirror.source import LocalSource
from sarit.mirror.target import LocalTarget
from sarit.mirror.values import FROM_HEAD, LinkIdentity, MirrorState, MirrorStatus, Position, Range, Round, Write
from tests.unit.controller.fakes import fake_env
from tests.unit.controller.world import STREAM, World, config, halves, run, segment

if TYPE_CHECKING:
    from sarit.controller.assembly import Controller
    from sarit.mirror.values import Offer, StreamFacts

UP = LinkIdentity(b"u" * 16, "up", "edge")
BACK = LinkIdentity(b"b" * 16, "back", "edge")
MARK = StreamName("s", "_MARKt")
LIMIT = 1 << 20


class Side:
    """An installation."""

    def __init__(self, installation: str, world: World, controller: Controller) -> None:
        parts = (controller.streams, world.segments, world.env, installation)
        self.installation = installation
        self.world, self.controller = world, controller
        self.source = LocalSource(controller.catalog, *parts)
        self.target = LocalTarget(controller.catalog, controller.streams, controller.scopes, *parts[1:])

    async def append(self, at: int, data: bytes, name: StreamName = STREAM) -> None:
        where = name.segment(SegmentId.unpack(at))
        length = self.world.segments.segments[where].length
        (end,) = await self.world.segments.append_at_many([(where, length, data)])
        assert isinstance(end, int), end

    async def data(self, name: StreamName = STREAM) -> dict[str, bytes]:
        prefix = f"{name}/"
        return {n.removeprefix(prefix): s.data for n, s in self.world.segments.segments.items() if n.startswith(prefix)}

    async def current(self, name: StreamName = STREAM) -> list[int]:
        return [s.segment for s in (await self.controller.catalog.require(name)).record.current.segments]

    async def state(self, name: StreamName = STREAM) -> State:
        return (await self.controller.catalog.require(name)).record.state


async def side(installation: str, seed: int) -> Side:
    world = World()
    world.env = fake_env(seed)
    return Side(installation, world, await world.controller())


async def two_sides() -> tuple[Side, Side]:
    edge, core = await side("edge", 1), await side("core", 2)
    await edge.controller.scopes.create("s")
    await edge.controller.streams.create(STREAM, config(1))
    await edge.append(0, b"first")
    return edge, core


async def facts_of(source: Side, name: StreamName = STREAM) -> StreamFacts:
    (facts,) = await source.source.facts("s", [name], FROM_HEAD)
    assert facts is not None
    return facts


async def begun(source: Side, target: Side, link: LinkIdentity, *, discard: bool = False) -> MirrorState:
    found = [await facts_of(source, name) for name in (MARK, STREAM)]
    (_, state) = await target.target.begin(link, "s", found, discard_divergent=discard)
    return state


def as_round(position: Position, offer: Offer, facts: StreamFacts, head: dict[int, int]) -> Round:
    last = offer.epochs[-1].ids if offer.epochs else set(position.lengths)
    ids = set(position.lengths) | {s.segment for epoch in offer.epochs for s in epoch.segments}
    ends = facts.sealed and not facts.fenced
    sealed = frozenset(ids if ends else ids - last)
    after = {s: offer.lengths[s] for s in ids if s in offer.lengths}
    return Round(position.name, dict(position.lengths), after, sealed, offer.epochs, ends=ends)


async def stage(source: Side, target: Side, link: LinkIdentity, state: MirrorState) -> Round | None:
    """Stage the next round; None: nothing is behind."""
    position = state.position
    (offer,) = await source.source.offers("s", [position], LIMIT)
    one = as_round(position, offer, await facts_of(source, position.name), state.head)
    if one.after == one.before and not one.epochs and not one.ends:
        return None
    for s, end in one.after.items():
        at = one.before.get(s, state.head.get(s, 0))
        if at < end:
            (data,) = await source.source.read("s", [Range(position.name, s, at, end - at)])
            (written,) = await target.target.write(link, "s", [Write(position.name, s, at, data, True)])
            assert (written.end, written.refused) == (end, False), written
    return one


async def carry(source: Side, target: Side, link: LinkIdentity, **choice: bool) -> MirrorState:
    """Copy all that there is."""
    state = await begun(source, target, link, **choice)
    for _ in range(20):
        assert state.status is MirrorStatus.READY, state.reason
        one = await stage(source, target, link, state)
        if one is None:
            return state
        (state,) = await target.target.finish(link, "s", [one])
    raise AssertionError("there is always more to copy")


async def check_equal(source: Side, target: Side) -> None:
    """Equal bytes at equal offsets."""
    assert await source.data() == await target.data()


def test_planned_promotion_loses_nothing_and_the_way_back_copies_nothing_again() -> None:
    async def main() -> None:
        edge, core = await two_sides()
        await carry(edge, core, UP)
        await edge.controller.streams.scale(STREAM, [0], halves(0.0, 1.0))
        low, high = await edge.current()
        await edge.append(low, b"low")
        await edge.append(high, b"high")
        # Planned: fence, drain, promote.
        await edge.source.fence(UP, "s", [STREAM, MARK], UP.link_id)
        state = await carry(edge, core, UP)
        await check_equal(edge, core)
        assert await core.state() is State.ACTIVE, "the seal of a fenced stream was copied"
        (state,) = await core.target.promote(UP, "s", [STREAM])
        assert (state.status, state.lineage.ends) == (MirrorStatus.PROMOTED, {low: 3, high: 4})
        await core.controller.streams.scale(STREAM, (await core.current())[:1], halves(0.0, 0.5))
        await core.append((await core.current())[0], b"written at the core")
        assert not (await core.controller.catalog.require(MARK)).record.mirrored
        # The old link is refused everywhere.
        assert (await begun(edge, core, UP)).status is MirrorStatus.PROMOTED
        (old,) = await core.target.states(UP, "s", [STREAM])
        assert (old.status, old.lineage) == (MirrorStatus.PROMOTED, state.lineage)
        (written,) = await core.target.write(UP, "s", [Write(STREAM, low, 3, b"late", False)])
        assert written.refused
        late = Round(STREAM, {low: 3, high: 4}, {low: 7, high: 4}, frozenset(), ())
        assert [one.status for one in await core.target.finish(UP, "s", [late])] == [MirrorStatus.PROMOTED]
        # Back: the old source becomes the mirror, without a byte copied again.
        before = await edge.data()
        begin = await begun(core, edge, BACK)
        assert (begin.status, begin.position) == (MirrorStatus.READY, Position(STREAM, 1, {low: 3, high: 4}))
        assert await edge.data() == before
        await carry(core, edge, BACK)
        await check_equal(core, edge)
        assert (await edge.controller.catalog.require(STREAM)).record.current.number == 2 + PROMOTED_EPOCHS
        # And back again, without a fence in between.
        await core.append((await core.current())[0], b"never copied")
        (state,) = await edge.target.promote(BACK, "s", [STREAM])
        assert state.lineage.epoch == 2 + 2 * PROMOTED_EPOCHS
        known = await find_known(edge.controller.catalog, STREAM)
        assert [one.installation for one in known.row.lineages] == ["core", "edge"]
        again = replace(UP, link_id=b"v" * 16, name="again", installation="core")
        state = await begun(edge, core, again)
        assert (state.status, " 12 bytes " in state.reason) == (MirrorStatus.REFUSED, True), state.reason

    run(main())


def test_unplanned_promotion_finishes_a_decided_round_and_drops_an_undecided_one() -> None:
    async def main() -> None:
        edge, core = await two_sides()
        state = await carry(edge, core, UP)
        await edge.append(0, b"second")
        assert await stage(edge, core, UP, state) is not None
        assert staging_segment(segment(0), 5) in core.world.segments.segments
        (state,) = await core.target.promote(UP, "s", [STREAM])
        assert state.lineage.ends == {0: 5}
        staged = [name for name in core.world.segments.segments if "#transaction" in name]
        assert not staged
        # The source learns of it, and turns read-only.
        await edge.source.fence(UP, "s", [STREAM], state.lineage.lineage_id)
        assert await edge.state() is State.SEALED
        # It has six bytes that nobody else has.
        state = await begun(core, edge, BACK)
        assert (state.status, " 6 bytes " in state.reason) == (MirrorStatus.REFUSED, True), state.reason
        await carry(core, edge, BACK, discard=True)
        await check_equal(core, edge)
        (export,) = [
            StreamName("s", record)
            for record in await edge.controller.catalog.page("s", b"s/", "")
            if "divergent" in record
        ]
        assert await edge.data(export) == {"0.#epoch.0": b"second"}
        assert await edge.state(export) is State.SEALED
        assert (await edge.controller.catalog.require(STREAM)).record.mirrored

    run(main())


def test_a_source_that_was_never_fenced_is_so_when_it_hears_of_the_promotion() -> None:
    async def main() -> None:
        edge, core = await two_sides()
        await carry(edge, core, UP)
        await core.target.promote(UP, "s", [STREAM])
        await carry(core, edge, BACK)
        await check_equal(core, edge)
        with pytest.raises(Invalid, match="is a mirror of the link back"):
            await edge.source.fence(UP, "s", [STREAM], b"x" * 16)

    run(main())


def test_a_mirror_begins_again_behind_what_its_source_dropped() -> None:
    async def main() -> None:
        edge, core = await two_sides()
        await carry(edge, core, UP)
        await edge.append(0, b"never copied, and then")
        await edge.controller.streams.truncate(STREAM, {0: 18})
        facts = await facts_of(edge)
        state = await core.target.restart(UP, "s", facts)
        assert (state.status, state.position) == (MirrorStatus.READY, Position(STREAM, 0, {0: 18})), state.reason
        known = await find_known(core.controller.catalog, STREAM)
        assert (known.row.lost, known.record.mirrored) == (13, True)
        kept = StreamName("s", "t.before-0-5")
        assert await core.data(kept) == {"0.#epoch.0": b"first"}
        # Repeated, even late: nothing more is lost.
        await carry(edge, core, UP)
        state = await core.target.restart(UP, "s", facts)
        assert (state.status, state.position.lengths) == (MirrorStatus.READY, {0: 27})
        assert len(await core.controller.catalog.page("s", b"s/", "")) == 3
        # A second gap is another one.
        await edge.append(0, b"0123456789")
        await edge.controller.streams.truncate(STREAM, {0: 30})
        await core.target.restart(UP, "s", await facts_of(edge))
        assert (await find_known(core.controller.catalog, STREAM)).row.lost == 16
        kept = StreamName("s", "t.before-0-27")
        assert await core.data(kept) == {"0.#epoch.0": b" and then"}

    run(main())


def test_both_sides_say_that_they_compress() -> None:
    async def check() -> None:
        one = await side("edge", 1)
        assert (await one.source.site()).compresses
        assert (await one.target.site()).compresses

    run(check())


async def decided_round(monkeypatch: pytest.MonkeyPatch) -> Side:
    """Return a target whose controller died when it had decided a round of two segments."""
    edge, core = await side("edge", 1), await side("core", 2)
    await edge.controller.scopes.create("s")
    await edge.controller.streams.create(STREAM, config(2))
    for at, data in ((0, b"one"), (1, b"two")):
        await edge.append(at, data)
    one = await stage(edge, core, UP, await begun(edge, core, UP))
    assert one is not None
    with monkeypatch.context() as patch:

        async def dies(*_: object) -> None:
            raise Unavailable("the controller died when the round was decided")

        patch.setattr(RoundSteps, "_finish_epoch", dies)
        with pytest.raises(Unavailable, match="died"):
            await core.target.finish(UP, "s", [one])
    assert await copied(core) == [b"", b""]
    return core


async def copied(core: Side) -> list[bytes]:
    data = await core.data()
    return [data[segment(number).rpartition("/")[2]] for number in (0, 1)]


def test_a_promotion_finishes_a_round_that_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        core = await decided_round(monkeypatch)
        (state,) = await core.target.promote(UP, "s", [STREAM])
        assert state.status is MirrorStatus.PROMOTED
        assert await copied(core) == [b"one", b"two"]

    run(check())


def test_a_decided_round_is_carried_out_though_its_link_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        core = await decided_round(monkeypatch)
        sweeper = core.controller.recovery_sweeper
        sweeper._finish_round = core.target.finish_round
        await sweeper.sweep()
        assert await copied(core) == [b"", b""]  # the controller that decided it may be at work
        core.world.env.clock.seconds += RECOVERY_GRACE_SECONDS
        await sweeper.sweep()
        assert await copied(core) == [b"one", b"two"]
        assert await core.controller.catalog.pending_work() == []

    run(check())


def test_a_decided_round_whose_bytes_the_store_lost_stays_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """One segment has its part, perhaps: to give the round up could leave half a transaction for ever."""

    async def check() -> None:
        core = await decided_round(monkeypatch)
        await core.world.segments.delete(staging_segment(segment(1), 0))
        (state,) = await core.target.promote(UP, "s", [STREAM])
        assert state.status is MirrorStatus.BUSY
        assert f"lost bytes of {segment(1)}" in state.reason
        assert "delete the link here and the mirror" in state.reason
        with pytest.raises(Unavailable, match="lost bytes"):
            await core.target.finish_round(STREAM)
        assert await copied(core) == [b"one", b""]

    run(check())


def test_a_push_does_not_turn_a_former_source_into_a_mirror() -> None:
    async def check() -> None:
        edge, core = await two_sides()
        await carry(edge, core, UP)
        await core.target.promote(UP, "s", [STREAM])
        state = await begun(core, edge, replace(BACK, installation="core"), discard=True)
        assert state.status is MirrorStatus.REFUSED
        assert "pull it back" in state.reason
        assert await edge.state() is State.ACTIVE  # and it is not fenced

    run(check())
