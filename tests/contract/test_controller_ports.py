"""One suite for the controller's ports: calls in one process, requests over connections, and the fakes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from sarit.controller.ports import Segments, TableFeed, Tables, TableUpdate, TableValue
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Sealed, Truncated
from sarit.core.limits import NOT_EXISTS, NULL_ATTRIBUTE_VALUE
from sarit.core.metering import NO_RATES, ScalingTimes
from sarit.core.names import transaction_segment
from sarit.env.real import RealNetwork
from sarit.process.store_calls.in_process import InProcessSegments, InProcessTables
from sarit.process.store_calls.remote import RemoteSegments, RemoteTables
from sarit.process.store_calls.store_connections import FixedRouter, StoreConnections
from sarit.store.metering.load_meters import LoadMeters
from sarit.store.server.internal_handler import InternalHandler
from sarit.store.server.listener import StoreListener
from sarit.wire.limits import NO_VERSION
from tests.limits import HANG_SECONDS
from tests.unit.controller.fakes import FakeSegments, FakeTables
from tests.unit.store.harness import World, memory_env

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

SECRET = b"of this installation"
TABLE = "_system/_tables/one"
PARTITION = "s/t_kvtable/0.#epoch.0"
SEGMENT = "s/t/0.#epoch.0"
KEY = b"attribute-of-one"


@dataclass
class Ports:
    kind: str
    tables: Tables
    segments: Segments


@asynccontextmanager
async def ports_of(kind: str) -> AsyncIterator[Ports]:
    if kind == "fake":
        yield Ports(kind, FakeTables(), FakeSegments())
        return
    store = await World().start()
    env = store.env = replace(memory_env(), network=RealNetwork())
    meters = LoadMeters(store, env.clock, ScalingTimes())
    if kind == "in process":
        segments = InProcessSegments(store, lambda: ("127.0.0.1", 12345), meters)
        yield Ports(kind, InProcessTables(store), segments)
        await store.stop()
        return
    listener = StoreListener(store, internal=InternalHandler(store, SECRET, meters))
    port = await listener.listen("127.0.0.1", 0)
    stores = StoreConnections(env, FixedRouter(store.limits.containers, [("127.0.0.1", port)]), SECRET)
    yield Ports(kind, RemoteTables(stores), RemoteSegments(stores))
    await stores.close()
    await listener.close()
    await store.stop()


@pytest.fixture(params=["in process", "remote", "fake"])
def run(request):
    def run_test(test: Callable[[Ports], Awaitable[None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(HANG_SECONDS), ports_of(request.param) as ports:
                await test(ports)

        asyncio.run(main())

    return run_test


# -- tables ---------------------------------------------------------------------------------------


def test_table_is_created_once_and_deleted_once(run):
    async def test(ports):
        await ports.tables.create(TABLE)
        with pytest.raises(Exists):
            await ports.tables.create(TABLE)
        await ports.tables.delete(TABLE)
        with pytest.raises(NotFound):
            await ports.tables.delete(TABLE)

    run(test)


def test_table_segment_whose_keys_have_another_length_is_not_taken_for_the_one_that_was_to_be_created(run):
    async def test(ports):
        await ports.segments.create_table(PARTITION, key_length=0)
        with pytest.raises(Exists):
            await ports.segments.create_table(PARTITION, key_length=0)
        with pytest.raises(Conflict):
            await ports.segments.create_table(PARTITION, key_length=8)

    run(test)


def test_a_batch_at_a_position_is_applied_at_that_position_alone(run):
    async def test(ports):
        tables = ports.tables
        await tables.create(TABLE)
        first = await tables.update_at(TABLE, [TableUpdate(b"a", b"1", NO_VERSION)], await tables.position(TABLE))
        assert first == await tables.position(TABLE)
        with pytest.raises(Conflict):
            await tables.update_at(TABLE, [TableUpdate(b"a", b"2", NO_VERSION)], first - 1)
        second = await tables.update_at(TABLE, [TableUpdate(b"a", None, NO_VERSION)], first)
        assert second > first
        assert await tables.get(TABLE, [b"a"]) == [None]

    run(test)


def test_a_followed_table_gives_its_changes_with_removals_in_order(run):
    async def test(ports):
        tables = ports.tables
        await tables.create(TABLE)
        await tables.update(TABLE, [TableUpdate(b"a", b"0", NO_VERSION)])
        start = await tables.position(TABLE)
        assert await tables.changes(TABLE, start, 1000) == TableFeed((), start)
        await tables.update(TABLE, [TableUpdate(b"a", b"1", NO_VERSION), TableUpdate(b"b", b"", NO_VERSION)])
        middle = await tables.position(TABLE)
        await tables.update(TABLE, [TableUpdate(b"a", None, NO_VERSION), TableUpdate(b"never", None, NO_VERSION)])
        end = await tables.position(TABLE)
        assert await tables.changes(TABLE, end, 1000) == TableFeed((), end)
        if ports.kind != "fake":  # which knows no changes
            both = ((b"a", b"1"), (b"b", b""), (b"a", None))
            assert await tables.changes(TABLE, start, 10_000) == TableFeed(both, end)
            assert await tables.changes(TABLE, start, 500) == TableFeed(both[:2], middle)
            assert await tables.changes(TABLE, middle, 500) == TableFeed(both[2:], end)
        assert await tables.changes(TABLE, start, 1) is None  # the batch is longer than that
        assert await tables.changes(TABLE, 0, 10_000) is None  # before it was followed

    run(test)


# Calls about a table, or about a segment, that is missing.
ON_MISSING = {
    "get entries": lambda ports: ports.tables.get(TABLE, [b"a"]),
    "update entries": lambda ports: ports.tables.update(TABLE, [TableUpdate(b"a", b"1", NO_VERSION)]),
    "update at a position": lambda ports: ports.tables.update_at(TABLE, [TableUpdate(b"a", b"1", NO_VERSION)], 0),
    "changes": lambda ports: ports.tables.changes(TABLE, 0, 10),
    "scan": lambda ports: ports.tables.scan(TABLE, b"", None, 10),
    "position": lambda ports: ports.tables.position(TABLE),
    "seal": lambda ports: ports.segments.seal(SEGMENT),
    "truncate": lambda ports: ports.segments.truncate(SEGMENT, 0),
    "info": lambda ports: ports.segments.info(SEGMENT),
    "update the policy": lambda ports: ports.segments.update_policy(SEGMENT, scale_type=0, target_rate=0),
    "read": lambda ports: ports.segments.read(SEGMENT, 0, 10),
    "write": lambda ports: ports.segments.write(SEGMENT, b"x", 0),
    "get an attribute": lambda ports: ports.segments.get_attribute(SEGMENT, KEY),
    "update an attribute": lambda ports: ports.segments.update_attribute(SEGMENT, KEY, 1, NULL_ATTRIBUTE_VALUE),
    "merge at": lambda ports: ports.segments.merge_at(SEGMENT, transaction_segment(SEGMENT, 1), 0),
    "locate": lambda ports: ports.segments.locate(SEGMENT, 0),
    "set the mirror": lambda ports: ports.segments.set_mirror(SEGMENT, False),
    "merge": lambda ports: ports.segments.merge(SEGMENT, [transaction_segment(SEGMENT, 1)]),
}


def test_calls_on_what_is_missing_raise_not_found(run):
    async def test(ports):
        for name, call in ON_MISSING.items():
            with pytest.raises(NotFound):
                pytest.fail(f"{name} returned {await call(ports)}")

    run(test)


def test_update_is_all_or_nothing_and_versions_rise(run):
    async def test(ports):
        tables = ports.tables
        await tables.create(TABLE)
        first, second = await tables.update(
            TABLE, [TableUpdate(b"a", b"1", NOT_EXISTS, fresh=True), TableUpdate(b"b", b"", NO_VERSION)]
        )
        assert second > first >= 0
        with pytest.raises(Conflict):
            await tables.update(TABLE, [TableUpdate(b"c", b"3", NOT_EXISTS), TableUpdate(b"a", b"2", second)])
        with pytest.raises(Conflict):
            await tables.update(TABLE, [TableUpdate(b"a", b"2", NOT_EXISTS)])
        assert await tables.get(TABLE, [b"c", b"b", b"a"]) == [None, TableValue(b"", second), TableValue(b"1", first)]
        third, removed = await tables.update(TABLE, [TableUpdate(b"a", b"2", first), TableUpdate(b"b", None, second)])
        assert (third > second, removed) == (True, NOT_EXISTS)
        assert await tables.get(TABLE, [b"b", b"a"]) == [None, TableValue(b"2", third)]

    run(test)


def test_scan_is_in_order_of_keys_between_bounds(run):
    async def test(ports):
        tables = ports.tables
        await tables.create(TABLE)
        keys = [b"b", b"\xff\xff", b"a\x00", b"a", b"aa"]
        await tables.update(TABLE, [TableUpdate(key, key * 2, NOT_EXISTS) for key in keys])
        assert [key for key, _ in await tables.scan(TABLE, b"", None, 10)] == sorted(keys)
        found = await tables.scan(TABLE, b"a\x00", b"b", 10)
        assert [(key, value.value) for key, value in found] == [(b"a\x00", b"a\x00a\x00"), (b"aa", b"aaaa")]
        assert [key for key, _ in await tables.scan(TABLE, b"", None, 2)] == [b"a", b"a\x00"]
        # An end that is empty excludes every key; None excludes none.
        assert await tables.scan(TABLE, b"", b"", 10) == []
        assert await tables.scan(TABLE, b"\xff\xff\x00", None, 10) == []

    run(test)


def test_position_rises_with_every_change(run):
    async def test(ports):
        tables = ports.tables
        await tables.create(TABLE)
        seen = [await tables.position(TABLE)]
        for value in (b"1", b"2", None):
            await tables.update(TABLE, [TableUpdate(b"a", value, NO_VERSION)])
            seen.append(await tables.position(TABLE))
        assert seen == sorted(set(seen))

    run(test)


def test_delete_respects_its_conditions(run):
    async def test(ports):
        tables = ports.tables
        await tables.create(TABLE)
        before = await tables.position(TABLE)
        await tables.update(TABLE, [TableUpdate(b"a", b"1", NO_VERSION)])
        with pytest.raises(Exists):
            await tables.delete(TABLE, must_be_empty=True)
        with pytest.raises(Conflict):
            await tables.delete(TABLE, unchanged_since=before)
        await tables.update(TABLE, [TableUpdate(b"a", None, NO_VERSION)])
        await tables.delete(TABLE, must_be_empty=True, unchanged_since=await tables.position(TABLE))
        with pytest.raises(NotFound):
            await tables.position(TABLE)

    run(test)


def test_values_that_do_not_fit_in_one_reply_are_returned(run):
    async def test(ports):
        tables = ports.tables
        await tables.create(TABLE)
        keys = [b"%02d" % number for number in range(20)]
        for key in keys:
            await tables.update(TABLE, [TableUpdate(key, key * 500_000, NOT_EXISTS)])
        found = await tables.get(TABLE, keys)
        assert [value.value[:2] for value in found] == keys
        pages, start = [], b""
        while page := await tables.scan(TABLE, start, None, 100):
            pages += [key for key, _ in page]
            start = page[-1][0] + b"\0"
        assert pages == keys

    run(test)


# -- segments -------------------------------------------------------------------------------------


def test_segment_is_created_once_and_deleted_once(run):
    async def test(ports):
        segments = ports.segments
        await segments.create(SEGMENT, scale_type=2, target_rate=100, rollover_bytes=1000)
        with pytest.raises(Exists):
            await segments.create(SEGMENT)
        await segments.create_fresh([f"s/t/{number}.#epoch.0" for number in range(1, 9)])
        for number in range(1, 9):
            assert (await segments.info(f"s/t/{number}.#epoch.0")).length == 0
        await segments.create_table("s/table", key_length=16)
        with pytest.raises(Exists):
            await segments.create_table("s/table", key_length=16)
        await segments.delete(SEGMENT)
        with pytest.raises(NotFound):
            await segments.delete(SEGMENT)

    run(test)


def test_write_is_conditional_on_the_length_and_read_returns_it(run):
    async def test(ports):
        segments = ports.segments
        await segments.create(SEGMENT)
        assert await segments.read(SEGMENT, 0, 10) == b""
        await segments.write(SEGMENT, b"one", 0)
        with pytest.raises(Conflict):
            await segments.write(SEGMENT, b"two", 0)
        await segments.write(SEGMENT, b"two", 3)
        data = b""
        while part := await segments.read(SEGMENT, len(data), 4):
            data += part
        assert data == b"onetwo"
        with pytest.raises(Invalid):
            await segments.read(SEGMENT, 7, 1)

    run(test)


def test_seal_and_truncate_succeed_again(run):
    async def test(ports):
        segments = ports.segments
        await segments.create(SEGMENT)
        await segments.write(SEGMENT, b"one", 0)
        for _ in range(2):
            await segments.truncate(SEGMENT, 2)
            await segments.seal(SEGMENT)
        await segments.truncate(SEGMENT, 1)
        with pytest.raises(Invalid):
            await segments.truncate(SEGMENT, 4)
        info = await segments.info(SEGMENT)
        assert (info.length, info.start_offset, info.sealed) == (3, 2, True)
        with pytest.raises(Truncated) as raised:
            await segments.read(SEGMENT, 1, 1)
        assert raised.value.start_offset == 2
        with pytest.raises(Sealed):
            await segments.write(SEGMENT, b"x", 3)

    run(test)


def test_merge_answers_the_length_after_each_source(run):
    async def test(ports):
        segments = ports.segments
        await segments.create(SEGMENT)
        sources = [transaction_segment(SEGMENT, number) for number in (1, 2)]
        await segments.create_fresh(sources)
        for source in sources:
            await segments.write(source, b"data", 0)
            await segments.seal(source)
        assert await segments.merge(SEGMENT, sources) == [4, 8]
        # As after an attempt whose answer was lost.
        assert await segments.merge(SEGMENT, sources) == [8, 8]

    run(test)


def test_attribute_is_compared_and_set(run):
    async def test(ports):
        segments = ports.segments
        await segments.create(SEGMENT)
        assert await segments.get_attribute(SEGMENT, KEY) == NULL_ATTRIBUTE_VALUE
        assert await segments.update_attribute(SEGMENT, KEY, 5, NULL_ATTRIBUTE_VALUE)
        assert not await segments.update_attribute(SEGMENT, KEY, 6, 4)
        assert await segments.get_attribute(SEGMENT, KEY) == 5

    run(test)


def test_rates_are_in_order_and_zero_for_a_missing_segment(run):
    async def test(ports):
        segments = ports.segments
        await segments.create(SEGMENT)
        await segments.update_policy(SEGMENT, scale_type=2, target_rate=100)
        rates = await segments.rates(["s/none/0.#epoch.0", SEGMENT])
        assert [rate.events for rate in rates] == [NO_RATES.events] * 2

    run(test)


def test_grown_names_each_segment_after_it_grew(run):
    async def test(ports):
        segments = ports.segments
        names = [f"s/t/{number}.#epoch.0" for number in range(5)]
        for name in names:
            await segments.create(name)
            await segments.write(name, b"one", 0)
        assert sorted(await segments.grown()) == names
        assert await segments.grown() == []
        await segments.write(names[3], b"two", 3)
        assert await segments.grown() == [names[3]]

    run(test)


def test_endpoint_is_an_address(run):
    async def test(ports):
        host, port = ports.segments.endpoint(SEGMENT)
        assert (host, port > 0) == ("127.0.0.1", True)

    run(test)


# -- mirrors and batches --------------------------------------------------------------------------

START = 5_000_000_000


def test_segment_created_at_an_offset_begins_and_ends_there(run):
    async def test(ports):
        segments = ports.segments
        await segments.create_at(SEGMENT, START, mirror=True)
        for again in (0, START):
            with pytest.raises(Exists):
                await segments.create_at(SEGMENT, again, mirror=False)
        info = await segments.info(SEGMENT)
        assert (info.length, info.start_offset, info.sealed) == (START, START, False)
        with pytest.raises(Truncated) as raised:
            await segments.read(SEGMENT, START - 1, 1)
        assert raised.value.start_offset == START
        assert await segments.read(SEGMENT, START, 10) == b""
        assert await segments.append_at_many([(SEGMENT, START, b"one"), (SEGMENT, START + 3, b"two")]) == [
            START + 3,
            START + 6,
        ]
        assert await segments.read_many([(SEGMENT, START, 100), (SEGMENT, START + 4, 1)]) == [b"onetwo", b"w"]
        await segments.truncate(SEGMENT, START + 3)
        assert await segments.read_many([(SEGMENT, START + 3, 2)]) == [b"tw"]

    run(test)


def test_table_created_at_a_position_gives_higher_versions(run):
    async def test(ports):
        if ports.kind == "fake":
            return
        await ports.segments.create_table_at(PARTITION, key_length=0, position=START, mirror=True)
        with pytest.raises(Exists):
            await ports.segments.create_table_at(PARTITION, key_length=0, position=0)
        with pytest.raises(Conflict):
            await ports.segments.create_table_at(PARTITION, key_length=8, position=0)
        assert await ports.tables.position(PARTITION) == START
        (version,) = await ports.tables.update(PARTITION, [TableUpdate(b"a", b"1", NOT_EXISTS)])
        assert version == START
        with pytest.raises(Conflict):
            await ports.tables.update(PARTITION, [TableUpdate(b"a", b"2", 0)])
        await ports.segments.set_mirror(PARTITION, False)
        assert await ports.tables.get(PARTITION, [b"a"]) == [TableValue(b"1", START)]

    run(test)


def test_merge_is_conditional_on_the_length(run):
    async def test(ports):
        segments = ports.segments
        source = transaction_segment(SEGMENT, 1)
        await segments.create_at(SEGMENT, START, mirror=True)
        await segments.create_at(source, 0, mirror=True)
        assert await segments.append_at_many([(source, 0, b"data")]) == [4]
        with pytest.raises(Conflict) as raised:
            await segments.merge_at(SEGMENT, source, START - 4)
        assert raised.value.actual == START
        assert await segments.merge_at(SEGMENT, source, START) == START + 4
        with pytest.raises(NotFound):
            await segments.merge_at(SEGMENT, source, START)
        assert await segments.read(SEGMENT, START, 10) == b"data"

    run(test)


def test_items_of_a_batch_fail_one_by_one(run):
    async def test(ports):
        segments = ports.segments
        other, missing = "s/t/1.#epoch.0", "s/t/2.#epoch.0"
        for name in (SEGMENT, other):
            await segments.create(name)
        await segments.seal(other)
        done = await segments.append_at_many(
            [(SEGMENT, 1, b"x"), (SEGMENT, 0, b"one"), (other, 0, b"x"), (missing, 0, b"x"), (SEGMENT, 0, b"x")]
        )
        refused = [type(answer) for answer in done if not isinstance(answer, int)]
        assert (done[1], refused) == (3, [Conflict, Sealed, NotFound, Conflict])
        assert (done[0].actual, done[4].actual) == (0, 3)
        await segments.truncate(SEGMENT, 1)
        read = await segments.read_many(
            [(SEGMENT, 0, 1), (SEGMENT, 1, 9), (missing, 0, 1), (SEGMENT, 4, 1), (other, 0, 1)]
        )
        assert (read[1], read[4]) == (b"ne", b"")
        assert [type(read[place]) for place in (0, 2, 3)] == [Truncated, NotFound, Invalid]
        assert read[0].start_offset == 1
        found = await segments.infos([missing, SEGMENT, other])
        assert found[0] is None
        assert [(one.length, one.start_offset, one.sealed) for one in found[1:]] == [(3, 1, False), (0, 0, True)]

    run(test)


def test_batch_of_many_segments_keeps_the_order_of_each(run):
    async def test(ports):
        segments = ports.segments
        names = [f"s/t/{number}.#epoch.0" for number in range(40)]
        for name in names:
            await segments.create_at(name, 7, mirror=True)
        writes = [(name, 7 + 50_000 * part, bytes([part]) * 50_000) for part in range(5) for name in names]
        assert await segments.append_at_many(writes) == [offset + len(data) for _, offset, data in writes]
        ranges = [(name, 7, 250_000) for name in names]
        whole = b"".join(bytes([part]) * 50_000 for part in range(5))
        assert await segments.read_many(ranges) == [whole] * 40
        assert [one.length for one in await segments.infos(names)] == [250_007] * 40

    run(test)


def test_locate_skips_bytes_that_may_begin_within_an_event(run):
    async def test(ports):
        segments = ports.segments
        await segments.create(SEGMENT)
        await segments.append_at_many([(SEGMENT, 0, b"four")])
        await segments.append_at_many([(SEGMENT, 4, b"more")], begin_events=False)
        await segments.append_at_many([(SEGMENT, 8, b"last")])
        # Small appends that were flushed together have one known place.
        assert [await segments.locate(SEGMENT, offset) for offset in (0, 9)] == [0, 12]
        assert {await segments.locate(SEGMENT, offset) for offset in (3, 4, 5, 8)} <= {8, 12}

    run(test)


def test_locate_finds_where_an_append_began(run):
    async def test(ports):
        segments = ports.segments
        await segments.create(SEGMENT)
        await segments.append_at_many([(SEGMENT, 0, b"four"), (SEGMENT, 4, b"more"), (SEGMENT, 8, b"last")])
        assert await segments.locate(SEGMENT, 0) == 0
        # Small appends that were flushed together have one known place.
        assert {await segments.locate(SEGMENT, offset) for offset in (3, 4)} <= {4, 8, 12}
        assert [await segments.locate(SEGMENT, offset) for offset in (9, 12)] == [12, 12]

    run(test)
