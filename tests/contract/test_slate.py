"""What is special about the index on an object store: its errors, its limits, two owners at the same time."""

import asyncio
import gc
import time

import pytest
import slatedb.uniffi as slatedb

from sarit.core.errors import Corrupt, Fenced, Unavailable
from sarit.index import slate
from sarit.index.port import WriteBatch
from sarit.index.slate import SlateIndexProvider, map_error, open_in_memory, open_on_s3
from sarit.storage.open import s3_config
from tests.contract.s3 import s3_server


def puts(**values: bytes) -> WriteBatch:
    return WriteBatch({key.encode(): value for key, value in values.items()})


class Failing:
    """A database whose next flush fails, before it does anything or after it is done."""

    def __init__(self, database, error, *, after):
        self.database, self.error, self.after = database, error, after

    async def flush_with_options(self, options):
        if self.after:
            await self.database.flush_with_options(options)
        raise self.error

    def __getattr__(self, name):
        return getattr(self.database, name)


class Closing:
    """A database whose store does not answer the requests of its end."""

    def __init__(self, database):
        self.database = database
        self.answered = asyncio.Event()

    async def shutdown_with_options(self, options):
        await self.answered.wait()
        await self.database.shutdown_with_options(options)

    def __getattr__(self, name):
        return getattr(self.database, name)


def test_container_that_moves_does_not_wait_for_the_requests_of_a_close():
    """They took a fifth of the time in which its writers waited, or five seconds while the store was away."""

    async def main():
        provider = open_in_memory()
        index = await provider.open(0)
        await index.commit(puts(a=b"1"))
        index._database = closing = Closing(index._database)
        await index.close()
        assert provider._closing, "it has waited"
        with pytest.raises(Unavailable, match="is closed"):
            await index.get([b"a"])
        again = await provider.open(0)  # fences what is left
        closing.answered.set()
        await asyncio.gather(*provider._closing)
        await again.commit(puts(b=b"2"))
        assert await again.get([b"a", b"b"]) == [b"1", b"2"]
        await again.close()

    asyncio.run(main())


def test_two_owners_on_one_server_the_later_one_wins(s3, tmp_path):
    async def main():
        first, second = (open_on_s3(s3.bucket, f"slate/{tmp_path.name}", s3_config(s3.environ)) for _ in range(2))
        old = await first.open(0)
        await old.commit(puts(a=b"1"))
        new = await second.open(0)
        outcomes = await asyncio.gather(old.commit(puts(a=b"zombie")), new.commit(puts(b=b"2")), return_exceptions=True)
        assert isinstance(outcomes[0], Fenced)
        assert outcomes[1] is None
        await old.close()
        assert await new.get([b"a", b"b"]) == [b"1", b"2"]
        await new.close()
        again = await first.open(0)
        assert await again.scan(b"", b"z", 10) == [(b"a", b"1"), (b"b", b"2")]
        await again.close()

    asyncio.run(main())


@pytest.mark.parametrize("error", [slatedb.Error.Unavailable("no answer"), slatedb.InternalError("a panic")])
@pytest.mark.parametrize("after", [False, True])
def test_after_a_commit_of_unknown_outcome_the_handle_is_dead_and_a_new_one_reads(after, error):
    async def main():
        provider = open_in_memory()
        index = await provider.open(0)
        await index.commit(puts(a=b"old"))
        index._database = Failing(index._database, error, after=after)
        with pytest.raises(Unavailable):
            await index.commit(puts(a=b"new", b=b"new"))
        for call in (index.get([b"a"]), index.scan(b"", b"z", 9), index.commit(puts(c=b"late"))):
            with pytest.raises(Unavailable, match="dead after a failed commit"):
                await call
        await index.close()
        again = await provider.open(0)
        found = await again.get([b"a", b"b", b"c"])
        assert found == ([b"new", b"new", None] if after else [b"old", None, None]), "all of the batch, or nothing"
        await again.close()

    asyncio.run(main())


