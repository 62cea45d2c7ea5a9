"""A store stands still, as by SIGSTOP or in a hung machine: connections stay open, and nothing is answered any more.

Its segments are served by another store soon; the client has to ask the controller, for nobody tells it.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sarit.client.core import connection as connections
from sarit.client.core import segments
from sarit.client.session import session
from sarit.core.errors import Unavailable
from sarit.core.names import SegmentId
from tests.unit.client.fake_store import FakeStore
from tests.unit.client.world import on_loop, until

SEGMENT = SegmentId(0, 0)
NAME = "s/t/0.#epoch.0"


@pytest.fixture(autouse=True)
def checks_without_waits(monkeypatch) -> None:
    """Intervals of milliseconds.  Nothing but the controller's answer ends a wait within the time of a test."""
    monkeypatch.setattr(connections, "CHECKS_PER_KEEP_ALIVE", 5000)
    monkeypatch.setattr(connections, "DEAD_AFTER_KEEP_ALIVES", 1000)
    monkeypatch.setattr(connections, "CONNECT_TIMEOUT_SECONDS", 10_000.0)
    monkeypatch.setattr(session, "ASK_OWNER_AFTER_SECONDS", 0.01)
    monkeypatch.setattr(session, "ASK_OWNER_AGAIN_SECONDS", 0.01)


@asynccontextmanager
async def next_owner(world):
    """A second store with the same segments, as after the move of a container."""
    store = FakeStore()
    store.segments = world.store.segments
    await store.start(world.session.env.network)
    try:
        yield store
    finally:
        await store.stop()


@on_loop
async def test_writer_goes_on_at_the_next_owner_and_stores_each_event_once(world) -> None:
    """Its appends waited for 42 to 48 s, though the container was elsewhere after 8."""
    stream = world.controller.create("s/t")
    async with next_owner(world) as second, world.client.writer("s/t") as writer:
        writer.write(b"acknowledged")
        await writer.flush()
        world.store.mute.add(NAME)  # applied, and the acknowledgement never comes
        writer.write(b"applied")
        await until(lambda: world.store.held_back)
        world.store.stand_still()
        writer.write(b"never read")
        flushing = asyncio.ensure_future(writer.flush())
        asked = len(world.controller.asked)
        await until(lambda: len(world.controller.asked) > asked + 1)
        assert not flushing.done()  # the controller named the same store
        world.controller.elsewhere[SEGMENT] = second.port
        await flushing
        assert world.stored(NAME) == [b"acknowledged", b"applied", b"never read"]
        world.store.mute.clear()
        world.store.go_on()
    assert stream in world.controller.current


@on_loop
async def test_reader_at_the_tail_goes_on_at_the_next_owner(world) -> None:
    world.controller.create("s/t")
    async with next_owner(world) as second, world.client.reader("s/t") as reader:
        reading = asyncio.ensure_future(anext(aiter(reader)))
        await until(lambda: world.store.segments[NAME].parked)
        world.store.stand_still()
        world.controller.elsewhere[SEGMENT] = second.port
        async with world.client.writer("s/t") as writer:
            writer.write(b"event")
        assert await reading == b"event"
        assert second.peers


@on_loop
async def test_request_goes_on_at_the_next_owner(world) -> None:
    """Half a minute for a question about a segment, an update of a table, a revision."""
    stream = world.controller.create("s/t")
    async with next_owner(world) as second:
        await segments.segment_info(world.session, stream, SEGMENT)
        world.store.stand_still()
        asking = asyncio.ensure_future(segments.segment_info(world.session, stream, SEGMENT))
        await asyncio.sleep(0)
        world.controller.elsewhere[SEGMENT] = second.port
        assert (await asking).end_offset == 0


@on_loop
async def test_client_that_connects_goes_on_at_the_next_owner(world) -> None:
    """The kernel of the store that stands still took the connection, and the client waited 10 s for a Hello."""
    stream = world.controller.create("s/t")
    async with next_owner(world) as second:
        world.store.stand_still()
        asking = asyncio.ensure_future(segments.segment_info(world.session, stream, SEGMENT))
        await until(lambda: len(world.controller.asked) > 2)
        world.controller.elsewhere[SEGMENT] = second.port
        assert (await asking).end_offset == 0


@on_loop
async def test_connection_is_kept_while_the_controller_names_the_same_store_or_none(world) -> None:
    world.controller.create("s/t")
    async with world.client.writer("s/t") as writer:
        writer.write(b"one")
        await writer.flush()
        world.store.stand_still()
        writer.write(b"two")
        flushing = asyncio.ensure_future(writer.flush())
        asked = len(world.controller.asked)
        await until(lambda: len(world.controller.asked) > asked + 1)

        async def nobody_owns_it(stream: object, segment: object) -> tuple[str, int]:
            world.controller.asked.append(segment)
            raise Unavailable("no store serves it now")

        world.controller.endpoint = nobody_owns_it
        asked = len(world.controller.asked)
        await until(lambda: len(world.controller.asked) > asked)
        assert world.store.setups == 1
        world.store.go_on()
        await flushing
    assert (world.store.setups, world.stored(NAME)) == (1, [b"one", b"two"])
