"""What cannot be encoded is refused before the assigned state moves; a bug after that ends in a recovery."""

import asyncio
import logging

import pytest

from sarit.core.errors import Corrupt, Unavailable
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.store.container.operations import SetAttributes
from sarit.store.hosting import hosted_container as hosted
from sarit.store.limits import MAX_MERGE_ATTRIBUTES
from sarit.store.server.control_handler import ControlHandler
from sarit.wire import commands as wire
from sarit.wire.commands.segment import AttributeUpdate
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import World, Writer, read_all

TARGET, SOURCE = "s/t/0.#epoch.0", "s/t/0.#epoch.0#transaction.1"
KEY = b"k" * 16
REPLACE, ACCUMULATE = 1, 3
LARGEST, SMALLEST = (1 << 63) - 1, NULL_ATTRIBUTE_VALUE


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(hosted, "REOPEN_SECONDS", 0)


async def opened():
    """A store with an acknowledged append in both segments."""
    world = World()
    store = await world.start()
    for name, data in ((TARGET, b"acknowledged"), (SOURCE, b"of the transaction")):
        await store.container(name).create(name)
        writer = Writer(store, name)
        await writer.set_up()
        writer.append(data, 1)
        assert len((await writer.wait_for_replies()).acknowledgements) == 1
    return world, store


async def recovered(store, failed):
    """Wait for the container that replaces `failed`."""
    async with asyncio.timeout(HANG_SECONDS):
        while not any(opened.container.number == failed.number for opened in store.opened()):
            await asyncio.sleep(0)
    assert store.container(TARGET) is not failed


async def serves(store):
    """Append, restart the node, and read the bytes."""
    writer = Writer(store, TARGET)
    number = await writer.set_up()
    writer.append(b", and more", number + 1)
    assert not (await writer.wait_for_replies()).errors
    return await read_all(store, TARGET)


@pytest.mark.parametrize(
    ("before", "updates"),
    [
        (LARGEST, (AttributeUpdate(KEY, ACCUMULATE, 1, 0),)),
        (SMALLEST + 1, (AttributeUpdate(KEY, ACCUMULATE, -2, 0),)),
        (LARGEST, (AttributeUpdate(KEY, REPLACE, 1, 0),) * (MAX_MERGE_ATTRIBUTES + 1)),
    ],
    ids=["above int64", "below int64", "too many"],
)
def test_merge_that_cannot_be_encoded_is_refused_and_changes_nothing(before, updates):
    async def main():
        world, store = await opened()
        requests = ControlHandler(store)
        await requests.answer(wire.UpdateSegmentAttribute(1, TARGET, KEY, before, NULL_ATTRIBUTE_VALUE, ""))
        reply = await requests.answer(wire.MergeSegments(2, TARGET, SOURCE, "", updates))
        assert isinstance(reply, wire.ErrorMessage)
        assert reply.segment == TARGET
        # Setup of a writer with that id once waited for the refused value, and blocked the whole node.
        assert await Writer(store, TARGET, KEY).set_up() == before
        assert await serves(store) == b"acknowledged, and more"
        store = await world.crash(store)
        assert await serves(store) == b"acknowledged, and more, and more"
        assert await store.container(TARGET).merge(TARGET, SOURCE) == len(b"acknowledged, and more, and more") + 18

    asyncio.run(main())


def test_merge_with_most_attributes_is_recovered():
    async def main():
        world, store = await opened()
        updates = (AttributeUpdate(KEY, REPLACE, 7, 0),) * MAX_MERGE_ATTRIBUTES
        reply = await ControlHandler(store).answer(wire.MergeSegments(1, TARGET, SOURCE, "", updates))
        assert isinstance(reply, wire.SegmentsMerged)
        store = await world.crash(store)
        assert await store.container(TARGET).get_attribute(TARGET, KEY) == 7

    asyncio.run(main())


def test_operation_that_cannot_be_encoded_fails_container(caplog):
    caplog.set_level(logging.CRITICAL, "sarit.store")

    async def main():
        world, store = await opened()
        container = store.container(TARGET)
        segment = await container.metadata.require(TARGET)
        operation = container.state.set_attributes(segment, ((KEY, LARGEST + 1),))
        waiting = asyncio.ensure_future(container.submit(SetAttributes(segment.id, ((KEY, 1),))))
        await asyncio.sleep(0)
        with pytest.raises(Exception, match="int too large|requires -9223372036854775808 <="):
            await container.submit(operation)
        with pytest.raises(Unavailable):  # its outcome is unknown
            await waiting
        with pytest.raises(Unavailable):  # no other kind, whatever the bug was
            await container.group_commit.wait_durable()
        await recovered(store, container)
        assert await store.container(TARGET).get_attribute(TARGET, KEY) in (NULL_ATTRIBUTE_VALUE, 1)
        assert await serves(store) == b"acknowledged, and more"
        store = await world.crash(store)
        assert await serves(store) == b"acknowledged, and more, and more"

    asyncio.run(main())


def test_writer_setup_fails_when_pending_event_number_has_no_operation():
    async def main():
        _, store = await opened()
        container = store.container(TARGET)
        segment = await container.metadata.require(TARGET)
        (await container.metadata.attribute(segment, KEY)).assigned = 5  # a bug: no operation follows
        with pytest.raises(Unavailable):
            await Writer(store, TARGET, KEY).set_up()
        await recovered(store, container)
        assert await Writer(store, TARGET, KEY).set_up() == NULL_ATTRIBUTE_VALUE

    asyncio.run(main())


@pytest.mark.parametrize("bug", [AssertionError("it cannot be"), KeyError(7)], ids=repr)
def test_recovery_that_hits_a_bug_is_logged_and_retried(bug, monkeypatch, caplog):
    async def main():
        _, store = await opened()
        failed = store.container(TARGET)
        bugs = [bug, bug]
        right = hosted.open_container

        async def open_container(*arguments, **options):
            if bugs:
                raise bugs.pop()
            return await right(*arguments, **options)

        monkeypatch.setattr(hosted, "open_container", open_container)
        failed.fail(Unavailable("the test says so"))
        await recovered(store, failed)
        assert not bugs
        assert await serves(store) == b"acknowledged, and more"
        logged = [record for record in caplog.records if record.levelno == logging.CRITICAL]
        assert len(logged) == 1, "a line a minute"
        assert all(record.exc_info is not None and record.exc_info[1] is bug for record in logged)

    asyncio.run(main())


def test_recovery_that_hits_corruption_is_logged_and_abandoned(monkeypatch, caplog):
    async def main():
        _, store = await opened()
        failed = store.container(TARGET)

        async def open_container(*arguments, **options):
            raise Corrupt("a byte is wrong")

        monkeypatch.setattr(hosted, "open_container", open_container)
        failed.fail(Unavailable("the test says so"))
        await asyncio.gather(*(task for task in store._background._tasks if task.get_coro().__name__ == "_run"))
        assert all(opened.container.number != failed.number for opened in store.opened())
        assert [record.levelname for record in caplog.records if record.exc_info] == ["CRITICAL"]

    asyncio.run(main())
