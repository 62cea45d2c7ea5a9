"""A callback that raises delays neither the replies to others nor the recovery."""

import asyncio

import pytest

from sarit.core.errors import NotFound, Unavailable
from sarit.store.hosting import hosted_container as stores
from tests.limits import HANG_SECONDS
from tests.unit.store.container.test_encoding_limits import SOURCE, TARGET, World, opened, recovered, serves
from tests.unit.store.flow_control.test_append_gate import LIMITS
from tests.unit.store.harness import Replies, Writer
from tests.unit.store.server.test_connection import run


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(stores, "REOPEN_SECONDS", 0)


class Bug(Exception):
    """Raised by a callback."""


class Raising(Replies):
    """Records, then raises."""

    def acknowledged(self, *arguments):
        super().acknowledged(*arguments)
        raise Bug("acknowledged")

    def refused(self, *arguments):
        super().refused(*arguments)
        raise Bug("refused")


def complaints():
    bugs = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(context.get("exception")))
    return bugs


async def two_writers(store):
    """The replies of the first writer raise."""
    writers = [Writer(store, TARGET, bytes([number]) * 16) for number in (1, 2)]
    writers[0].replies = Raising()
    for writer in writers:
        await writer.set_up()
    return writers


def waiting(container, called, then=None):
    def wake():
        called.append(container.failure)
        if then is not None:
            raise then

    return wake


async def two_of_whom_one_raises():
    """Two writers of a container and two waiters of its segment; the first of each raises."""
    _, store = await opened()
    container = store.container(TARGET)
    first, second = await two_writers(store)
    woken = []
    container.state.names[TARGET].waiters += [waiting(container, woken, Bug("woken")), waiting(container, woken)]
    return store, container, first, second, woken


def test_callback_that_raises_does_not_stop_other_replies():
    async def main():
        bugs = complaints()
        store, container, first, second, woken = await two_of_whom_one_raises()
        first.append(b", twice", 1)
        container.group_commit.barrier(lambda error: first.replies.refused(None, None, error))  # of the same operation
        second.append(b", replied", 1)
        async with asyncio.timeout(HANG_SECONDS):
            await container.group_commit.wait_durable()
        assert len(first.replies.acknowledgements) == len(second.replies.acknowledgements) == 1
        assert first.replies.errors == [None]
        assert woken == [None, None]
        # A client may have got no reply, so the container must fail.
        assert isinstance(container.failure, Bug)
        assert bugs == [container.failure]
        await recovered(store, container)
        assert await serves(store) == b"acknowledged, twice, replied, and more"

    run(main())


def test_failure_callback_that_raises_does_not_stop_others_or_recovery():
    async def main():
        bugs = complaints()
        store, container, first, second, woken = await two_of_whom_one_raises()
        other = container.state.names[SOURCE].waiters
        other.append(waiting(container, woken))
        store.watch_failures(lambda _: first.replies.refused(None, None, None))
        first.append(b"unknown", 1)
        second.append(b"unknown", 1)
        error = Unavailable("the test says so")
        container.fail(error)
        assert [type(error) for error in second.replies.errors] == [Unavailable]
        assert woken == [error] * 3
        assert len(bugs) == 1
        assert isinstance(bugs[0], Bug)
        await recovered(store, container)
        assert (await serves(store)).endswith(b"and more")

    run(main())


def test_throttled_appends_are_all_refused_with_unavailable_on_failure():
    """The failure may be NotFound of a chunk or of a table of the controller; the writers' segment exists."""

    async def main():
        complaints()
        store = await World(limits=LIMITS).start()
        container = store.container(TARGET)
        await container.create(TARGET)
        container.state.dirty.add_operation(100_000)
        container.account()
        writers = await two_writers(store)
        for writer in writers:
            writer.append(b"held back", 1)
        assert container.throttled == 2
        container.fail(NotFound("something else"))
        assert [[type(error) for error in writer.replies.errors] for writer in writers] == [[Unavailable]] * 2
        await recovered(store, container)

    run(main())
