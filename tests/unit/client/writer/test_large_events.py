"""Large events between others."""

import pyarrow as pa
import pytest

from sarit.core.names import SegmentId
from tests.unit.client.world import on_loop

FIRST = SegmentId(0, 0)
NAME = "s/t/0.#epoch.0"


@pytest.mark.parametrize("lost_replies", [0, 1])
def test_large_event_is_stored_once_between_its_neighbours(lost_replies: int) -> None:
    @on_loop
    async def check(world) -> None:
        world.controller.create("s/t")
        world.store.lose_merge_replies = lost_replies
        large = bytes(range(256)) * (9 << 12)
        writer = world.client.writer("s/t")
        writer.write(b"before", key="k")
        writer.write(large, key="k")
        writer.write(b"after", key="k")
        writer.write_many(pa.array([b"more", large, b"end"], pa.large_binary()))
        await writer.flush()
        assert world.stored(NAME) == [b"before", large, b"after", b"more", large, b"end"]
        await writer.close()

    check()


@on_loop
async def test_large_event_moves_to_the_successor_of_a_sealed_segment(world) -> None:
    stream = world.controller.create("s/t")
    writer = world.client.writer("s/t")
    writer.write(b"before", key="k")
    await writer.flush()
    low, high = world.controller.scale(stream, [FIRST], [(0.0, 0.5), (0.5, 1.0)])
    large = b"L" * (9 << 20)
    writer.write(large, key="k")
    writer.write(b"after", key="k")
    await writer.flush()
    assert [large, b"after"] in [world.stored(stream.segment(segment)) for segment in (low, high)]
    await writer.close()
