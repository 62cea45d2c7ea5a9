"""A segment of which a part is damaged: what came before it is handed out, and its error is raised at once."""

import pytest

from sarit.core.errors import Corrupt
from tests.unit.client.world import on_loop, until

NAME = "s/t/0.#epoch.0"
EVENTS = [b"%06d" % number for number in range(100)]
EVENT_BYTES = 14


async def damaged(world, at):
    world.controller.create("s/t")
    async with world.client.writer("s/t") as writer:
        writer.write_many(EVENTS)
    world.store.max_read = 100
    world.store.segments[NAME].damaged_from = at


@pytest.mark.parametrize("at", [0, 1, 60 * EVENT_BYTES, 60 * EVENT_BYTES + 3])
def test_bytes_before_a_failure_are_handed_out(at):
    """They were dropped when the failure came before they were taken."""

    @on_loop
    async def check(world):
        await damaged(world, at)
        reader = world.client.reader("s/t", end="tail")
        await reader.open()
        await until(lambda: world.store.refused_reads)
        seen = []
        with pytest.raises(Corrupt, match=f"{NAME} is damaged at {at}"):
            while found := await reader.read_events(7):
                seen += found
        assert seen == EVENTS[: at // EVENT_BYTES]
        assert sum(reader.position().positions.values()) == len(seen) * EVENT_BYTES
        with pytest.raises(Corrupt):
            await reader.read_events()
        assert world.store.refused_reads == 1, "not repeated"

    check()


@on_loop
async def test_byte_reader_fails_after_the_bytes_before(world):
    at = 60 * EVENT_BYTES
    await damaged(world, at)
    read = b""
    async with world.client.byte_reader("s/t") as reader:
        with pytest.raises(Corrupt):
            while piece := await reader.read(33):
                read += piece
    assert read == bytes(world.store.segments[NAME].data[:at])
