"""The warm copies of shards: what is copied when, what makes room, and what is refused."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest
from crc32c import crc32c

from sarit.core.cuts import StreamCut
from sarit.core.errors import Corrupt, Invalid, NotFound, Unavailable
from sarit.core.names import SegmentId, StreamName
from sarit.env.real import real_env
from sarit.search.documents import Document, Place
from sarit.search.limits import SEARCH_THREADS
from sarit.search.mapping import Mapping
from sarit.search.memory_shards import MemoryShards
from sarit.search.memory_world import MemoryBlobs
from sarit.search.ports import Indexed, ShardQuestion
from sarit.search.query import ALL_TEXT, Everything, Prefix, Term
from sarit.search.searcher import SearchBounds, Searcher
from sarit.search.state import Shard, StoredFile
from sarit.search.tantivy_shards import TantivyShards
from tests.limits import HANG_SECONDS

CUT = StreamCut(StreamName("app", "s"), {SegmentId(0, 0): 1})
ALL = ShardQuestion(Everything(), -(1 << 63), 1 << 63, limit=1000)


class Stored:
    """A shard that grows, stored in blobs as an indexer stores it."""

    def __init__(self, engine, blobs, path, name="a"):
        self.engine, self.blobs, self.name = engine, blobs, name
        self.writer = engine.create(path / f"writer-{name}", Mapping())
        self.files: dict[str, StoredFile] = {}
        self.events = 0

    async def grow(self, *texts) -> Shard:
        self.writer.add(
            [
                Indexed(Place(0, self.events + at), (self.events + at) << 20, Document({ALL_TEXT: [text.split()]}))
                for at, text in enumerate(texts)
            ]
        )
        self.events += len(texts)
        names, contents = self.writer.commit(frozenset(self.files))
        blob = f"{self.name}-{self.events}"
        for name, content in contents.items():
            at = await self.blobs.append(blob, [bytes(content)])
            self.files[name] = StoredFile(name, blob, at, len(content), crc32c(bytes(content)))
        return Shard(self.name, Mapping(), self.events, 0, self.events, CUT, tuple(self.files[name] for name in names))


class World:
    def __init__(self, path, kind="memory", bounds=None, **env):
        self.path, self.env = path, real_env()
        self.blobs = MemoryBlobs()
        self.engine = MemoryShards(self.env.files) if kind == "memory" else TantivyShards()
        self.made = []
        self.searcher = Searcher(self.make, self.blobs, self.env, path / "cache", bounds)

    def make(self):
        self.made.append(threading.current_thread())
        return self.engine

    def shard(self, name="a"):
        return Stored(self.engine, self.blobs, self.path, name)

    async def count(self, shard, question=ALL):
        return (await self.searcher.search(shard, question)).total


def run(work, *given, **options):
    async def main():
        world = World(*given, **options)
        try:
            async with asyncio.timeout(HANG_SECONDS):
                await work(world)
        finally:
            await world.searcher.close()

    asyncio.run(main())


@pytest.fixture(params=["memory", "tantivy"])
def kind(request):
    return request.param


def test_shard_that_grows_is_copied_by_its_new_files_alone(tmp_path, kind):
    async def work(world):
        stored = world.shard()
        first = await stored.grow("one two", "three")
        assert await world.count(first) == 2
        copied = world.searcher.downloaded
        assert copied == sum(file.length for file in first.files)
        assert await world.count(first, ShardQuestion(Term(ALL_TEXT, "two"), *EVER)) == 1
        assert world.searcher.downloaded == copied, "it is warm"
        second = await stored.grow("four two")
        assert await world.count(second) == 3
        new = {file.name for file in second.files} - {file.name for file in first.files}
        assert world.searcher.downloaded - copied == sum(f.length for f in second.files if f.name in new)
        assert await world.count(second, ShardQuestion(Term(ALL_TEXT, "two"), *EVER)) == 2
        # A search that began before the commit is answered all the same.
        assert await world.count(first) == 2
        assert world.searcher.kept == (1, len(first.files), sum(file.length for file in first.files))
        assert len(world.made) == 1
        assert world.made[0] is not threading.main_thread()

    run(work, tmp_path, kind)


EVER = -(1 << 63), 1 << 63


def test_shards_that_were_not_asked_for_the_longest_are_evicted(tmp_path, kind):
    async def work(world):
        shards = [await world.shard(name).grow(*["word"] * 50) for name in "abc"]
        sizes = [sum(file.length for file in one.files) for one in shards]
        world.searcher._bounds = SearchBounds(sizes[0] + sizes[1] + sizes[2] // 2, 1000, 0)
        for one in shards[:2]:
            assert await world.count(one) == 50
        await world.count(shards[0])  # asked again: `b` is the oldest now
        assert await world.count(shards[2]) == 50
        assert list(world.searcher._copies) == ["a", "c"]
        copied = world.searcher.downloaded
        await world.count(shards[0])
        assert world.searcher.downloaded == copied
        await world.count(shards[1])
        assert world.searcher.downloaded == copied + sizes[1]
        there = {name for name in os.listdir(tmp_path / "cache") if os.listdir(tmp_path / "cache" / name)}
        assert len(there) == 2

    run(work, tmp_path, kind)


def test_shard_that_never_fits_is_refused_by_name(tmp_path):
    async def work(world):
        one = await world.shard().grow("word")
        with pytest.raises(Invalid, match="a server keeps 10 bytes in 5 files"):
            await world.count(one)
        world.searcher._bounds = SearchBounds(1 << 40, 1, 0)
        with pytest.raises(Invalid, match="in 1 files"):
            await world.count(one)
        world.searcher._bounds = SearchBounds(1 << 40, 5, 1 << 60)
        with pytest.raises(Unavailable, match="make room"):
            await world.count(one)
        world.searcher._bounds = SearchBounds(1 << 40, 5, 0)
        assert await world.count(one) == 1

    run(work, tmp_path, bounds=SearchBounds(10, 5, 0))


def test_damaged_file_is_not_opened_and_comes_again(tmp_path, kind):
    async def work(world):
        one = await world.shard().grow("word")
        longest = max(one.files, key=lambda file: file.length)
        name = longest.blob
        good = bytes(world.blobs.blobs[name])
        world.blobs.blobs[name][longest.offset] ^= 1
        with pytest.raises(Corrupt, match="checksum"):
            await world.count(one)
        world.blobs.blobs[name][:] = good
        assert await world.count(one) == 1

    run(work, tmp_path, kind)


def test_shard_whose_files_are_gone_is_not_found(tmp_path):
    async def work(world):
        stored = world.shard()
        one = await stored.grow("word")
        del world.blobs.blobs[one.files[0].blob]
        with pytest.raises(NotFound):
            await world.count(one)
        bad = Shard("b", Mapping(), 1, 0, 0, CUT, (StoredFile("../x", "a-1", 0, 1, 0),))
        other = tmp_path / "cache" / "x"
        other.write_bytes(b"of another copy")
        for _ in range(2):  # what came in part is removed by the next search
            with pytest.raises(Corrupt, match="proper name"):
                await world.count(bad)
        assert other.read_bytes() == b"of another copy"
        other.unlink()

    run(work, tmp_path)


def test_what_a_process_before_left_is_removed(tmp_path):
    left = tmp_path / "cache" / "7"
    left.mkdir(parents=True)
    (left / "rest").write_bytes(b"x")

    async def work(world):
        assert await world.count(await world.shard().grow("word")) == 1
        assert not (left / "rest").exists()

    run(work, tmp_path)
    assert not any(files for _, _, files in os.walk(tmp_path / "cache")), "closed: nothing is left"


def test_searches_of_one_shard_at_once_copy_it_once(tmp_path, kind):
    async def work(world):
        one = await world.shard().grow(*["word"] * 10)
        assert await asyncio.gather(*(world.count(one) for _ in range(20))) == [10] * 20
        assert world.searcher.downloaded == sum(file.length for file in one.files)

    run(work, tmp_path, kind)


def test_search_that_is_given_up_keeps_its_reader_until_its_thread_ends(tmp_path):
    async def work(world):
        one = await world.shard().grow("word")
        await world.count(one)
        opened = world.searcher._copies["a"].opened
        began, go_on, closed = threading.Event(), threading.Event(), []
        real = opened.reader

        class Slow:
            def search(self, question, check):
                began.set()
                go_on.wait(HANG_SECONDS)
                assert not closed
                return real.search(question)

            def close(self):
                closed.append(True)

        opened.reader = Slow()
        task = asyncio.create_task(world.count(one))
        await asyncio.to_thread(began.wait, HANG_SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        world.searcher._copies["a"].close()
        assert not closed
        assert world.searcher._threads.busy == 1
        go_on.set()
        while not closed:
            await asyncio.sleep(0)
        assert world.searcher._threads.busy == 0

    run(work, tmp_path)


def test_searches_that_are_given_up_free_their_threads_after_their_present_piece(tmp_path):
    async def work(world):
        one = await world.shard().grow("word")
        await world.count(one)
        opened = world.searcher._copies["a"].opened
        began, go_on, pieces, real = threading.Semaphore(0), threading.Semaphore(0), [], opened.reader

        class Slow:
            def search(self, question, check):
                for piece in range(1000):
                    pieces.append(piece)
                    began.release()
                    assert go_on.acquire(timeout=HANG_SECONDS)
                    check()
                return real.search(question, check)

            def close(self):
                real.close()

        opened.reader = Slow()
        tasks = [asyncio.create_task(world.count(one)) for _ in range(SEARCH_THREADS)]
        for _ in range(3 * SEARCH_THREADS):  # who waits for them lets them go on
            await asyncio.to_thread(began.acquire, timeout=HANG_SECONDS)
            go_on.release()
        for _ in tasks:
            await asyncio.to_thread(began.acquire, timeout=HANG_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert world.searcher._threads.busy == SEARCH_THREADS
        opened.reader = real
        waiting = asyncio.create_task(world.count(one))
        await asyncio.sleep(0)
        assert not waiting.done()
        go_on.release()
        assert await waiting == 1, "one piece of one search has ended"
        for _ in tasks[1:]:
            go_on.release()
        while world.searcher._threads.busy:
            await asyncio.sleep(0)
        assert len(pieces) == 4 * SEARCH_THREADS, "no search has begun another piece"

    run(work, tmp_path)


def test_reader_that_is_replaced_stays_open_for_all_who_use_it(tmp_path):
    async def work(world):
        stored = world.shard()
        one = await stored.grow("word")
        await world.count(one)
        opened = world.searcher._copies["a"].opened
        turns = [threading.Event() for _ in range(2)]
        began, closed, order, real = threading.Semaphore(0), [], iter(turns), opened.reader

        class Slow:
            def search(self, question, check):
                turn = next(order)
                began.release()
                turn.wait(HANG_SECONDS)
                return real.search(question)

            def close(self):
                closed.append(opened.users)

        opened.reader = Slow()
        tasks = [asyncio.create_task(world.count(one)) for _ in turns]
        for _ in tasks:
            await asyncio.to_thread(began.acquire, timeout=HANG_SECONDS)
        assert await world.count(await stored.grow("more")) == 2
        assert opened.users == 2
        for turn in turns:
            assert not closed
            turn.set()
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            tasks = [task for task in tasks if not task.done()]
        assert closed == [0]

    run(work, tmp_path)


def test_query_that_explodes_is_refused(tmp_path, monkeypatch, kind):
    module = {"memory": "memory_shards", "tantivy": "tantivy_shards"}[kind]
    monkeypatch.setattr(f"sarit.search.{module}.MAX_PREFIX_TERMS", 3)

    async def work(world):
        one = await world.shard().grow(*(f"word{at}" for at in range(5)))
        with pytest.raises(Invalid, match="give more letters"):
            await world.count(one, ShardQuestion(Prefix(ALL_TEXT, "word"), *EVER))

    run(work, tmp_path, kind)


@pytest.mark.parametrize("at", range(12))
def test_search_that_is_cancelled_anywhere_leaves_the_copy_usable(tmp_path, at):
    async def work(world):
        stored = world.shard()
        first = await stored.grow("one")
        await world.count(first)
        second = await stored.grow("two")
        steps = 0

        async def gate(_):
            nonlocal steps
            steps += 1
            if steps == at:
                task.cancel()
            await asyncio.sleep(0)

        world.blobs.gate = gate
        task = asyncio.create_task(world.count(second))
        for _ in range(at):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await world.count(second) == 2
        assert await world.count(first) == 1
        shards, files, held = world.searcher.kept
        there = [os.path.join(place, name) for place, _, names in os.walk(tmp_path / "cache") for name in names]
        assert (shards, files, held) == (1, len(there), sum(map(os.path.getsize, there)))

    run(work, tmp_path)
