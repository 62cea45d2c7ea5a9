"""Bytes staged for a segment, beside copiers that are late."""

from __future__ import annotations

import pytest

from sarit.core.errors import Conflict, Sealed
from sarit.core.names import staging_segment
from sarit.mirror.staging import Place, Staging, StagingMissing
from tests.unit.controller.fakes import FakeSegments
from tests.unit.controller.world import run

SEGMENT = "s/t/0.#epoch.0"
DATA = b"0123456789abcdefghij"
HERE = Place(SEGMENT, 7)


async def begun(staged: bytes = DATA[7:]) -> tuple[FakeSegments, Staging]:
    """A segment of 7 bytes, with the rest staged."""
    segments = FakeSegments()
    staging = Staging(segments)
    await segments.create_at(SEGMENT, 0, mirror=True)
    await segments.append_at_many([(SEGMENT, 0, DATA[:7])])
    assert await staging.append([(HERE, 7, staged)]) == [7 + len(staged)]
    return segments, staging


def test_bytes_that_a_late_copier_appended_are_not_merged_again():
    async def test():
        segments, staging = await begun()
        assert await staging.seal({HERE: 13})
        await segments.append_at_many([(SEGMENT, 7, DATA[7:12])])
        await staging.merge(HERE, 20)
        assert segments.segments[SEGMENT].data == DATA
        assert list(segments.segments) == [SEGMENT]
        await staging.merge(HERE, 20)
        assert segments.segments[SEGMENT].data == DATA

    run(test())


def test_bytes_are_staged_once_by_however_many_copiers():
    async def test():
        segments, staging = await begun(DATA[7:12])
        found = await staging.append([(HERE, 7, DATA[7:9]), (HERE, 9, DATA[9:15]), (HERE, 10, DATA[10:14])])
        assert found == [9, 15, 14]
        (gap,) = await staging.append([(HERE, 16, b"x")])
        assert isinstance(gap, Conflict)
        assert gap.actual == 15
        assert segments.segments[staging_segment(SEGMENT, 7)].data == DATA[7:15]
        assert await staging.lengths([HERE]) == {SEGMENT: 8}
        assert await staging.seal({HERE: 8})
        (there, more) = await staging.append([(HERE, 8, DATA[8:10]), (HERE, 15, b"f")])
        assert there == 10
        assert isinstance(more, Sealed)

    run(test())


def test_what_is_longer_than_a_round_or_sealed_and_shorter_is_useless():
    async def test():
        _, staging = await begun()
        assert not await staging.seal({HERE: 14})
        assert await staging.useless({HERE: 14}) == []
        assert not await staging.seal({HERE: 12})
        assert await staging.useless({HERE: 12}) == [HERE]
        assert await staging.seal({HERE: 13})
        assert await staging.useless({HERE: 14}) == [HERE]
        assert await staging.useless({HERE: 13}) == []

    run(test())


def test_what_is_staged_after_a_drop_is_not_deleted_by_a_late_deletion():
    async def test():
        segments, staging = await begun()
        again = HERE._replace(drops=1)
        assert await staging.append([(again, 7, DATA[7:])]) == [20]
        await staging.delete([HERE])
        assert await staging.present([HERE, again]) == [again]
        assert await staging.seal({again: 13})
        await staging.merge(again, 20)
        assert segments.segments[SEGMENT].data == DATA

    run(test())


@pytest.mark.parametrize("appended", [b"", DATA[7:9]])
def test_lost_bytes_are_named_and_nothing_is_merged(appended):
    async def test():
        segments, staging = await begun()
        await staging.delete([HERE])
        await segments.append_at_many([(SEGMENT, 7, appended)])
        with pytest.raises(StagingMissing, match=SEGMENT):
            await staging.merge(HERE, 20)
        assert segments.segments[SEGMENT].data == DATA[:7] + appended

    run(test())


def test_bytes_that_others_staged_further_on_are_replaced():
    """A late copier appended, and staged what lies behind that, and more."""

    async def test():
        segments, staging = await begun()
        assert await staging.seal({HERE: 13})
        await segments.append_at_many([(SEGMENT, 7, DATA[7:12])])
        assert await staging.append([(HERE._replace(base=12), 12, DATA[12:] + b"more")]) == [24]
        await staging.merge(HERE, 20)
        assert segments.segments[SEGMENT].data == DATA
        assert list(segments.segments) == [SEGMENT]

    run(test())
