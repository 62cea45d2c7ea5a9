"""Where a writer finds the successors of a sealed segment."""

from sarit.client.core.framing import split_events
from sarit.core.names import SegmentId
from tests.unit.client.fake_store import FakeStore
from tests.unit.client.world import on_loop

FIRST = SegmentId(0, 0)


@on_loop
async def test_successors_are_first_requested_from_the_store_of_their_predecessor(world) -> None:
    stream = world.controller.create("s/t")
    writer = world.client.writer("s/t")
    writer.write(b"x:0", key="x")
    await writer.flush()
    assert world.controller.asked == [FIRST]
    world.controller.scale(stream, [FIRST], [(0.0, 0.5), (0.5, 1.0)])
    for number in range(20):
        writer.write(b"%d" % number, key=str(number))
    await writer.flush()
    assert len(world.everything()) == 21
    assert world.controller.asked == [FIRST]
    await writer.close()


@on_loop
async def test_a_successor_at_another_store_is_found_there(world) -> None:
    stream = world.controller.create("s/t")
    writer = world.client.writer("s/t")
    writer.write(b"x:0", key="x")
    await writer.flush()
    other = FakeStore()
    await other.start(world.session.env.network)
    low, high = world.controller.scale(stream, [FIRST], [(0.0, 0.5), (0.5, 1.0)])
    name = stream.segment(high)
    world.store.foreign.add(name)
    other.create(name)
    world.controller.elsewhere[high] = other.port
    for number in range(20):
        writer.write(b"%d" % number, key=str(number))
    await writer.flush()
    assert world.controller.asked == [FIRST, high]
    here, there = world.stored(stream.segment(low)), split_events(other.segments[name].data)
    assert sorted(here + there, key=int) == [b"%d" % number for number in range(20)]
    assert here
    assert there
    await writer.close()
    await other.stop()
