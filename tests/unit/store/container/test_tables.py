"""Table segments against a dictionary, with checkpoints, crashes and conditions."""

import asyncio
import random

import pytest

from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Truncated
from sarit.core.limits import NOT_EXISTS
from sarit.wire.limits import NO_VERSION
from tests.unit.store.harness import World

TABLE = "_system/_tables/x"


def run(test):
    return asyncio.run(test)


async def opened(key_length=0):
    world = World()
    store = await world.start()
    await store.tables(TABLE).create(TABLE, key_length)
    return world, store, store.tables(TABLE)


async def stored(numbers):
    """Entries k0, k1, ... that are in the index alone; the store, its tables, and that index."""
    _, store, tables = await opened()
    await tables.update(TABLE, [(b"k%d" % number, b"v", NOT_EXISTS) for number in numbers])
    # The checkpoints are the tests' own: two at once would be a fault.
    background = [task for hosted in store._hosted for task in hosted.tasks]
    for opened_one in store.opened():
        opened_one.flusher.finish()
    await asyncio.gather(*(task for task in background if task.get_coro().__qualname__ == "Flusher.run"))
    (container,) = [one for one in store.opened() if one.container is store.container(TABLE)]
    await container.flusher.checkpoint()
    return store, tables, container.container.index


def test_removed_entries_use_no_cache_memory():
    async def main():
        store, tables, _ = await stored(range(3))
        entries = store.container(TABLE).metadata.entries
        assert len(entries._entries) == 3
        await tables.update(TABLE, [(b"k%d" % number, None, NO_VERSION) for number in range(3)])
        (container,) = [one for one in store.opened() if one.container is store.container(TABLE)]
        await container.flusher.checkpoint()
        assert len(entries._entries) == 0
        assert await tables.get(TABLE, [b"k1"]) == [None]

    run(main())


def test_versions_rise_across_keys_and_are_positions():
    async def main():
        _, _, tables = await opened()
        batch = [(b"a", b"1", NOT_EXISTS), (b"bb", b"22", NO_VERSION), (b"a", b"3", NOT_EXISTS)]
        versions = await tables.update(TABLE, batch)
        assert versions == [0, 19, 40]
        assert [(e.key, e.value, e.version) for e in await tables.scan(TABLE, b"", None, 9)] == [
            (b"a", b"3", 40),
            (b"bb", b"22", 19),
        ]
        assert (await tables.info(TABLE)).length == 59
        assert (await tables.info(TABLE)).entries == 2

    run(main())


def test_batch_conditions_are_checked_before_it_and_all_or_none():
    async def main():
        _, _, tables = await opened()
        (version,) = await tables.update(TABLE, [(b"map", b"0", NOT_EXISTS)])
        # The same key several times with the same expected version, as synchronizers send it.
        batch = [(b"map", b"1", version), (b"k", b"v", NOT_EXISTS), (b"map", b"2", version)]
        versions = await tables.update(TABLE, batch)
        with pytest.raises(Conflict) as stale:
            await tables.update(TABLE, [(b"new", b"x", NO_VERSION), (b"map", b"9", version)])
        assert stale.value.actual == versions[2]
        with pytest.raises(Conflict) as absent:
            await tables.update(TABLE, [(b"nobody", b"x", 5)])
        assert absent.value.actual == NOT_EXISTS
        assert await tables.get(TABLE, [b"new", b"nobody"]) == [None, None]
        with pytest.raises(Truncated):
            await tables.update(TABLE, [(b"k", b"x", NO_VERSION)], expected_length=1)

    run(main())


def test_two_conditional_updates_in_flight_have_one_winner():
    async def main():
        _, _, tables = await opened()
        results = await asyncio.gather(
            *(tables.update(TABLE, [(b"k", b"%d" % n, NOT_EXISTS)]) for n in range(5)), return_exceptions=True
        )
        assert sum(isinstance(r, list) for r in results) == 1
        assert sum(isinstance(r, Conflict) for r in results) == 4

    run(main())


