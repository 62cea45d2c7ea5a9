"""No frame exceeds the limit of the log, whatever clients send in one turn of the event loop."""

import asyncio
import struct
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sarit.core.errors import Invalid
from sarit.core.limits import MAX_TABLE_VALUE_BYTES
from sarit.env.real import real_env
from sarit.log.limits import MAX_FRAME_BYTES
from sarit.store.container import group_commit as group_commit
from sarit.store.container.operations import FRAME_HEADER, Append
from sarit.store.limits import MAX_APPEND_BYTES, MAX_TABLE_BATCH_BYTES, TABLE_ENTRY_HEADER_BYTES
from sarit.store.server import append_handler as append_requests
from sarit.store.tiering.checkpoint import FlushLimits
from sarit.wire import commands as wire
from tests.unit.store.harness import SMALL, World, Writer, read_all
from tests.unit.store.server.test_connection import SEGMENT, append_end, raw, ready, serving

BY_HAND = replace(SMALL, containers=1, flush=FlushLimits(interval_seconds=1000))
WRITER = b"w" * 16
UNCONDITIONAL = -(1 << 63)


def frame_sizes(world):
    return [len(frame.payload) for frame in world.logs.stored[0].frames.values()]


def test_operation_that_overflows_batch_begins_next_frame(monkeypatch):
    monkeypatch.setattr(group_commit, "MAX_FRAME_BYTES", 1000)
    monkeypatch.setattr(group_commit, "MAX_OPERATION_BYTES", 1000 - FRAME_HEADER.size)

    async def main():
        world = World(BY_HAND)
        store = await world.start()
        await store.container(SEGMENT).create(SEGMENT)
        writer = Writer(store, SEGMENT)
        await writer.set_up()
        sizes = [100, 900, 10, 20, 938, 1, 400, 500, 3]  # 938: with its header and the frame's, to the byte
        for number, size in enumerate(sizes, 1):
            writer.append(bytes([number]) * size, number)
        replies = await writer.wait_for_replies()
        assert [number for number, _, _ in replies.acknowledgements] == list(range(1, 10))
        assert max(frame_sizes(world)) == 1000
        counted = store.statistics
        assert (counted.appends, counted.append_events, counted.append_bytes) == (9, 9, sum(sizes))
        store = await world.crash(store)
        assert await read_all(store, SEGMENT) == b"".join(bytes([n]) * size for n, size in enumerate(sizes, 1))

    asyncio.run(main())


def test_largest_append_fits_frame():
    parts = [b""]
    size = Append(1, 0, [bytes(MAX_APPEND_BYTES)], MAX_APPEND_BYTES, WRITER, 1, 1).encode(parts)
    assert FRAME_HEADER.size + size <= MAX_FRAME_BYTES


def test_append_over_limit_ends_connection_and_later_appends_are_dropped(monkeypatch):
    monkeypatch.setattr(append_requests, "MAX_APPEND_BYTES", 1000)

    async def main():
        async with serving(World(BY_HAND)) as server:
            client = await ready(server)
            end = WRITER + struct.pack(">ii", 600, 401) + b"e" * 401 + struct.pack(">iqq", 1, 2, 6)
            client.send(raw(3, WRITER + b"b" * 600), raw(4, end), append_end(b"behind", 1, 3))
            await client.closed()
            segment = await server.store.container(SEGMENT).metadata.require(SEGMENT)
            assert segment.assigned_length == 0
            again = await server.client()
            await again.ask(wire.SetupAppend(2, WRITER, SEGMENT, ""))
            again.send(append_end(b"e" * 1000, 1, 2))
            assert isinstance(await again.reply(), wire.DataAppended)

    asyncio.run(main())


