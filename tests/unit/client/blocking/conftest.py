"""A blocking client on the fake store."""

import pytest

from sarit.client.blocking.client import Client
from sarit.client.blocking.loop_thread import LoopThread
from tests.unit.client.fake_store import FakeController, FakeStore
from tests.unit.client.world import World


@pytest.fixture
def world():
    thread = LoopThread("test")

    async def make() -> World:
        store = FakeStore()
        made = World(store, FakeController(store))
        await store.start(made.session.env.network)
        return made

    made = thread.run(make())
    made.blocking = Client(thread, made.client)
    made.thread = thread
    yield made

    async def stop() -> None:
        await made.store.stop()

    if thread.alive:
        thread.run(stop())
    made.blocking.close()
