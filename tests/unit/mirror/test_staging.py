"""Bytes staged for a segment, beside copiers that are late."""

from __future__ import annotations

import pytest

from sarit.core.errors import Conflict, Sealed
from sarit.core.names import staging_segment
from sarit.mirror.staging import Staging, StagingMissing
from tests.unit.controller.fakes import FakeSegments
from tests.unit.controller.world import run

SEGMENT = "s/t/0.#epoch.0"
DATA = b"0123456789abcdefghij"


async def begun(staged: bytes = DATA[7:]) -> tuple[FakeSegments, Staging]:
    """A segment of 7 bytes, with the rest staged."""
    segments = FakeSegments()
    staging = Staging(segments)
    await segments.create_at(SEGMENT, 0, mirror=True)
    await segments.append_at_many([(SEGMENT, 0, DATA[:7])])
    assert await staging.append([(SEGMENT, 7, 7, staged)]) == [7 + len(staged)]
    return segments, staging


def test_bytes_that_a_late_copier_appended_are_not_merged_again():
    async def test():
        segments, staging = await begun()
        assert await staging.seal({(SEGMENT, 7): 13})
        await segments.append_at_many([(SEGMENT, 7, DATA[7:12])])
        await staging.merge(SEGMENT, 7, 20)
        assert segments.segments[SEGMENT].data == DATA
        assert list(segments.segments) == [SEGMENT]
        await staging.merge(SEGMENT, 7, 20)
        assert segments.segments[SEGMENT].data == DATA

    run(test())


def test_bytes_are_staged_once_by_however_many_copiers():
    async def test():
        segments, staging = await begun(DATA[7:12])
        found = await staging.append(
            [(SEGMENT, 7, 7, DATA[7:9]), (SEGMENT, 7, 9, DATA[9:15]), (SEGMENT, 7, 10, DATA[10:14])]
        )
        assert found == [9, 15, 14]
        (gap,) = await staging.append([(SEGMENT, 7, 16, b"x")])
        assert isinstance(gap, Conflict)
        assert gap.actual == 15
        assert segments.segments[staging_segment(SEGMENT, 7)].data == DATA[7:15]
        assert await staging.lengths({SEGMENT: 7}) == {SEGMENT: 8}
        assert await staging.seal({(SEGMENT, 7): 8})
        (there, more) = await staging.append([(SEGMENT, 7, 8, DATA[8:10]), (SEGMENT, 7, 15, b"f")])
        assert there == 10
        assert isinstance(more, Sealed)

    run(test())


def test_what_is_longer_than_a_round_is_dropped():
    async def test():
        segments, staging = await begun()
        assert not await staging.seal({(SEGMENT, 7): 14})
        assert staging_segment(SEGMENT, 7) in segments.segments
        assert not await staging.seal({(SEGMENT, 7): 12})
        assert list(segments.segments) == [SEGMENT]
        with pytest.raises(StagingMissing):
            await staging.merge(SEGMENT, 7, 20)

    run(test())
