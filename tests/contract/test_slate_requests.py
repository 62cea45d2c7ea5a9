"""The index on an object store that takes its time: requests and waiting of commits, openings and replays."""

import asyncio
import time
from dataclasses import replace

import pytest

from benchmarks.micro.object_requests import PUTS_PER_COMMIT
from sarit.core.errors import Fenced
from sarit.index import keys, slate
from sarit.index.port import WriteBatch
from sarit.index.slate import open_on_s3
from sarit.storage.open import s3_config
from tests.contract.s3_proxy import counting
from tests.limits import patient
from tests.unit.store.harness import SMALL, World, Writer

pytestmark = pytest.mark.long

GET_SECONDS = PUT_SECONDS = 0.03
SEGMENTS = 5000


@pytest.fixture
def slow(s3):
    """A counting proxy with delays, and the server behind it."""
    with counting(s3) as (proxy, server):
        proxy.delay_seconds = {"GET": GET_SECONDS, "HEAD": GET_SECONDS, "PUT": PUT_SECONDS, "POST": PUT_SECONDS}
        yield proxy, server


def provider_on(server, name):
    return open_on_s3(server.bucket, f"requests/{name}", s3_config(server.environ))


def test_p99_of_1000_commits_on_a_slow_store_and_their_requests(slow, tmp_path):
    async def main():
        proxy, server = slow
        index = await provider_on(server, tmp_path.name).open(0)
        proxy.counted.clear()
        took = []
        for number in range(1000):
            began = time.perf_counter()
            await index.commit(WriteBatch({b"%04d" % (number * at % 5000): b"x" * 60 for at in range(20)}))
            took.append(time.perf_counter() - began)
        await index.close()
        took.sort()
        print(
            f"commits: p50 {took[500] * 1000:.0f} ms, p99 {took[990] * 1000:.0f} ms, max {took[-1] * 1000:.0f} ms; "
            f"requests for each: { ({method: count / 1000 for method, count in proxy.counted.items()}) }"
        )
        assert took[990] < 0.5
        assert proxy.counted["PUT"] <= PUTS_PER_COMMIT * 1000 * 1.1

    asyncio.run(main())


def test_5000_dirty_segments_are_replayed_in_3_seconds(slow, tmp_path):
    async def main():
        proxy, server = slow
        proxy.delay_seconds = {}
        flush = replace(SMALL.flush, interval_seconds=1e9, trigger_bytes=1 << 40)
        world = World(
            replace(SMALL, containers=1, flush=flush, container=replace(SMALL.container, max_segments=100_000))
        )
        world.indexes = provider_on(server, tmp_path.name)
        store = await world.start()
        names = [f"s/t/{number}.#epoch.0" for number in range(SEGMENTS)]
        writers = []
        for number, name in enumerate(names):
            await store.container(name).create(name)
            writers.append(Writer(store, name, number.to_bytes(16, "big")))
            await writers[-1].set_up()
            writers[-1].append(b"x" * 50, 1)
        (opened,) = store.opened()
        await opened.container.group_commit.wait_durable()
        await opened.flusher.checkpoint()
        for writer in writers:
            writer.append(b"y" * 50, 2)
        await opened.container.group_commit.wait_durable()
        # Another machine: its cache is empty, and the store is slow.
        world.indexes = provider_on(server, tmp_path.name)
        proxy.delay_seconds = {"GET": GET_SECONDS, "HEAD": GET_SECONDS, "PUT": PUT_SECONDS}
        proxy.counted.clear()
        began = time.perf_counter()
        store = await world.crash(store)
        took = time.perf_counter() - began
        print(f"{SEGMENTS} dirty segments: {took:.2f} s, {dict(proxy.counted)}")
        (opened,) = store.opened()
        assert len(opened.container.state.changed) == SEGMENTS
        segment = await opened.container.metadata.require(names[17])
        assert segment.length == 100
        await store.stop()
        assert took < patient(3)

    asyncio.run(main())


def test_a_fenced_writer_commits_nothing_whenever_it_wakes_up(slow, tmp_path):
    """It stood still before a commit, between its two PUTs, or while another one opened."""

    async def main():
        proxy, server = slow
        proxy.delay_seconds = {}
        first, second = (provider_on(server, tmp_path.name) for _ in range(2))
        for turn in range(5):
            zombie = await first.open(0)
            await zombie.commit(WriteBatch({b"of the zombie": b"%d" % turn}))
            # Its PUTs take longer than the opening and the first commits of the other one.
            proxy.delay_seconds = {"PUT": 0.05 * turn}
            late = asyncio.ensure_future(zombie.commit(WriteBatch({b"late": b"%d" % turn})))
            await asyncio.sleep(0.02 * turn)
            proxy.delay_seconds = {}
            owner = await second.open(0)
            seen = await owner.get([b"late"])
            await owner.commit(WriteBatch({b"owner": b"%d" % turn}))
            (outcome,) = await asyncio.gather(late, return_exceptions=True)
            with pytest.raises(Fenced):
                await zombie.commit(WriteBatch({b"later": b"1"}))
            # Fenced, or done before the other one opened: then that one has seen it.
            assert isinstance(outcome, Fenced) or seen == [b"%d" % turn], (turn, outcome)
            await owner.close()
            again = await second.open(0)
            assert await again.get([b"late", b"later", b"owner"]) == [*seen, None, b"%d" % turn]
            await again.close()
            await zombie.close()

    asyncio.run(main())


def test_a_large_range_is_deleted_by_many_commits_and_is_gone_at_once(slow, tmp_path, monkeypatch):
    async def main():
        proxy, server = slow
        proxy.delay_seconds = {}
        provider = provider_on(server, tmp_path.name)
        index = await provider.open(0)
        rows = 5 * slate.SWEPT_ROWS
        for first in range(0, rows, 1000):
            await index.commit(WriteBatch({keys.entry_key(7, b"%06d" % at): b"v" for at in range(first, first + 1000)}))
        await index.commit(WriteBatch({keys.entry_key(8, b"next"): b"v"}))
        began = time.perf_counter()
        await index.commit(WriteBatch(range_deletes=keys.ranges_of_segment(7)))
        print(f"a commit that deletes a range of {rows} rows: {time.perf_counter() - began:.2f} s")
        kind = keys.kind_range(keys.ENTRY)
        assert await index.scan(*kind, 10) == [(keys.entry_key(8, b"next"), b"v")]
        await index.close()
        index = await provider.open(0)
        assert await index.scan(*kind, 10) == [(keys.entry_key(8, b"next"), b"v")]
        for number in range(6):
            await index.commit(WriteBatch({b"a%d" % number: b"1"}))
        assert not index._sweeps.ranges
        assert not await index._scan_one(b"x", b"", b"\xff" * 5, 10)
        assert len(await index._scan_one(b"k", *kind, 10)) == 1
        await index.close()

    asyncio.run(main())
