"""Pages of tables are bounded whatever the limit; short ranges are read from the index once per generation."""

import asyncio
import random
from dataclasses import replace

import pytest

from sarit.store.container import metadata_cache
from sarit.store.container.container import ContainerLimits
from sarit.store.container.metadata_cache import RangeScanCache
from sarit.store.limits import MAX_TABLE_PAGE_BYTES
from sarit.wire.limits import NO_VERSION
from tests.unit.store.container.test_tables import TABLE, opened, run, stored
from tests.unit.store.harness import SMALL, World

KIB = 1024


def record_scans(monkeypatch, index):
    """Record each scan of the index: (limit, rows, bytes)."""
    pieces, scan = [], index.scan

    async def counting(low, high, limit, **options):
        rows = await scan(low, high, limit, **options)
        pieces.append((limit, len(rows), sum(len(value) for _, value in rows)))
        return rows

    monkeypatch.setattr(index, "scan", counting)
    return pieces


async def checkpointed(store):
    (container,) = [one for one in store.opened() if one.container is store.container(TABLE)]
    while container.flusher.interrupted:  # its own checkpoint is in progress
        await asyncio.sleep(0)
    await container.flusher.checkpoint()
    return container.container.index


def test_scan_with_any_limit_reads_about_one_page(monkeypatch):
    """Clients may ask for any number: the whole table was read for its first page."""

    async def main():
        _, store, tables = await opened()
        for at in range(0, 300, 50):
            batch = [(b"k%03d" % number, b"v" * 50 * KIB, NO_VERSION) for number in range(at, at + 50)]
            await tables.update(TABLE, batch)
        pieces = record_scans(monkeypatch, await checkpointed(store))
        found, start = [], b""
        while page := await tables.scan(TABLE, start, None, 1 << 31):
            assert sum(size for _, _, size in pieces) < MAX_TABLE_PAGE_BYTES + 64 * 50 * KIB + KIB * KIB
            found += [entry.key for entry in page]
            start = found[-1] + b"\0"
            pieces.clear()
        assert found == [b"k%03d" % number for number in range(300)]

    run(main())


def test_delta_with_any_limit_is_read_in_pieces(monkeypatch):
    async def main():
        _, store, tables = await opened()
        count = 3000
        for at in range(0, count, 1000):
            await tables.update(TABLE, [(b"k%04d" % number, b"v", NO_VERSION) for number in range(at, at + 1000)])
        pieces = record_scans(monkeypatch, await checkpointed(store))
        found, position, ended = [], 0, False
        while not ended:
            page, ended, position = await tables.delta(TABLE, position, 1 << 31)
            found += [entry.key for entry in page]
        assert len(found) == len(set(found)) == count
        assert max(rows for _, rows, _ in pieces) <= 256

    run(main())


def test_delta_page_reads_about_one_page(monkeypatch):
    """256 entries were read for a page, whatever their size: with a MiB each, 256 MiB."""

    async def main():
        store = await World(replace(SMALL, container=ContainerLimits(entry_cache_bytes=0))).start()
        tables = store.tables(TABLE)
        await tables.create(TABLE, 0)
        for at in range(0, 300, 50):
            batch = [(b"k%03d" % number, b"v" * 50 * KIB, NO_VERSION) for number in range(at, at + 50)]
            await tables.update(TABLE, batch)
        index = await checkpointed(store)
        await tables.update(TABLE, [(b"k%03d" % number, b"new", NO_VERSION) for number in (0, 7, 299)])
        gotten, get = [], index.get

        async def counting(wanted):
            rows = await get(wanted)
            gotten.append(sum(len(row or b"") for row in rows))
            return rows

        monkeypatch.setattr(index, "get", counting)
        found, position, ended = [], 0, False
        while not ended:
            page, ended, position = await tables.delta(TABLE, position, 1 << 31)
            found += [(entry.key, entry.value) for entry in page]
            assert sum(gotten) < 2 * MAX_TABLE_PAGE_BYTES + 16 * 51 * KIB
            gotten.clear()
        kept = [number for number in range(300) if number not in (0, 7, 299)]
        assert [key for key, _ in found] == [b"k%03d" % number for number in (*kept, 0, 7, 299)]
        assert [value for _, value in found[-3:]] == [b"new"] * 3

    run(main())


def test_small_page_after_many_removals_needs_few_reads(monkeypatch):
    async def main():
        store, tables, index = await stored(range(1000))
        await tables.update(TABLE, [(b"k%d" % number, None, NO_VERSION) for number in range(1000) if number != 999])
        pieces = record_scans(monkeypatch, index)
        assert [entry.key for entry in await tables.scan(TABLE, b"", None, 1)] == [b"k999"]
        assert len(pieces) <= 8

    run(main())


def test_short_range_is_read_once_per_generation(monkeypatch):
    async def main():
        store, tables, index = await stored([1, 2, 3])
        pieces = record_scans(monkeypatch, index)

        async def keys(start=b"k", end=b"l", limit=1000):
            return [entry.key for entry in await tables.scan(TABLE, start, end, limit)]

        for _ in range(3):
            assert await keys() == [b"k1", b"k2", b"k3"]
            assert await keys(b"k2") == [b"k2", b"k3"]
            assert await keys(b"k4") == []
            assert await keys(limit=2) == [b"k1", b"k2"]
        assert len(pieces) == 1
        await tables.update(TABLE, [(b"k2", None, NO_VERSION), (b"k4", b"new", NO_VERSION)])
        assert await keys() == [b"k1", b"k3", b"k4"]
        assert len(pieces) == 1
        await checkpointed(store)
        for _ in range(2):
            assert await keys() == [b"k1", b"k3", b"k4"]
        assert len(pieces) == 2

    run(main())


@pytest.mark.parametrize("seed", range(20))
def test_range_scan_cache_matches_index(seed, monkeypatch):
    monkeypatch.setattr(metadata_cache, "MAX_CACHED_RANGES", 3)
    monkeypatch.setattr(metadata_cache, "MAX_CACHED_RANGE_ROWS", 5)
    chance, ends, generation = random.Random(seed), RangeScanCache(), 0
    held = [(b"%d" % number, b"v") for number in range(9)]
    hits = 0
    for _ in range(300):
        if chance.random() < 0.1:
            generation += 1
            held = [(b"%d" % number, b"%d" % generation) for number in range(9) if chance.random() < 0.6]
        low, high = sorted((b"%d" % chance.randrange(9), b"%d" % chance.randrange(10)))
        real = [row for row in held if low <= row[0] < high]
        known = ends.rows(generation, low, high)
        if known is None:
            ends.put(generation, low, high, real)
        else:
            hits += 1
            assert known == real
        ends.put(generation - 1, low, high, [(b"0", b"old")])  # read before a commit, put after it
    assert hits > 10
