"""Containers that a store is given, releases, and has lost."""

import asyncio

import pytest

from sarit.core.errors import Moved
from sarit.store.hosting.health import HealthState
from sarit.store.store import SegmentStore, container_of
from sarit.wire import commands as wire
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import World, memory_env
from tests.unit.store.placements import RecordedPlacement
from tests.unit.store.server.test_connection import WRITER, serving

NAME = "scope/stream/0.#epoch.0"
NUMBER = container_of(NAME, 2)
OTHER = 1 - NUMBER


def store_of(world, *owned):
    return SegmentStore(memory_env(), world.logs, world.indexes, world.storage, world.limits, owned=frozenset(owned))


async def reaches(store, number, state):
    async with asyncio.timeout(HANG_SECONDS):
        while store.health()[number].state is not state:
            await asyncio.sleep(0)


def test_store_answers_moved_for_what_it_does_not_own():
    async def main():
        store = store_of(World(), OTHER)
        await store.start()
        for part in (store.container, store.reads, store.tables):
            with pytest.raises(Moved):
                part(NAME)
        assert [health.state.value for health in store.health()].count("serving") == 1
        await store.stop()

    asyncio.run(main())


def test_container_serves_after_own_and_moves_after_release():
    async def main():
        store = store_of(World())
        await store.start()
        released = []
        store.placement = RecordedPlacement(released=released.append)
        store.own(NUMBER, 1)
        await reaches(store, NUMBER, HealthState.SERVING)
        await store.container(NAME).create(NAME)
        store.release(NUMBER, graceful=True)
        async with asyncio.timeout(HANG_SECONDS):
            while not released:
                await asyncio.sleep(0)
        with pytest.raises(Moved):
            store.container(NAME)
        store.own(NUMBER, 2)
        await reaches(store, NUMBER, HealthState.SERVING)
        assert (await store.container(NAME).info(NAME)).length == 0
        await store.stop()

    asyncio.run(main())


@pytest.mark.parametrize("version", [15, 17])
def test_requests_for_a_container_of_another_store_are_answered_by_wrong_host(version):
    async def main():
        async with serving() as server:
            store = server.store
            store.release(container_of(NAME, 2), graceful=False)
            await reaches(store, NUMBER, HealthState.ABSENT)
            client = await server.client(version=version)
            segment = wire.SetupAppend(2, WRITER, NAME, "")
            assert await client.ask(segment) == wire.WrongHost(2, NAME, "")
            assert await client.ask(wire.ReadSegment(NAME, 0, 10, "", 3)) == wire.WrongHost(3, NAME, "")
            assert await client.ask(wire.GetStreamSegmentInfo(4, NAME, "")) == wire.WrongHost(4, NAME, "")

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
