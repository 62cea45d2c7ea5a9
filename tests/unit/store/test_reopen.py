"""A failed container is opened again even when its log or index cannot be closed; one that cannot be holds nothing."""

import asyncio

import pytest

from sarit.core.errors import Corrupt, Unavailable
from sarit.store.hosting import container_opening as opening_module
from sarit.store.hosting import hosted_container as hosted_module
from sarit.store.hosting.health import HealthState
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import World, Writer, read_all

NAME = "scope/stream/0.#epoch.0"


@pytest.mark.parametrize("part", ["log", "index"])
def test_container_reopens_after_close_fails(part):
    async def main():
        world = World()
        store = await world.start()
        container = store.container(NAME)
        await container.create(NAME)
        writer = Writer(store, NAME)
        await writer.set_up()
        writer.append(b"kept", 1)
        await writer.wait_for_replies()
        closed = []

        def failing(name):
            right = getattr(container, name).close

            async def close():
                await right()
                closed.append(name)
                if name == part:
                    raise OSError("made to fail at close")

            return close

        for name in ("log", "index"):
            getattr(container, name).close = failing(name)
        container.fail(Unavailable("made to fail"))
        for _ in range(100):
            if len(store.opened()) == store.limits.containers:
                break
            await asyncio.sleep(0.01)
        assert closed == ["log", "index"]
        assert await read_all(store, NAME) == b"kept"
        await store.stop()

    asyncio.run(main())


def test_container_that_cannot_be_opened_has_no_charge(monkeypatch):
    """Its charge throttled the appends of all other containers for ever."""

    async def main():
        store = await World().start()
        container = store.container(NAME)
        await container.create(NAME)
        tried = asyncio.Event()

        async def damaged(container):
            assert store.budget.charged_bytes, "what was replayed is charged by then"
            tried.set()
            raise Corrupt("made to fail")

        monkeypatch.setattr(opening_module, "delete_transients", damaged)
        container.fail(Unavailable("made to fail"))
        async with asyncio.timeout(HANG_SECONDS):
            await tried.wait()
            while len(store._background._tasks) > 1:  # the reopening ends; the disk watch stays
                await asyncio.sleep(0)
        assert not store.budget.charged_bytes
        await store.stop()

    asyncio.run(main())


def test_container_that_cannot_be_opened_answers_with_the_reason_at_once(monkeypatch, caplog):
    """It answered "recovering, try again" for ever."""

    async def main():
        store = await World().start()
        container = store.container(NAME)

        async def damaged(container):
            raise Corrupt("frames 7 to 9 are damaged")

        monkeypatch.setattr(opening_module, "delete_transients", damaged)
        container.fail(Unavailable("made to fail"))
        with pytest.raises(Unavailable, match="recovering, try again .made to fail"):
            store.container(NAME)
        async with asyncio.timeout(HANG_SECONDS):
            while store.health()[container.number].state is not HealthState.FAILED:
                await asyncio.sleep(0)
        for part in (store.container, store.reads, store.tables):
            with pytest.raises(Corrupt, match=f"container {container.number} failed: frames 7 to 9 are damaged"):
                part(NAME)
        await store.stop()

    asyncio.run(main())


def test_transient_error_at_reopening_is_tried_again_and_logged_once(monkeypatch, caplog):
    async def main():
        world = World()
        store = await world.start()
        container = store.container(NAME)
        await container.create(NAME)
        errors = [Unavailable("EIO"), Unavailable("EIO"), OSError("EIO")]
        right = world.indexes.open

        async def open_index(number):
            if errors:
                raise errors.pop()
            return await right(number)

        monkeypatch.setattr(world.indexes, "open", open_index)
        monkeypatch.setattr(hosted_module, "REOPEN_SECONDS", 0.001)
        container.fail(Unavailable("made to fail"))
        async with asyncio.timeout(HANG_SECONDS):
            while store.health()[container.number].state is not HealthState.SERVING:
                await asyncio.sleep(0)
        assert not errors
        assert await read_all(store, NAME) == b""
        assert caplog.text.count("cannot recover yet") == 1
        await store.stop()

    asyncio.run(main())
