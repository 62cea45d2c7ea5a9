"""A client on the fake store, in one event loop."""

import asyncio
import inspect
from contextlib import asynccontextmanager
from functools import wraps

from sarit.client.aio import Client
from sarit.client.core.framing import split_events
from sarit.client.session.session import Session
from sarit.env.real import real_env
from tests.limits import HANG_SECONDS
from tests.unit.client.fake_store import FakeController, FakeStore


class World:
    """`client` on `store` and `controller`."""

    def __init__(self, store: FakeStore, controller: FakeController) -> None:
        self.store = store
        self.controller = controller
        self.session = Session(real_env(), controller)
        self.client = Client(self.session)

    def stored(self, name: str) -> list[bytes]:
        """The events of one segment."""
        return split_events(self.store.segments[name].data)

    def everything(self) -> list[bytes]:
        """The events of all segments, in order of their names."""
        return [event for name in sorted(self.store.segments) for event in self.stored(name)]


@asynccontextmanager
async def world():
    store = FakeStore()
    made = World(store, FakeController(store))
    await store.start(made.session.env.network)
    try:
        yield made
    finally:
        await made.session.close()
        await store.stop()


def on_loop(test):
    """Run an async test with a world, within 20 s."""

    @wraps(test)
    def run(*args, **kwargs):
        async def go():
            async with asyncio.timeout(HANG_SECONDS), world() as made:
                await test(made, *args, **kwargs)

        asyncio.run(go())

    del run.__wrapped__  # pytest must not see the world argument
    own = inspect.signature(test)
    run.__signature__ = own.replace(parameters=list(own.parameters.values())[1:])  # but those of `parametrize`
    return run


async def until(condition) -> None:
    """Let the loop turn until `condition()`; the test's own time-out ends what never comes."""
    while not condition():
        await asyncio.sleep(0.001)