def test_removal_of_absent_key():
    async def main():
        _, _, tables = await opened()
        await tables.update(TABLE, [(b"k", None, NO_VERSION), (b"k", None, NOT_EXISTS)])
        with pytest.raises(Conflict):
            await tables.update(TABLE, [(b"k", None, 3)])
        assert (await tables.info(TABLE)).entries == 0

    run(main())


def test_sizes_and_fixed_key_length_are_checked():
    async def main():
        _, store, tables = await opened(key_length=4)
        for key, value in ((b"abc", b""), (b"", b""), (b"abcd", b"x" * (1 << 20))):
            with pytest.raises(Invalid):
                await tables.update(TABLE, [(key, value, NO_VERSION)])
        with pytest.raises(NotImplementedError):
            await tables.delta(TABLE, 0, 10)
        with pytest.raises(Exists):
            await tables.create(TABLE, 4)
        await tables.update(TABLE, [(b"abcd", b"", NO_VERSION)])
        with pytest.raises(Exists):
            await tables.delete(TABLE, must_be_empty=True)
        position = (await tables.info(TABLE)).length
        await tables.update(TABLE, [(b"abcd", None, NO_VERSION)])
        with pytest.raises(Conflict):
            await tables.delete(TABLE, must_be_empty=True, unchanged_since=position)
        await tables.delete(TABLE, must_be_empty=False)
        with pytest.raises(NotFound):
            await tables.get(TABLE, [b"abcd"])
        await store.stop()

    run(main())


def test_delta_misses_nothing_when_all_scanned_entries_are_replaced(monkeypatch):
    async def main():
        store, tables, index = await stored(range(4))
        right = index.scan

        async def meanwhile(*bounds):
            rows = await right(*bounds)
            monkeypatch.setattr(index, "scan", right)
            await tables.update(TABLE, [(b"k0", b"new", NO_VERSION)])
            return rows

        monkeypatch.setattr(index, "scan", meanwhile)
        seen, position, complete = [], 0, False
        while not complete:
            page, complete, position = await tables.delta(TABLE, position, 1)
            assert page or complete
            seen += [(entry.key, entry.value) for entry in page]
        assert seen == [(b"k1", b"v"), (b"k2", b"v"), (b"k3", b"v"), (b"k0", b"new")]
        await store.stop()

    run(main())


def test_scan_page_is_of_one_moment(monkeypatch):
    """Of two keys put one after the other, the second is never seen without the first."""

    async def main():
        store, tables, index = await stored(range(2, 6))
        right, scans = index.scan, []

        async def meanwhile(*bounds):
            rows = await right(*bounds)
            scans.append(rows)
            if len(scans) == 1:  # everything scanned is removed
                await tables.update(TABLE, [(b"k2", None, NO_VERSION)])
            if len(scans) == 2:
                await tables.update(TABLE, [(b"k1", b"first", NOT_EXISTS)])
                await tables.update(TABLE, [(b"k9", b"second", NOT_EXISTS)])
            return rows

        monkeypatch.setattr(index, "scan", meanwhile)
        assert [entry.key for entry in await tables.scan(TABLE, b"", None, 1)] == [b"k1"]
        assert len(scans) == 2
        await store.stop()

    run(main())


def test_the_index_is_not_asked_for_fresh_keys(monkeypatch):
    async def main():
        _, store, tables = await opened()
        await tables.update(TABLE, [(b"old", b"1", NOT_EXISTS)])
        (container,) = [one for one in store.opened() if one.container is store.container(TABLE)]
        await container.flusher.checkpoint()
        index, asked = container.container.index, []
        right = index.get

        async def get(keys):
            asked.extend(keys)
            return await right(keys)

        monkeypatch.setattr(index, "get", get)
        await tables.update(TABLE, [(b"new", b"2", NOT_EXISTS), (b"any", b"3", NO_VERSION)], fresh={b"new", b"any"})
        assert not asked
        with pytest.raises(Conflict):  # entries in memory are checked
            await tables.update(TABLE, [(b"new", b"4", NOT_EXISTS)], fresh={b"new"})
        await tables.update(TABLE, [(b"absent", b"5", NOT_EXISTS)])
        assert len(asked) == 1
        assert [(e.key, e.value) for e in await tables.scan(TABLE, b"", None, 9)] == [
            (b"absent", b"5"), (b"any", b"3"), (b"new", b"2"), (b"old", b"1"),
        ]  # fmt: skip
        assert (await tables.info(TABLE)).entries == 4
        await store.stop()

    run(main())


