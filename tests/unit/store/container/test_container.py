"""Appends, the writer's event number, seal, truncate, merge, delete; and all of it after a crash."""

import asyncio
import random
from dataclasses import replace

import pytest

from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Sealed, Truncated, Unavailable
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.core.names import transaction_segment, transient_segment
from sarit.store.container.segment import EVENT_COUNT
from sarit.store.container.state import WrongEventNumber
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import SMALL, WRITER, World, Writer, read_all

SEGMENT = "s/t/0.#epoch.0"


def run(test):
    return asyncio.run(test)


async def opened(world=None):
    world = world or World()
    store = await world.start()
    await store.container(SEGMENT).create(SEGMENT)
    writer = Writer(store, SEGMENT)
    await writer.set_up()
    return world, store, writer


def test_acknowledgements_come_in_order_with_previous_number_and_offset():
    async def main():
        _, store, writer = await opened()
        assert writer.session.last == NULL_ATTRIBUTE_VALUE
        writer.append(b"abc", 3)
        writer.append(b"", 4)
        writer.append(b"de", 9)
        replies = await writer.wait_for_replies()
        assert replies.acknowledgements == [(3, NULL_ATTRIBUTE_VALUE, 3), (4, 3, 3), (9, 4, 5)]
        assert await read_all(store, SEGMENT) == b"abcde"
        assert await store.container(SEGMENT).get_attribute(SEGMENT, EVENT_COUNT) == 3

    run(main())


def test_nothing_is_readable_or_acknowledged_before_it_is_durable():
    async def main():
        world, store, writer = await opened()
        world.logs.hold_appends = True
        writer.append(b"abc", 1)
        await asyncio.sleep(0.01)
        assert writer.replies.acknowledgements == []
        assert await read_all(store, SEGMENT) == b""
        world.logs.hold_appends = False
        await writer.wait_for_replies()
        assert await read_all(store, SEGMENT) == b"abc"

    run(main())


def test_second_session_of_a_writer_ends_the_first():
    async def main():
        _, store, first = await opened()
        first.append(b"x", 1)
        second = Writer(store, SEGMENT)
        assert await second.set_up() == 1
        first.append(b"late", 2)
        await first.wait_for_replies()
        assert isinstance(first.replies.errors[0], WrongEventNumber)
        second.append(b"y", 2)
        await second.wait_for_replies()
        assert await read_all(store, SEGMENT) == b"xy"

    run(main())


def test_refused_conditional_append_leaves_event_number_unchanged():
    async def main():
        _, store, writer = await opened()
        writer.append(b"abc", 1, expected_offset=0)
        writer.append(b"no", 2, expected_offset=0)
        writer.append(b"yes", 2, expected_offset=3)
        replies = await writer.wait_for_replies()
        assert [a[0] for a in replies.acknowledgements] == [1, 2]
        assert isinstance(replies.errors[0], Conflict)
        assert not isinstance(replies.errors[0], WrongEventNumber)
        assert await read_all(store, SEGMENT) == b"abcyes"

    run(main())


def test_sealed_segment_refuses_appends_but_accepts_writer_setup():
    async def main():
        _, store, writer = await opened()
        writer.append(b"abc", 1)
        await store.container(SEGMENT).seal(SEGMENT)
        writer.append(b"d", 2)
        await writer.wait_for_replies()
        assert isinstance(writer.replies.errors[0], Sealed)
        assert await Writer(store, SEGMENT).set_up() == 1
        with pytest.raises(Sealed):
            await store.container(SEGMENT).seal(SEGMENT)
        result = store.reads(SEGMENT).from_memory(await store.reads(SEGMENT).find(SEGMENT), 3, 10)
        assert result is not None
        assert result.end_of_segment

    run(main())


def test_truncation_offset_must_be_within_segment_and_rising():
    async def main():
        world, store, writer = await opened()
        for number in range(1, 21):
            writer.append(b"x" * 100, number)
        await writer.wait_for_replies()
        container = store.container(SEGMENT)
        await container.truncate(SEGMENT, 950)
        await container.truncate(SEGMENT, 950)
        for wrong in (949, 2001):
            with pytest.raises(Truncated):
                await container.truncate(SEGMENT, wrong)
        reads = store.reads(SEGMENT)
        with pytest.raises(Truncated):
            reads.from_memory(await reads.find(SEGMENT), 949, 10)
        await asyncio.sleep(0.1)
        await container.truncate(SEGMENT, 1850)
        await asyncio.sleep(0.1)
        assert len(await read_all(store, SEGMENT)) == 150
        store = await world.crash(store)
        assert (await store.container(SEGMENT).info(SEGMENT)).start_offset == 1850
        assert len(await read_all(store, SEGMENT)) == 150
        held = sum(map(len, world.storage.chunks.values()))
        assert held <= 1000  # chunks wholly below the start are gone

    run(main())