def test_a_cancelled_commit_goes_on_and_the_next_follows_it():
    async def main():
        index = await open_in_memory().open(0)
        first = asyncio.ensure_future(index.commit(WriteBatch({b"%05d" % at: b"1" for at in range(1000)})))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.cancel()
        await index.commit(puts(z=b"2"))
        assert len(await index.scan(b"", b"zz", 2000)) == 1001
        await index.close()

    asyncio.run(main())


def test_a_cancelled_commit_that_fails_reports_no_lost_exception():
    reported = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        index = await open_in_memory().open(0)
        index._database = Failing(index._database, slatedb.Error.Unavailable("no answer"), after=False)
        first = asyncio.ensure_future(index.commit(puts(a=b"1")))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        with pytest.raises(Unavailable, match="dead after a failed commit"):
            await index.commit(puts(b=b"2"))
        await index.close()
        del first
        gc.collect()

    asyncio.run(main())
    assert reported == []


class Counting:
    """A database that notes how many turns of the event loop there were before the write."""

    def __init__(self, database):
        self.database, self.turns, self.before_write = database, 0, 0

    async def write(self, changes):
        self.before_write = self.turns
        return await self.database.write(changes)

    def __getattr__(self, name):
        return getattr(self.database, name)


def test_a_large_commit_gives_turns_to_others():
    async def main():
        index = await open_in_memory().open(0)
        counting = index._database = Counting(index._database)
        writing = asyncio.ensure_future(index.commit(WriteBatch({b"%05d" % at: b"1" for at in range(2000)})))
        while not writing.done():
            counting.turns += 1
            await asyncio.sleep(0)
        assert counting.before_write >= 2000 // slate.ROWS_PER_TURN
        await index.close()

    asyncio.run(main())


def test_a_store_that_is_away_is_unavailable_within_the_time_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(slate, "INDEX_REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(slate, "INDEX_CLOSE_SECONDS", 0.3)

    async def main():
        with s3_server(tmp_path) as server:
            provider = open_on_s3(server.bucket, "", s3_config(server.environ))
            monkeypatch.setattr(slate, "INDEX_REQUEST_SECONDS", 60)
            index = await provider.open(0)
            await index.commit(puts(a=b"1"))
            monkeypatch.setattr(slate, "INDEX_REQUEST_SECONDS", 0.3)
        for call in (provider.open(1), index.commit(puts(a=b"2"))):
            with pytest.raises(Unavailable):
                await call
        before = time.monotonic()
        await index.close()
        assert time.monotonic() - before < 30, "closing waits for the store no longer than its limit"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (slatedb.Error.Closed(slatedb.CloseReason.FENCED, "newer"), Fenced),
        (slatedb.Error.Closed(slatedb.CloseReason.PANIC, "panic"), Unavailable),
        (slatedb.Error.Unavailable("no server"), Unavailable),
        (slatedb.Error.Invalid("invalid clock tick"), Unavailable),
        (slatedb.Error.Data("invalid clock tick, last=2 next=1"), Unavailable),
        (slatedb.Error.Internal("anything"), Unavailable),
        (slatedb.Error.Transaction("conflict"), Unavailable),
        (slatedb.InternalError("a panic"), Unavailable),
        (slatedb.Error.Data("checksum mismatch"), Corrupt),
    ],
)
def test_errors_of_the_library_are_those_of_the_port(error, kind):
    # The name of the place says nothing about the error.
    mapped = map_error(error, "commit to s3://clocks")
    assert type(mapped) is kind
    assert str(mapped).startswith("commit to s3://clocks")