def test_delta_reads_reach_every_update_in_pages():
    async def main():
        world, store, tables = await opened()
        expected = {}
        for turn in range(60):
            key = b"%d" % (turn % 23)
            if turn % 7 == 6:
                await tables.update(TABLE, [(key, None, NO_VERSION)])
                expected.pop(key, None)
            else:
                await tables.update(TABLE, [(key, b"v%d" % turn, NO_VERSION)])
                expected[key] = b"v%d" % turn
            if turn % 20 == 19:
                await asyncio.sleep(0.05)
        for _ in range(2):
            seen, position = {}, 0
            while True:
                page, reached, after = await tables.delta(TABLE, position, 4)
                seen.update({e.key: e.value for e in page})
                if not page:
                    assert reached
                    break
                assert after > position
                position = after
            assert seen == expected
            store = await world.crash(store)
            tables = store.tables(TABLE)
        assert await tables.delta(TABLE, (await tables.info(TABLE)).length, 4) == ([], True, 0)
        with pytest.raises(Invalid):
            await tables.delta(TABLE, 1 << 40, 4)

    run(main())


def test_scan_skips_nothing_when_table_changes_during_index_read(monkeypatch):
    """A removal and a put after the page came meanwhile: the page held the put, and nothing in between
    (simulation seed 964673795)."""

    async def main():
        store, tables, index = await stored(range(4))
        right = index.scan

        async def meanwhile(*bounds):
            rows = await right(*bounds)
            monkeypatch.setattr(index, "scan", right)
            await tables.update(TABLE, [(b"k0", None, NO_VERSION), (b"z", b"v", NOT_EXISTS)])
            return rows

        monkeypatch.setattr(index, "scan", meanwhile)
        assert [entry.key for entry in await tables.scan(TABLE, b"", None, 1)] == [b"k1"]
        assert [entry.key for entry in await tables.scan(TABLE, b"", None, 9)] == [b"k1", b"k2", b"k3", b"z"]
        await store.stop()

    run(main())


@pytest.mark.parametrize("seed", range(5))
def test_random_batches_with_checkpoints_and_crashes(seed):
    async def main():
        rnd = random.Random(seed)
        world, store, tables = await opened()
        model: dict[bytes, tuple[bytes, int]] = {}
        for _ in range(120):
            batch, after = [], dict(model)
            for key in {b"%02d" % rnd.randrange(40) for _ in range(rnd.randint(1, 6))}:
                expected = rnd.choice([NO_VERSION, model[key][1] if key in model else NOT_EXISTS])
                value = None if rnd.random() < 0.3 else rnd.randbytes(rnd.randrange(30))
                batch.append((key, value, expected))
                after.pop(key, None)
                if value is not None:
                    after[key] = (value, 0)
            versions = await tables.update(TABLE, batch)
            for (key, value, _), version in zip(batch, versions, strict=True):
                if value is not None:
                    after[key] = (value, version)
            model = after
            if rnd.random() < 0.2:
                await asyncio.sleep(0.01)
            if rnd.random() < 0.05:
                store = await world.crash(store)
                tables = store.tables(TABLE)
            if rnd.random() < 0.2:
                start = b"%02d" % rnd.randrange(40)
                page = await tables.scan(TABLE, start, None, 7)
                assert [(e.key, e.value, e.version) for e in page] == [
                    (k, *model[k]) for k in sorted(model) if k >= start
                ][:7]
        got = await tables.get(TABLE, [b"%02d" % n for n in range(40)])
        assert {e.key: (e.value, e.version) for e in got if e is not None} == model
        assert (await tables.info(TABLE)).entries == len(model)
        await store.stop()

    run(main())