def test_merge_moves_bytes_from_memory_and_from_chunks():
    async def main():
        world, store, writer = await opened()
        expected = b""
        for turn in range(8):
            source = transaction_segment(SEGMENT, turn)
            await store.container(source).create(source)
            shadow = Writer(store, source)
            await shadow.set_up()
            for number in range(1, 8):
                data = bytes([turn * 8 + number]) * 90
                shadow.append(data, number)
                expected += data
                if turn % 2 and number == 4:
                    await asyncio.sleep(0.05)
            await shadow.wait_for_replies()
            assert await store.container(SEGMENT).merge(SEGMENT, source) == len(expected)
            with pytest.raises(NotFound):
                await store.container(source).info(source)
            writer.append(b"|", turn + 1)
            expected += b"|"
            if turn % 3 == 0:
                await asyncio.sleep(0.05)
            await writer.wait_for_replies()
            assert await read_all(store, SEGMENT) == expected
        assert await store.container(SEGMENT).get_attribute(SEGMENT, EVENT_COUNT) == 8 * 8
        store = await world.crash(store)
        assert await read_all(store, SEGMENT) == expected
        await asyncio.sleep(0.1)
        assert await read_all(store, SEGMENT) == expected
        assert await Writer(store, SEGMENT).set_up() == 8

    run(main())


def test_merge_refuses_missing_source_itself_and_sealed_target():
    async def main():
        _, store, _ = await opened()
        container = store.container(SEGMENT)
        source = transaction_segment(SEGMENT, 1)
        with pytest.raises(NotFound):
            await container.merge(SEGMENT, source)
        with pytest.raises(Invalid):
            await container.merge(SEGMENT, SEGMENT)
        await container.create(source)
        await container.seal(SEGMENT)
        with pytest.raises(Sealed):
            await container.merge(SEGMENT, source)
        assert (await container.info(source)).length == 0

    run(main())


def test_merge_waits_until_compaction_of_its_source_ends():
    async def main():
        _, store, _ = await opened()
        container, source_name = store.container(SEGMENT), transaction_segment(SEGMENT, 1)
        await container.create(source_name)
        source = await container.metadata.require(source_name)
        with container.compaction(source):
            merges = [asyncio.ensure_future(container.merge(SEGMENT, source_name)) for _ in range(2)]
            for _ in range(100):
                await asyncio.sleep(0)
            assert not any(merge.done() for merge in merges)
            assert not source.assigned_deleted
        with container.compaction(source):  # a second one begins before those that wait go on
            for _ in range(100):
                await asyncio.sleep(0)
            assert not any(merge.done() for merge in merges)
        outcomes = await asyncio.wait_for(asyncio.gather(*merges, return_exceptions=True), HANG_SECONDS)
        assert [type(outcome) for outcome in outcomes] == [int, NotFound]
        assert not source.pins

    run(main())


def test_deleted_name_can_be_created_again():
    async def main():
        world, store, writer = await opened()
        container = store.container(SEGMENT)
        writer.append(b"old" * 200, 1)
        await writer.wait_for_replies()
        with pytest.raises(Exists):
            await container.create(SEGMENT)
        await container.delete(SEGMENT)
        writer.append(b"late", 2)
        await asyncio.sleep(0.05)
        assert isinstance(writer.replies.errors[0], NotFound)
        await container.create(SEGMENT)
        again = Writer(store, SEGMENT)
        assert await again.set_up() == NULL_ATTRIBUTE_VALUE
        again.append(b"new", 1)
        await again.wait_for_replies()
        for _ in range(2):
            assert await read_all(store, SEGMENT) == b"new"
            store = await world.crash(store)
            await asyncio.sleep(0.05)

    run(main())


