"""Snapshots of an index on an object store: of one moment, kept while they are read, and never longer."""

import asyncio

import pytest
import slatedb.uniffi as slatedb

from sarit.core.errors import Unavailable
from sarit.env.real import RealThreads, real_env
from sarit.index import keys, slate_snapshot
from sarit.index.limits import INDEX_SNAPSHOT_SECONDS
from sarit.index.port import WriteBatch
from sarit.index.record_seals import unseal
from sarit.index.slate import SlateIndex, open_in_memory
from sarit.index.slate_snapshot import SlateSnapshot, take_snapshot
from sarit.index.sqlite import SqliteIndexProvider
from sarit.ops.backup.indexes import SlateIndexes
from tests.unit.log.world import simulate


async def checkpoints_of(provider, container):
    return await slatedb.AdminBuilder(provider.path_of(container), provider.objects).build().list_checkpoints(None)


@pytest.fixture
def opened():
    """Run `work(provider)` with an index that has a record."""

    def run(work):
        async def main():
            provider = open_in_memory()
            index = await provider.open(0)
            await index.commit(WriteBatch({b"a": b"1"}))
            await work(provider)
            await index.close()

        asyncio.run(main())

    return run


def test_snapshot_shows_one_moment_and_its_copy_is_the_index_of_a_node(tmp_path):
    class Bar:
        def begin(self, label, length): ...

        def add(self, length): ...

    async def main():
        provider = open_in_memory()
        index = await provider.open(3)
        frame = keys.meta_key("frame")
        # Three keys of which each is followed by the next one possible: pages end within such three.
        written = {b"e%05d" % (at // 3) + bytes(at % 3): b"%d" % at for at in range(6000)}
        written[frame] = keys.attribute_value(7)
        await index.commit(WriteBatch(written))
        await index.commit(WriteBatch(range_deletes=[(b"e00000", b"e00500")]))
        worker = RealThreads().worker("copy")
        indexes = SlateIndexes(real_env(), worker, provider)
        with pytest.raises(Unavailable, match="shows frame 7, not 8"):
            await indexes.snapshot(3, 8)
        snapshot = await indexes.snapshot(3, 7)
        await index.commit(WriteBatch({b"e01000": b"later", b"f": b"later"}))
        await snapshot.copy(f"{tmp_path}/container-3.db", Bar())
        await index.commit(WriteBatch({b"g": b"later"}))
        assert not await checkpoints_of(provider, 3)
        await index.close()
        copied = await SqliteIndexProvider(real_env(), str(tmp_path)).open(3)
        rows = await copied.scan(b"", b"\xff", 10_000)
        assert dict(rows) == {key: value for key, value in written.items() if key == frame or key >= b"e00500"}
        await copied.close()
        await worker.close()

    asyncio.run(main())


def test_snapshot_does_not_follow_the_owner(opened, monkeypatch):
    """A reader beside it that polls as often, and follows, says when a poll has been made."""

    make = slatedb.DbReaderBuilder

    def polling(path, objects):
        builder = make(path, objects)
        builder.with_options(
            slatedb.ReaderOptions(
                manifest_poll_interval_ms=10, checkpoint_lifetime_ms=60_000, max_memtable_bytes=1 << 20,
                skip_wal_replay=True,
            )
        )  # fmt: skip
        return builder

    async def work(provider):
        monkeypatch.setattr(slatedb, "DbReaderBuilder", polling)
        follower = await slatedb.DbReaderBuilder(provider.path_of(0), provider.objects).build()
        snapshot = await take_snapshot(provider, 0)
        owner = await provider.open(0)
        await owner.commit(WriteBatch({b"a": b"2"}))
        async with asyncio.timeout(30):
            while unseal(b"a", await follower.get(b"ka")) != b"2":
                await asyncio.sleep(0)
        assert await snapshot.scan(b"", b"z", 9) == [(b"a", b"1")]
        await snapshot.close()
        await follower.shutdown()
        await owner.close()

    opened(work)


class BrokenReader:
    """A reader that cannot be ended."""

    async def shutdown(self):
        raise slatedb.Error.Unavailable("no answer")


def test_snapshot_whose_reader_cannot_be_ended_deletes_its_checkpoint(opened):
    async def work(provider):
        snapshot = await take_snapshot(provider, 0)
        assert len(await checkpoints_of(provider, 0)) == 1
        snapshot._index._database = BrokenReader()
        await snapshot.close()
        assert not await checkpoints_of(provider, 0)

    opened(work)


def test_snapshot_whose_reader_cannot_be_made_deletes_its_checkpoint(opened, monkeypatch):
    class Builder:
        def __init__(self, path, objects): ...

        def with_reader_mode(self, mode): ...

        async def build(self):
            raise slatedb.Error.Unavailable("no answer")

    async def work(provider):
        monkeypatch.setattr(slatedb, "DbReaderBuilder", Builder)
        with pytest.raises(Unavailable, match="container-0: no answer"):
            await take_snapshot(provider, 0)
        assert not await checkpoints_of(provider, 0)

    opened(work)


def test_snapshot_that_cannot_be_read_deletes_its_checkpoint(opened, monkeypatch):
    async def load(index):
        raise Unavailable("no answer")

    async def work(provider):
        monkeypatch.setattr(SlateIndex, "load", load)
        with pytest.raises(Unavailable):
            await take_snapshot(provider, 0)
        assert not await checkpoints_of(provider, 0)

    opened(work)


def test_snapshot_that_is_read_puts_the_end_of_its_checkpoint_off(opened, monkeypatch):
    monkeypatch.setattr(slate_snapshot, "INDEX_SNAPSHOT_RENEWAL_SECONDS", 0.001)

    async def work(provider):
        monkeypatch.setattr(slate_snapshot, "INDEX_SNAPSHOT_SECONDS", 100)
        snapshot = await take_snapshot(provider, 0)
        (made,) = await checkpoints_of(provider, 0)
        monkeypatch.setattr(slate_snapshot, "INDEX_SNAPSHOT_SECONDS", 5000)
        async with asyncio.timeout(30):
            while (await checkpoints_of(provider, 0))[0].expire_time_secs < made.expire_time_secs + 1000:
                assert await snapshot.scan(b"", b"z", 9) == [(b"a", b"1")]
        await snapshot.close()
        assert not await checkpoints_of(provider, 0)

    opened(work)


class ExpiringStore:
    """The administration of a database whose checkpoints end by themselves, and its reader."""

    def __init__(self):
        self.ends = {}
        self.away = False
        self.refreshed = 0

    async def create_detached_checkpoint(self, options):
        self.ends["c"] = asyncio.get_running_loop().time() + options.lifetime_ms / 1000
        return slatedb.CheckpointCreateResult(id="c", manifest_id=1)

    async def refresh_checkpoint(self, number, lifetime_ms):
        self.read()
        if self.away:
            raise slatedb.Error.Unavailable("no answer")
        self.ends[number] = asyncio.get_running_loop().time() + lifetime_ms / 1000
        self.refreshed += 1

    async def delete_checkpoint(self, number):
        del self.ends[number]

    def read(self):
        assert self.ends["c"] > asyncio.get_running_loop().time(), "the checkpoint has ended"

    async def shutdown(self): ...


def test_snapshot_lasts_for_two_days_and_over_an_outage():
    async def main():
        store = ExpiringStore()
        checkpoint = await slate_snapshot._Checkpoint.make(store, "x")
        snapshot = SlateSnapshot(checkpoint, SlateIndex(store, "x"))
        for minute in range(48 * 60):
            store.away = minute % 120 < 50
            await asyncio.sleep(60)
            store.read()
        await snapshot.close()
        await snapshot.close()
        assert not store.ends
        refreshed = store.refreshed
        await asyncio.sleep(2 * INDEX_SNAPSHOT_SECONDS)
        assert store.refreshed == refreshed > 100, "nobody renews what is closed"

    simulate(main)
