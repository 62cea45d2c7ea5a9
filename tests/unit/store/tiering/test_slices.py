"""A checkpoint of many segments works in slices: others run in between, and see each segment before or after it."""

import asyncio
from dataclasses import replace

import pytest

from sarit.store.container.container import ContainerLimits
from sarit.store.container.operations import decode_frame
from sarit.store.limits import MAX_FRAME_OPERATIONS
from sarit.store.tiering.checkpoint import ENTRIES_PER_TURN, FlushLimits
from simulation.mutants.tiering import extents_read_before_memory_follows
from tests.unit.store.harness import SMALL, World, Writer, read_all

SEGMENTS = 40


def world(per_turn=1, max_segments=10_000):
    flush = FlushLimits(interval_seconds=3600.0, inline_below_bytes=200, segments_per_turn=per_turn)
    return World(replace(SMALL, containers=1, flush=flush, container=ContainerLimits(max_segments=max_segments)))


def name_of(number):
    return f"s/t{number}/0.#epoch.0"


async def dirty(store, data, event):
    """Append to all segments; without a checkpoint."""
    writers = [Writer(store, name_of(number)) for number in range(SEGMENTS)]
    for writer in writers:
        if event == 1:
            await store.container("").create(writer.segment)
        await writer.set_up()
        writer.append(data, event)
    for writer in writers:
        assert not (await writer.wait_for_replies()).errors
        writer.session.close()


class Turns:
    """Counts the turns of the loop."""

    def __init__(self):
        self.count = 0
        self._task = asyncio.ensure_future(self._run())

    async def _run(self):
        while True:
            self.count += 1
            await asyncio.sleep(0)

    def stop(self):
        self._task.cancel()


def test_every_step_of_a_checkpoint_gives_way_after_a_slice(monkeypatch):
    """With 12,000 dirty segments, nothing else ran for up to 900 ms."""

    async def main():
        store = await world().start()
        (opened,) = store.opened()
        await dirty(store, b"x" * 100, 1)
        turns = Turns()
        at = {}
        flusher = opened.flusher
        for step in ("_write_runs", "_after_commit"):
            right = getattr(flusher, step)

            async def timed(*arguments, right=right, step=step):
                begun = turns.count
                await right(*arguments)
                at[step] = turns.count - begun

            monkeypatch.setattr(flusher, step, timed)
        build = flusher._builder.build

        async def built(*arguments):
            begun = turns.count
            made = await build(*arguments)
            at["build"] = turns.count - begun
            return made

        monkeypatch.setattr(flusher._builder, "build", built)
        await flusher.checkpoint()
        turns.stop()
        # Inlined extents, then chunk extents.
        assert at["_write_runs"] >= 2 * SEGMENTS - 2
        assert at["build"] >= SEGMENTS - 1
        assert at["_after_commit"] >= SEGMENTS - 1
        assert turns.count >= 5 * SEGMENTS
        await store.stop()

    asyncio.run(main())


async def _read_during_slices():
    store = await world().start()
    (opened,) = store.opened()
    await dirty(store, b"a" * 100, 1)
    await opened.flusher.checkpoint()
    await dirty(store, b"b" * 100, 2)
    flusher, reading = opened.flusher, []
    right = flusher._follow_commit

    def follow(item):
        if not reading:
            segments = [opened.container.state.names[name_of(number)] for number in range(SEGMENTS)]
            load = opened.container.metadata.merge_extents
            reading.extend(asyncio.ensure_future(load(segment)) for segment in segments)
        right(item)

    flusher._follow_commit = follow
    await flusher.checkpoint()
    await asyncio.gather(*reading)
    for number in range(SEGMENTS):
        extents = opened.container.state.names[name_of(number)].extents
        assert [(extent.start, extent.end) for extent in extents] == [(0, 100), (100, 200)]
        assert await read_all(store, name_of(number)) == b"a" * 100 + b"b" * 100
    await store.stop()


def test_extents_loaded_between_the_slices_after_a_commit_come_once():
    asyncio.run(_read_during_slices())