def test_transient_segments_do_not_survive_a_restart():
    async def main():
        world, store, _ = await opened()
        flushed, fresh = (transient_segment(SEGMENT, WRITER, bytes([n]) * 16) for n in (1, 2))
        await store.container(flushed).create(flushed)
        await asyncio.sleep(0.05)
        await store.container(fresh).create(fresh)
        store = await world.crash(store)
        for name in (flushed, fresh):
            with pytest.raises(NotFound):
                await store.container(name).info(name)
        await store.container(SEGMENT).info(SEGMENT)

    run(main())


def test_failed_log_acknowledges_nothing_and_container_recovers():
    async def main():
        world, store, writer = await opened()
        writer.append(b"kept", 1)
        await writer.wait_for_replies()
        world.logs.fail_appends = True
        writer.append(b"lost", 2)
        await asyncio.sleep(0.01)
        assert isinstance(writer.replies.errors[0], Unavailable)
        assert len(writer.replies.acknowledgements) == 1
        world.logs.fail_appends = False
        for _ in range(200):
            if len(store.opened()) == 2:
                break
            await asyncio.sleep(0.01)
        again = Writer(store, SEGMENT)
        assert await again.set_up() == 1
        assert await read_all(store, SEGMENT) == b"kept"
        await store.stop()

    run(main())


def test_appends_wait_while_long_term_storage_is_unavailable():
    async def main():
        world = World(limits=replace(SMALL, max_dirty_bytes=15_000))
        _, store, writer = await opened(world)
        world.storage.faults.unavailable = True
        for number in range(1, 101):
            writer.append(b"y" * 300, number)
        await asyncio.sleep(0.1)
        acked = len(writer.replies.acknowledgements)
        assert 10 < acked < 30
        assert writer.replies.errors == []
        assert len(await read_all(store, SEGMENT)) == acked * 300
        world.storage.faults.unavailable = False
        for _ in range(400):
            if len(writer.replies.acknowledgements) == 100:
                break
            await asyncio.sleep(0.01)
        assert len(await read_all(store, SEGMENT)) == 100 * 300
        await store.stop()

    run(main())


@pytest.mark.parametrize("seed", range(6))
def test_random_appends_with_crashes_and_evictions(seed):
    async def main():
        world = World()
        store = await world.start()
        rnd = random.Random(seed)
        names = [f"s/t{n}/0.#epoch.0" for n in range(6)]
        expected, numbers = dict.fromkeys(names, b""), dict.fromkeys(names, 0)
        for name in names:
            await store.container(name).create(name)
        for _ in range(150):
            name = rnd.choice(names)
            writer = Writer(store, name)
            assert await writer.set_up() == (numbers[name] or NULL_ATTRIBUTE_VALUE)
            for _ in range(rnd.randint(1, 4)):
                data = rnd.randbytes(rnd.randint(1, 400))
                numbers[name] += 1
                writer.append(data, numbers[name])
                expected[name] += data
            await writer.wait_for_replies()
            writer.session.close()
            if rnd.random() < 0.2:
                await asyncio.sleep(0.005)
            if rnd.random() < 0.04:
                store = await world.crash(store)
        for name in names:
            assert await read_all(store, name) == expected[name]
        for opened_container in store.opened():
            for segment in opened_container.container.state.segments.values():
                segment.check()

    run(main())


def test_concurrent_creation_gets_exists_once_durable():
    async def main():
        world = World()
        store = await world.start()
        world.logs.hold_appends = True
        creations = [asyncio.ensure_future(store.container(SEGMENT).create(SEGMENT)) for _ in range(2)]
        await asyncio.sleep(0.01)
        assert not any(creation.done() for creation in creations)
        world.logs.hold_appends = False
        results = await asyncio.gather(*creations, return_exceptions=True)
        assert [type(result) for result in results] == [type(None), Exists]
        await store.stop()

    run(main())


def test_segments_only_read_are_evicted():
    async def main():
        world = World()
        store = await world.start()
        names = [f"s/t{n}/0.#epoch.0" for n in range(40)]
        for name in names:
            await store.container(name).create(name)
        await store.stop()
        store = await world.start()
        for name in names:
            await store.container(name).info(name)
        assert all(
            len(opened.container.state.segments) <= SMALL.container.max_segments + 1 for opened in store.opened()
        )
        await store.stop()

    run(main())