@pytest.mark.long
def test_p99_of_1000_commits_is_below_half_a_second(s3, tmp_path):
    async def main():
        provider = open_on_s3(s3.bucket, f"slate/{tmp_path.name}", s3_config(s3.environ))
        index = await provider.open(0)
        took = []
        for number in range(1000):
            began = time.perf_counter()
            await index.commit(WriteBatch({b"%04d" % (number * at % 5000): b"x" * 60 for at in range(20)}))
            took.append(time.perf_counter() - began)
        await index.close()
        took.sort()
        print(f"commits: p50 {took[500] * 1000:.0f} ms, p99 {took[990] * 1000:.0f} ms, max {took[-1] * 1000:.0f} ms")
        assert took[990] < 0.5

    asyncio.run(main())


def test_the_provider_names_its_place():
    assert repr(open_in_memory()) == "<SlateIndexProvider memory://>"
    assert isinstance(open_in_memory(), SlateIndexProvider)


SWEPT = (b"d", b"m")


async def swept_index(provider, monkeypatch):
    """An index with keys a to z, of which d to l are deleted as one range, three in each commit."""
    monkeypatch.setattr(slate, "SWEPT_ROWS", 3)
    index = await provider.open(0)
    await index.commit(WriteBatch({bytes([at]): b"1" for at in range(ord("a"), ord("z") + 1)}))
    await index.commit(WriteBatch(range_deletes=[SWEPT]))
    return index


async def stored(index):
    return b"".join(key for key, _ in await index._scan_one(b"k", b"", b"\xff", 99))


def test_a_range_that_is_not_swept_yet_is_empty_for_every_read(monkeypatch):
    async def main():
        index = await swept_index(open_in_memory(), monkeypatch)
        assert await stored(index) == b"abcghijklmnopqrstuvwxyz"
        assert await index.get([b"c", b"d", b"l", b"m"]) == [b"1", None, None, b"1"]
        assert [key for key, _ in await index.scan(b"b", b"o", 3)] == [b"b", b"c", b"m"]
        assert [key for key, _ in await index.scan(b"b", b"o", 3, reverse=True)] == [b"n", b"m", b"c"]
        assert [key for key, _ in await index.scan_sizes(b"e", b"n", 9)] == [b"m"]
        assert await index.scan(b"e", b"f", 9) == []
        await index.close()

    asyncio.run(main())


def test_a_sweep_goes_on_after_a_restart_and_ends(monkeypatch):
    async def main():
        provider = open_in_memory()
        index = await swept_index(provider, monkeypatch)
        await index.close()
        index = await provider.open(0)
        assert await index.get([b"h"]) == [None]
        for left in (b"abcjklmnopqrstuvwxyz", b"abcmnopqrstuvwxyz", b"abcmnopqrstuvwxyz"):
            await index.commit(WriteBatch({b"z": b"2"}))
            assert await stored(index) == left
        assert not index._sweeps.ranges
        assert not await index._scan_one(b"x", b"", b"\xff" * 5, 9)
        await index.close()

    asyncio.run(main())


def test_a_key_that_is_put_in_a_swept_range_is_seen_and_no_other(monkeypatch):
    async def main():
        provider = open_in_memory()
        index = await swept_index(provider, monkeypatch)
        await index.commit(WriteBatch({b"h": b"new"}))
        for _ in range(2):
            assert await index.scan(b"c", b"n", 9) == [(b"c", b"1"), (b"h", b"new"), (b"m", b"1")]
            await index.close()
            index = await provider.open(0)
        await index.close()

    asyncio.run(main())


def test_ranges_that_overlap_a_swept_one(monkeypatch):
    async def main():
        index = await swept_index(open_in_memory(), monkeypatch)
        await index.commit(WriteBatch({b"b": b"new"}, range_deletes=[(b"a", b"g"), (b"f", b"t")]))
        for _ in range(9):
            assert await index.scan(b"", b"\xff", 99) == [
                (b"b", b"new"),
                *((key, b"1") for key in index_keys("tuvwxyz")),
            ]
            await index.commit(WriteBatch({b"b": b"new"}))
        assert await stored(index) == b"btuvwxyz"
        await index.close()

    asyncio.run(main())


def index_keys(text):
    return [letter.encode() for letter in text]