def test_largest_table_batch_fits_frame_and_larger_is_refused():
    async def main():
        world = World(BY_HAND)
        store = await world.start()
        tables = store.tables("t")
        await tables.create("t", 0)
        changes = [(b"k%02d" % n, bytes(MAX_TABLE_VALUE_BYTES), UNCONDITIONAL) for n in range(32)]
        rest = MAX_TABLE_BATCH_BYTES - sum(
            TABLE_ENTRY_HEADER_BYTES + len(key) + len(value) for key, value, _ in changes
        )
        changes.append((b"k32", bytes(rest - TABLE_ENTRY_HEADER_BYTES - 3), UNCONDITIONAL))
        await tables.update("t", changes)
        assert MAX_TABLE_BATCH_BYTES - 1000 < max(frame_sizes(world)) <= MAX_FRAME_BYTES
        changes[-1] = (b"k32", changes[-1][1] + b"x", UNCONDITIONAL)
        with pytest.raises(Invalid, match="batch"):
            await tables.update("t", changes)

    asyncio.run(main())


class ManualLog:
    """A log whose frames become durable when the test says so."""

    def __init__(self, frames_in_flight):
        self.frames_in_flight = frames_in_flight
        self.waiting = []

    def append(self, number, payload, done):
        self.waiting.append((number, done))


class CountingState:
    """What group commit needs of a container's state."""

    def __init__(self):
        self.applied_frame = 0
        self.dirty = SimpleNamespace(add_operation=lambda charge: None, operations_applied=lambda charge: None)
        self.applied = []

    def append(self, operation):
        raise AssertionError("not in this test")

    def apply(self, operation, wall_ms):
        self.applied.append(operation.event_number)
        return []


@pytest.mark.parametrize("places", [1, 2, 8])
def test_log_has_as_many_frames_as_it_takes_and_acknowledgements_keep_their_order(places):
    async def main():
        log, state, acknowledged = ManualLog(places), CountingState(), []
        commit = group_commit.GroupCommit(
            real_env(), log, state, SimpleNamespace(over_append_limit=False), lambda error: None,
            lambda began, size: None, lambda: None,
        )  # fmt: skip
        for number in range(20):
            operation = Append(1, number, [b"x"], 1, WRITER, number, 1)
            commit.add(operation, lambda error, number=number: acknowledged.append((error, number)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert [number for number, _ in log.waiting] == list(range(1, places + 1))
        assert not acknowledged
        while log.waiting:
            log.waiting.pop(0)[1](None)
            assert len(log.waiting) <= places
        assert acknowledged == [(None, number) for number in range(20)]
        assert state.applied == list(range(20))

    asyncio.run(main())


def test_one_frame_counts_for_those_that_became_durable_since_the_one_before_it(monkeypatch):
    async def main():
        monkeypatch.setattr(group_commit, "SAMPLE_SECONDS", 0.0)
        world = World(BY_HAND)
        store = await world.start()
        await store.container(SEGMENT).create(SEGMENT)
        writer = Writer(store, SEGMENT)
        await writer.set_up()
        counted = store.statistics
        histograms = counted.frame_operations, counted.frame_bytes, counted.frame_seconds

        async def append(number):
            writer.append(b"x", number)
            await writer.wait_for_replies()

        await append(1)
        before = counted.frames
        assert [each.count for each in histograms] == [before] * 3
        monkeypatch.setattr(group_commit, "SAMPLE_SECONDS", 1000.0)
        for number in (2, 3, 4):
            await append(number)
        assert (counted.frames, counted.appends) == (before + 3, 4)
        assert [each.count for each in histograms] == [before] * 3
        monkeypatch.setattr(group_commit, "SAMPLE_SECONDS", 0.0)
        await append(5)
        assert [each.count for each in histograms] == [before + 4] * 3
        assert counted.frame_operations.total == before + 4, "one operation in each"
        monkeypatch.setattr(group_commit, "SAMPLE_SECONDS", 1000.0)
        await append(6)
        counted.complete_samples()
        assert [each.count for each in histograms] == [before + 5] * 3, "a reader counts the last one, too"
        await store.stop()

    asyncio.run(main())
