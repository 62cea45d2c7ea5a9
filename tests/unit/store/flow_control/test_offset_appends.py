"""Appends at offsets while the node is short of memory, and while their container fails: each has its answer."""

import asyncio

import pytest

from sarit.core.errors import Conflict, Invalid, NotFound, Unavailable
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.store.container.offset_appends import append_in_order
from sarit.store.limits import MAX_APPEND_BYTES
from sarit.store.server.batches import append_many, infos, read_many
from tests.unit.store.flow_control.test_append_gate import OTHER, over_limit, until
from tests.unit.store.harness import World, Writer
from tests.unit.store.server.test_connection import SEGMENT, run


def free(container):
    container.state.dirty.add_operation(-100_000)
    container.account()


def test_throttled_appends_keep_their_order():
    async def main():
        async with over_limit() as (server, container):
            writes = [(SEGMENT, 0, b"one"), (OTHER, 0, b"other"), (SEGMENT, 3, b"two"), (SEGMENT, 3, b"late")]
            appending = asyncio.ensure_future(append_in_order(container, writes))
            await until(lambda: container.throttled == 4)
            free(container)
            *done, refused = await appending
            assert done == [3, 5, 6]
            assert isinstance(refused, Conflict)
            assert [info.length for info in await infos(server.store, [SEGMENT, OTHER])] == [6, 5]
            assert not any(segment.pins for segment in container.state.segments.values())

    run(main())


def test_throttled_appends_end_with_their_caller():
    async def main():
        async with over_limit() as (_, container):
            for _ in range(3):
                appending = asyncio.ensure_future(append_in_order(container, [(SEGMENT, 0, b"x" * 1000)]))
                await until(lambda: container.throttled == 1)
                appending.cancel()
                await asyncio.wait([appending])
                await until(lambda: container.throttled == 0)
            free(container)
            await until(lambda: container.group_commit.idle)
            assert (await container.info(SEGMENT)).length == 0
            assert not any(segment.pins for segment in container.state.segments.values())

    run(main())


@pytest.mark.parametrize("throttled", [False, True])
def test_failure_of_the_container_answers_each_append(throttled):
    async def main():
        async with over_limit() as (_, container):
            if not throttled:
                free(container)
            writes = [(SEGMENT, 0, b"one"), (SEGMENT, 3, b"two"), (OTHER, 9, b"x"), ("s/none/0.#epoch.0", 0, b"x")]
            container.group_commit.hold()
            appending = asyncio.ensure_future(append_in_order(container, writes))
            await asyncio.sleep(0.05)
            container.fail(RuntimeError("a test"))
            outcomes = await appending
            assert [type(outcome) for outcome in outcomes] == [Unavailable] * 4
            assert not any(segment.pins for segment in container.state.segments.values())

    run(main())


def test_appends_without_a_writer_leave_no_attribute():
    async def main():
        store = await World().start()
        container = store.container(SEGMENT)
        await container.create(SEGMENT)
        writer = Writer(store, SEGMENT, bytes(16))
        assert await writer.set_up() == NULL_ATTRIBUTE_VALUE
        writer.append(b"one", 1)
        await writer.wait_for_replies()
        assert await append_many(store, [(SEGMENT, 3, b"two")]) == [6]
        assert await container.get_attribute(SEGMENT, bytes(16)) == 1
        writer.append(b"three", 2)
        assert (await writer.wait_for_replies()).acknowledgements[-1] == (2, 1, 11)
        segment = container.state.names[SEGMENT]
        assert set(segment.attributes) == {bytes(16)}
        assert await container.get_attribute(SEGMENT, bytes(16)) == 2
        writer.session.close()
        await store.stop()

    run(main())


def test_what_does_not_fit_is_refused():
    async def main():
        store = await World().start()
        container = store.container(SEGMENT)
        table = "s/table"
        await container.create(SEGMENT)
        await store.tables(table).create(table, 0)
        with pytest.raises(Invalid):
            await container.create(OTHER, offset=1 << 63)
        with pytest.raises(Invalid):
            await store.container(OTHER).create(OTHER, offset=-1)
        long, into_table, missing = await append_many(
            store, [(SEGMENT, 0, b"x" * (MAX_APPEND_BYTES + 1)), (table, 0, b"x"), (OTHER, 0, b"x")]
        )
        assert (type(long), type(into_table), type(missing)) == (Invalid, Invalid, NotFound)
        assert [
            type(answer) for answer in await read_many(store, [(table, 0, 1), (SEGMENT, -1, 1), (SEGMENT, 1, 1)])
        ] == [Invalid] * 3
        assert await append_many(store, [(SEGMENT, 0, b"")]) == [0]
        await store.stop()

    run(main())
