"""Scans of tables with many entries in memory."""

import asyncio
import heapq
import random
from dataclasses import replace

import pytest

from sarit.store.container import tables as tables_module
from sarit.store.tiering.checkpoint import FlushLimits
from sarit.wire.limits import NO_VERSION
from tests.unit.store.harness import SMALL, World

TABLE = "_system/_tables/x"


async def opened():
    """A table, and the container that checkpoints it when the test asks for it."""
    store = await World(replace(SMALL, containers=1, flush=FlushLimits(interval_seconds=3600.0))).start()
    await store.tables(TABLE).create(TABLE, 0)
    (one,) = store.opened()
    return store, store.tables(TABLE), one.flusher


def put(key, value=b"v"):
    return key, value, NO_VERSION


def test_page_of_a_scan_examines_few_entries(monkeypatch):
    examined = 0

    def merge(*those):
        nonlocal examined
        for key in heapq.merge(*those):
            examined += 1
            yield key

    counted = type("Counted", (), {"merge": staticmethod(merge)})
    monkeypatch.setattr(tables_module, "heapq", counted)

    async def main():
        store, tables, _ = await opened()
        for first in range(0, 20_000, 1000):
            await tables.update(TABLE, [put(b"%06d" % number) for number in range(first, first + 1000)])
        page = await tables.scan(TABLE, b"010000", None, 10)
        assert [entry.key for entry in page] == [b"%06d" % number for number in range(10_000, 10_010)]
        assert examined <= 20
        await store.stop()

    asyncio.run(main())


def test_scan_over_many_removed_entries_gives_way_and_returns_what_follows(monkeypatch):
    monkeypatch.setattr(tables_module, "_MAX_EXAMINED", 16)

    async def main():
        store, tables, flusher = await opened()
        await tables.update(TABLE, [put(b"%06d" % number) for number in range(200)])
        await flusher.checkpoint()
        await tables.update(TABLE, [put(b"%06d" % number, None) for number in range(190)])
        page = [entry.key for entry in await tables.scan(TABLE, b"", None, 3)]
        assert page, "none would be the end"
        assert page == [b"000190", b"000191", b"000192"][: len(page)]
        assert await tables.scan(TABLE, b"", b"000190", 3) == []
        await store.stop()

    asyncio.run(main())


def test_page_is_of_one_moment_while_entries_that_it_passed_over_change(monkeypatch):
    """A key below what a scan has passed over is put, then one above it: a page with the second one has the first."""
    monkeypatch.setattr(tables_module, "_MAX_EXAMINED", 16)

    async def main():
        store, tables, flusher = await opened()
        await tables.update(TABLE, [put(b"%06d" % number) for number in range(100)])
        await flusher.checkpoint()
        await tables.update(TABLE, [put(b"%06d" % number, None) for number in range(100)])
        right, calls = tables._scan_page, 0

        async def scan_page(*arguments):
            nonlocal calls
            calls += 1
            if calls == 3:
                await tables.update(TABLE, [put(b"000000", b"first")])
                await tables.update(TABLE, [put(b"000099", b"second")])
            return await right(*arguments)

        monkeypatch.setattr(tables, "_scan_page", scan_page)
        found = await tables.scan(TABLE, b"", None, 10)
        assert [entry.key for entry in found] in ([b"000000"], [b"000000", b"000099"])
        await store.stop()

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(5))
def test_scans_agree_with_a_dictionary(seed, monkeypatch):
    monkeypatch.setattr(tables_module, "_MAX_EXAMINED", 5)
    rng = random.Random(seed)

    async def main():
        store, tables, flusher = await opened()
        expected = {}
        for _ in range(60):
            changes = {b"%03d" % rng.randrange(120): rng.choice((None, b"a", b"b")) for _ in range(rng.randrange(1, 9))}
            await tables.update(TABLE, [put(key, value) for key, value in changes.items()])
            expected |= changes
            expected = {key: value for key, value in expected.items() if value is not None}
            if rng.random() < 0.2:
                await flusher.checkpoint()
            start, limit = b"%03d" % rng.randrange(120), rng.randrange(1, 20)
            end = rng.choice((None, b"%03d" % rng.randrange(130)))
            wanted = sorted(key for key in expected if key >= start and (end is None or key < end))
            page = await tables.scan(TABLE, start, end, limit)
            keys = [entry.key for entry in page]
            assert keys == wanted[: len(keys)]
            assert bool(keys) == bool(wanted), "none is the end"
            assert len(keys) <= limit
            assert all(expected[entry.key] == entry.value for entry in page)
        await store.stop()

    asyncio.run(main())