def test_extents_loaded_without_waiting_for_the_slices_would_come_twice():
    with extents_read_before_memory_follows(), pytest.raises(AssertionError):
        asyncio.run(_read_during_slices())


def test_changes_between_the_slices_after_a_commit_are_in_the_next_checkpoint():
    async def main():
        one = world()
        store = await one.start()
        (opened,) = store.opened()
        container, flusher = opened.container, opened.flusher
        await dirty(store, b"a" * 300, 1)
        await flusher.checkpoint()
        await dirty(store, b"b" * 100, 2)
        right, made = flusher._follow_commit, []
        last = SEGMENTS - 1

        async def change():
            await container.truncate(name_of(last - 1), 150)
            await container.merge(name_of(last - 3), name_of(last - 2))
            await container.delete(name_of(last - 4))
            await container.create(name_of(last - 4))

        def follow(item):
            if not made:
                made.append(asyncio.ensure_future(change()))
            right(item)

        flusher._follow_commit = follow
        await flusher.checkpoint()
        await made[0]

        async def check(store):
            for number in range(SEGMENTS - 5):
                assert await read_all(store, name_of(number)) == b"a" * 300 + b"b" * 100
            assert await read_all(store, name_of(last)) == b"a" * 300 + b"b" * 100
            assert await read_all(store, name_of(last - 1)) == b"a" * 150 + b"b" * 100
            assert await read_all(store, name_of(last - 3)) == (b"a" * 300 + b"b" * 100) * 2
            assert await read_all(store, name_of(last - 4)) == b""

        await check(store)
        store = await one.crash(store)
        await check(store)
        (opened,) = store.opened()
        await opened.flusher.checkpoint()
        await opened.flusher.garbage.collect()
        await check(store)
        store = await one.crash(store)
        await check(store)
        await store.stop()

    asyncio.run(main())


def test_entries_of_a_large_table_are_written_in_slices():
    async def main():
        store = await world(per_turn=1000).start()
        tables = store.tables("")
        await tables.create("s/_t", 0)
        changes = [(b"%d" % number, b"v", -(1 << 63)) for number in range(10 * ENTRIES_PER_TURN)]
        await tables.update("s/_t", changes)
        (opened,) = store.opened()
        turns = Turns()
        await asyncio.sleep(0)
        await opened.flusher.checkpoint()
        turns.stop()
        assert turns.count >= 2 * 10, "once to build the batch, once to note what the index has"
        assert [entry.value for entry in await tables.get("s/_t", [b"0", b"4999"])] == [b"v", b"v"]
        await store.stop()

    asyncio.run(main())


def test_frame_holds_a_bounded_number_of_operations():
    """A frame of 7,000 small appends was applied and acknowledged in one turn of 150 ms."""

    async def main():
        one = world()
        store = await one.start()
        await store.container("").create(name_of(0))
        writer = Writer(store, name_of(0))
        await writer.set_up()
        for number in range(1, 10 * MAX_FRAME_OPERATIONS + 1):
            writer.append(b"x", number)
        replies = await writer.wait_for_replies()
        assert [number for number, _, _ in replies.acknowledgements] == [*range(1, 10 * MAX_FRAME_OPERATIONS + 1)]
        sizes = [len(list(decode_frame(frame.payload)[1])) for frame in one.logs.stored[0].frames.values()]
        assert max(sizes) == MAX_FRAME_OPERATIONS
        await store.stop()

    asyncio.run(main())


def test_eviction_examines_some_segments_and_comes_to_all():
    async def main():
        store = await world(max_segments=250).start()
        (opened,) = store.opened()
        container = opened.container
        await dirty(store, b"x" * 100, 1)
        # Busy: pinned, the longest in memory.
        for number in range(SEGMENTS, SEGMENTS + 300):
            await container.create(name_of(number))
            container.state.names[name_of(number)].pins += 1
        for number in range(1000):
            await container.create(f"s/idle{number}/0.#epoch.0")
        await opened.flusher.checkpoint()
        assert len(container.state.segments) <= 300 + SEGMENTS
        assert all(name_of(number) in container.state.names for number in range(SEGMENTS, SEGMENTS + 300))
        await store.stop()

    asyncio.run(main())
