"""Recorded cuts of a mirror: those of its source, under the source's times, as far as the mirror reaches."""

import pytest

from sarit.controller import keys
from sarit.controller.model.records import CutRecord
from sarit.core.errors import Invalid
from sarit.core.links import LinkDirection, LinkSettings
from sarit.mirror.attached import LocalAttachedSource, LocalAttachedTarget
from sarit.mirror.attached_copy import AttachedCopy
from sarit.mirror.attachments import StreamCuts
from tests.unit.controller.world import STREAM, run
from tests.unit.mirror.installations import Side
from tests.unit.mirror.test_full_circle import BACK, UP, carry, two_sides

SETTINGS = LinkSettings(LinkDirection.PUSH, "core:9090", tables=False)


def attached_target(core):
    c = core.controller
    return LocalAttachedTarget(c.catalog, c.scopes, c.tables, c.groups, core.world.segments, "core")


async def copy_cuts(edge, core, link=UP):
    source = Side(LocalAttachedSource(edge.controller.catalog, "edge", edge.world.segments))
    return await AttachedCopy().copy(source, Side(attached_target(core)), link, SETTINGS, "s", [STREAM])


async def record(edge):
    """Record a cut, a second after the one before.  Returns its time."""
    edge.world.env.clock.seconds += 1
    await edge.controller.timeline.record(STREAM)
    return edge.world.env.clock.wall_ms() + 1


async def recorded(side):
    return [
        int(keys.last_part(key), 16) for key, _ in await side.controller.catalog.stream_records(STREAM, keys.TIMELINE)
    ]


def test_a_question_for_a_time_has_one_answer_on_both_sides():
    async def test():
        edge, core = await two_sides()
        times = []
        for number in range(5):
            await edge.append(0, f"event {number}".encode())
            times.append(await record(edge))
        await carry(edge, core, UP)
        assert await copy_cuts(edge, core) == []
        for time in times:
            for at in (time - 500, time, time + 500):
                assert await core.controller.timeline.at(STREAM, at) == await edge.controller.timeline.at(STREAM, at)
        assert await recorded(core) == times
        await copy_cuts(edge, core)
        assert await recorded(core) == times

    run(test())


def test_a_cut_is_recorded_only_when_the_mirror_reaches_it():
    async def test():
        edge, core = await two_sides()
        early = await record(edge)
        await carry(edge, core, UP)
        await edge.append(0, b"later")
        late = await record(edge)
        await copy_cuts(edge, core)
        assert await recorded(core) == [early]
        await carry(edge, core, UP)
        await copy_cuts(edge, core)
        assert await recorded(core) == [early, late]

    run(test())


def test_a_mirror_records_no_cuts_of_its_own_and_takes_none_of_another_link():
    async def test():
        edge, core = await two_sides()
        await record(edge)
        await carry(edge, core, UP)
        await core.controller.timeline.record(STREAM)
        await copy_cuts(edge, core, BACK)
        assert await recorded(core) == []

    run(test())


HOSTILE = {
    "a cut that covers nothing": CutRecord(5, 0, {}),
    "a segment with a negative id": CutRecord(5, 0, {-1: 0}),
    "a time before 1970": CutRecord(-5, 0, {0: 0}),
    "a time that no key can hold": CutRecord(1 << 60, 0, {0: 0}),
    "an offset below 0": CutRecord(5, 0, {0: -1}),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_cuts_that_are_none_are_refused(what):
    async def test():
        edge, core = await two_sides()
        await carry(edge, core, UP)
        with pytest.raises(Invalid):
            await attached_target(core).add_cuts(UP, "s", [StreamCuts(STREAM, (HOSTILE[what],))])
        with pytest.raises(Invalid):
            await attached_target(core).add_cuts(UP, "other", [StreamCuts(STREAM, ())])

    run(test())


def test_cuts_of_a_mirror_are_thinned_as_those_of_any_stream():
    async def test():
        edge, core = await two_sides()
        await carry(edge, core, UP)
        target = attached_target(core)
        day = 24 * 3_600_000
        times = [day + 1000 * number for number in range(900)]  # 15 minutes, a cut each second
        await target.add_cuts(UP, "s", [StreamCuts(STREAM, tuple(CutRecord(time, 0, {0: 0}) for time in times))])
        await target.add_cuts(UP, "s", [StreamCuts(STREAM, (CutRecord(3 * day, 0, {0: 5}),))])
        kept = await recorded(core)
        assert len(kept) < 10
        assert kept[-1] == 3 * day

    run(test())
