"""A stream whose epochs have a gap, as that of a promoted mirror has: what every query and change answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sarit.controller.calls.streams import StreamCalls
from sarit.controller.model.epochs import promoted_epoch
from sarit.controller.model.records import Work, WorkKind
from sarit.core.errors import Invalid, NotFound
from sarit.core.keyspace import KeyRange, split_evenly
from sarit.core.names import SegmentId
from sarit.rpc.generated import controller_pb2 as pb
from tests.unit.controller.world import STREAM, World, run, stream_with

FAR = 1_000_001
CHECK = pb.ScaleStatusResponse


def ids(epoch: int, *numbers: int) -> list[int]:
    return [SegmentId(epoch, number).packed for number in numbers]


async def with_gap(world: World):
    """Epochs 0 (segment 0), 1 (segments 1 and 2) and FAR (segments 3 and 4)."""
    controller = await world.controller()
    await stream_with(controller, 1)
    await controller.streams.scale(STREAM, ids(0, 0), split_evenly(2))

    def jump(record, _):
        return replace(record, work=Work(WorkKind.SCALE, (), (promoted_epoch(record.current, 1_000_000, 0),)))

    await controller.streams.change(STREAM, jump)
    return controller


@pytest.fixture(params=[64, 1], ids=["in the record", "in chunks"])
def chunk(request, monkeypatch):
    monkeypatch.setattr("sarit.controller.model.streams.EPOCHS_PER_CHUNK", request.param)


def test_an_epoch_between_is_the_last_one_before_the_gap(chunk) -> None:
    async def main() -> None:
        streams = (await with_gap(World())).streams
        assert [(await streams.epoch(STREAM, n)).number for n in (0, 1, 2, FAR - 1, FAR)] == [0, 1, 1, 1, FAR]
        with pytest.raises(NotFound):
            await streams.epoch(STREAM, FAR + 1)

    run(main())


def test_successors_and_cuts_reach_over_the_gap(chunk) -> None:
    async def main() -> None:
        controller = await with_gap(World())
        streams = controller.streams
        ((successor, before),) = await streams.successors_of(STREAM, ids(1, 2)[0])
        assert (successor.segment, before) == (ids(FAR, 4)[0], ids(1, 2))
        assert await streams.successors_of(STREAM, ids(FAR, 3)[0]) == []
        with pytest.raises(NotFound):
            await streams.successors_of(STREAM, ids(5, 3)[0])
        head, tail = dict.fromkeys(ids(0, 0), 0), dict.fromkeys(ids(FAR, 3, 4), 0)
        assert await streams.segments_between(STREAM, head, tail) == [*ids(0, 0), *ids(1, 1, 2), *ids(FAR, 3, 4)]
        assert await streams.is_cut(STREAM, tail, after=head)
        assert not await streams.is_cut(STREAM, head, after=tail)
        assert not await streams.is_cut(STREAM, dict.fromkeys(ids(7, 3, 4), 0))

    run(main())


def test_the_stream_scales_truncates_and_rolls_on_behind_the_gap(chunk) -> None:
    async def main() -> None:
        world = World()
        controller = await with_gap(world)
        before, _ = await controller.streams.scale(STREAM, ids(FAR, 3), KeyRange(0.0, 0.5).split_evenly(2))
        assert before == FAR
        assert (await controller.catalog.require(STREAM)).record.current.number == FAR + 1
        with pytest.raises(Invalid):
            await controller.streams.truncate(STREAM, dict.fromkeys(ids(9, 3, 4), 0))
        await controller.streams.truncate(STREAM, dict.fromkeys(ids(FAR, 3, 4), 0))
        left = {STREAM.segment(SegmentId.unpack(s)) for s in ids(0, 0) + ids(1, 1, 2)} & set(world.segments.segments)
        assert not left
        await controller.streams.seal(STREAM)
        await controller.streams.delete(STREAM)
        assert not [name for name in world.segments.segments if name.startswith("s/t/")]

    run(main())


def test_a_scale_of_the_epoch_before_the_gap_is_complete(chunk) -> None:
    async def main() -> None:
        controller = await with_gap(World())
        calls = StreamCalls(controller.catalog, controller.streams)

        async def status(epoch: int) -> int:
            request = pb.ScaleStatusRequest(streamInfo=pb.StreamInfo(scope="s", stream="t"), epoch=epoch)
            return (await calls.checkScale(request)).status

        assert [await status(n) for n in (0, 1, FAR - 1)] == [CHECK.SUCCESS] * 3
        assert await status(FAR) == CHECK.IN_PROGRESS
        assert await status(FAR + 1) == CHECK.INVALID_INPUT

    run(main())


def test_a_cut_beyond_the_end_at_which_the_stream_was_promoted_is_refused(chunk) -> None:
    async def main() -> None:
        world = World()
        controller = await with_gap(world)
        streams, names = controller.streams, [STREAM.segment(SegmentId(1, n)) for n in (1, 2)]
        world.segments.segments[names[0]].sealed = False
        world.segments.append(names[0], "x")
        world.segments.segments[names[0]].sealed = True
        whole, beyond = (dict(zip(ids(1, 1, 2), (at, 0), strict=True)) for at in (10, 11))
        assert await streams.is_cut(STREAM, whole)
        assert not await streams.is_cut(STREAM, beyond)
        assert await streams.segments_between(STREAM, whole, {}) == [*ids(1, 1, 2), *ids(FAR, 3, 4)]
        for start, end in ((beyond, {}), ({}, beyond)):
            with pytest.raises(Invalid, match=r"at 11 in segment 1\.#epoch\.1 of stream s/t, which ended at 10"):
                await streams.segments_between(STREAM, start, end)
        with pytest.raises(Invalid, match="has 10 bytes, not 11"):
            await streams.truncate(STREAM, beyond)
        # Where nothing was promoted, no lengths are read.
        world.segments.segments.clear()
        assert await streams.is_cut(STREAM, dict.fromkeys(ids(FAR, 3, 4), 99))

    run(main())
