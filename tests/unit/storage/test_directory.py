"""Chunks in a directory: failing disks, shared directories, the order of syncs."""

import asyncio
import errno
import os
import threading
from dataclasses import replace

import pytest

from sarit.core.errors import Exists, NotFound, Unavailable
from sarit.core.limits import MIB
from sarit.env.real import real_env
from sarit.storage import directory
from sarit.storage.chunk_file import Pieces
from sarit.storage.directory import CHUNK_PIECE_BYTES, open_directory


class RecordingFile:
    """A real file that records its calls and fails on request."""

    def __init__(self, disk, path, file):
        self._disk, self._path, self._file = disk, path, file
        self.failed = False

    def __getattr__(self, name):
        def call(*args):
            assert not (self.failed and name != "close"), f"{name} on a descriptor that failed"
            try:
                self._disk.note(name, self._path)
            except OSError:
                self.failed = True
                raise
            if name == "close":
                self._disk.open_files -= 1
            return getattr(self._file, name)(*args)

        return call


class RecordingDisk:
    """Real files; `fail` maps a call's name to the error it raises next time."""

    def __init__(self):
        self._files = real_env().files
        self.calls: list[tuple[str, str]] = []
        self.fail: dict[str, int] = {}
        self.open_files = 0

    def note(self, name, path):
        self.calls.append((name, os.path.basename(path)))
        if name in self.fail:
            number = self.fail.pop(name)
            raise OSError(number, os.strerror(number))

    def open(self, path, mode):
        self.note(f"open-{mode}", path)
        file = RecordingFile(self, path, self._files.open(path, mode))
        self.open_files += 1
        return file

    def __getattr__(self, name):
        def call(*args):
            if name not in ("exists", "list"):
                self.note(name, args[-1])
            return getattr(self._files, name)(*args)

        return call


@pytest.fixture
def disk():
    return RecordingDisk()


@pytest.fixture
def env(disk):
    return replace(real_env(), files=disk)


def left_over(root) -> list[str]:
    return [name for name in os.listdir(root / ".incoming") if not name.endswith(".lock")]


def test_write_syncs_content_before_name_and_name_before_return(tmp_path, disk, env):
    async def main():
        chunks = await open_directory(str(tmp_path), env)
        await chunks.write("e1/warm", [b"x"])
        disk.calls.clear()
        await chunks.write("e1/a", [bytes(CHUNK_PIECE_BYTES + CHUNK_PIECE_BYTES // 2), bytes(CHUNK_PIECE_BYTES)])
        names = [name for name, _ in disk.calls]
        synced = ["pwrite", "datasync", "forget"] * 3
        assert names == ["open-create", "close", "open-blocks", *synced, "close", "make_dirs", "rename_new", "sync_dir"]
        assert disk.calls[-2:] == [("rename_new", "a.chunk"), ("sync_dir", "e1")]
        await chunks.write("e1/empty", [])
        assert ("datasync", disk.calls[-5][1]) in disk.calls[-6:], "an empty chunk is synced too"
        await chunks.close()
        assert disk.open_files == 0

    asyncio.run(main())


def test_chunk_of_one_piece_takes_one_thread_call(tmp_path, disk, env, monkeypatch):
    async def main():
        chunks = await open_directory(str(tmp_path), env)
        await chunks.write("e1/warm", [b"x"])
        calls = []
        real = directory._Thread.run
        monkeypatch.setattr(directory._Thread, "run", lambda thread, call: (calls.append(call), real(thread, call))[1])
        disk.calls.clear()
        await chunks.write("e1/a", [bytes(CHUNK_PIECE_BYTES // 2), bytes(CHUNK_PIECE_BYTES // 2)])
        assert len(calls) == 1
        names = [name for name, _ in disk.calls]
        written = ["pwrite", "datasync", "forget", "close", "make_dirs", "rename_new", "sync_dir"]
        assert names == ["open-create", "close", "open-blocks", *written]
        monkeypatch.undo()
        await chunks.close()

    asyncio.run(main())


def test_concurrent_write_by_two_processes_fails_for_one(tmp_path):
    async def main():
        one, other = [await open_directory(str(tmp_path), real_env()) for _ in range(2)]

        async def others_turn(left):
            await other.write("e1/a", [b"theirs"])
            return left

        with pytest.raises(Exists):
            await one.write("e1/a", [b"ours!!"], others_turn)
        assert bytes(await one.read("e1/a", 0, 6)) == b"theirs"
        await one.write("e1/b", [b"free"])
        assert left_over(tmp_path) == []
        await one.close()
        await other.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "step", ["open-create", "open-blocks", "pwrite", "datasync", "close", "make_dirs", "rename_new", "sync_dir"]
)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_failed_write_is_unavailable_and_leaves_no_file(tmp_path, disk, env, step, error):
    async def main():
        chunks = await open_directory(str(tmp_path), env, writers=1)
        disk.fail[step] = error
        with pytest.raises(Unavailable, match=os.strerror(error)):
            await chunks.write("e1/a", [bytes(2 * MIB)])
        assert not disk.fail, "the step was reached"
        assert left_over(tmp_path) == []
        if step != "sync_dir":  # then the file has its name: the outcome is unknown
            with pytest.raises(NotFound):
                await chunks.read("e1/a", 0, 1)
        await chunks.write("e1/b", [b"next"])
        assert await chunks.read("e1/b", 0, 4) == b"next"
        await chunks.close()

    asyncio.run(main())


def test_failed_read_reopens_the_file(tmp_path, disk, env):
    async def main():
        chunks = await open_directory(str(tmp_path), env, readers=1)
        await chunks.write("a", [b"data"])
        assert await chunks.read("a", 0, 4) == b"data"
        disk.fail["scan"] = errno.EIO
        with pytest.raises(Unavailable):
            await chunks.read("a", 0, 4)
        assert await chunks.read("a", 0, 4) == b"data"
        assert [name for name, _ in disk.calls].count("open-scan") == 2
        await chunks.close()
        assert disk.open_files == 0

    asyncio.run(main())


def test_open_files_are_cached_up_to_bound(tmp_path, disk, env):
    async def main():
        chunks = await open_directory(str(tmp_path), env, readers=1, open_files=2)
        base = disk.open_files
        for name in "abc":
            await chunks.write(name, [name.encode()])
        for name in "aabbcca":
            assert await chunks.read(name, 0, 1) == name.encode()
            assert disk.open_files <= base + 2
        opened = [path for name, path in disk.calls if name == "open-scan"]
        assert opened == ["a.chunk", "b.chunk", "c.chunk", "a.chunk"]
        await chunks.delete("a")
        assert disk.open_files == base + 1, "no reader holds a deleted chunk open"
        await chunks.close()

    asyncio.run(main())


def test_read_does_not_wait_for_write(tmp_path, disk, env):
    async def main():
        chunks = await open_directory(str(tmp_path), env)
        await chunks.write("a", [b"data"])
        writing = asyncio.ensure_future(chunks.write("large", [bytes(16 * MIB)]))
        await asyncio.sleep(0)
        assert await chunks.read("a", 0, 4) == b"data"
        assert not writing.done()
        with pytest.raises(Exists):
            await chunks.write("large", [b"the same name again"])
        await writing
        await chunks.close()

    asyncio.run(main())


def test_unmounted_directory_is_unavailable(tmp_path, env):
    async def main():
        root = tmp_path / "root"
        chunks = await open_directory(str(root), env)
        await chunks.write("e1/a", [b"data"])
        root.rename(tmp_path / "elsewhere")
        root.mkdir()
        for call in (chunks.read("e1/b", 0, 1), chunks.delete("e1/b"), chunks.write("e1/b", [b"x"])):
            with pytest.raises(Unavailable):
                await call
        with pytest.raises(Unavailable):
            _ = [entry async for entry in chunks.list("e1")]
        assert os.listdir(root) == []
        root.rmdir()
        (tmp_path / "elsewhere").rename(root)
        assert await chunks.read("e1/a", 0, 4) == b"data"
        await chunks.close()

    asyncio.run(main())


@pytest.mark.parametrize("turns", range(0, 12))
def test_cancelled_write_is_atomic_and_frees_its_name(tmp_path, env, turns):
    async def main():
        chunks = await open_directory(str(tmp_path), env)
        writing = asyncio.ensure_future(chunks.write("a", [bytes(2 * CHUNK_PIECE_BYTES)]))
        for _ in range(turns):
            await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await chunks.close()
        written = tmp_path / "a.chunk"
        assert not written.exists() or written.stat().st_size == 2 * CHUNK_PIECE_BYTES
        assert left_over(tmp_path) == []
        assert not chunks._being_written

    asyncio.run(main())


def test_small_chunk_cancelled_in_queue_is_not_written(tmp_path, env):
    async def main():
        chunks = await open_directory(str(tmp_path), env, writers=1)
        first = asyncio.ensure_future(chunks.write("a", [bytes(2 * CHUNK_PIECE_BYTES)]))
        await asyncio.sleep(0)
        held = threading.Event()
        chunks._writers[0].run(held.wait)
        second = asyncio.ensure_future(chunks.write("b", [b"x"]))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        held.set()
        await first
        await chunks.close()
        assert not (tmp_path / "b.chunk").exists()
        assert left_over(tmp_path) == []

    asyncio.run(main())


def test_limiter_decides_time_and_size_of_pieces(tmp_path, disk, env):
    async def main():
        chunks = await open_directory(str(tmp_path), env)
        asked = []

        async def limiter(left):
            asked.append((left, sum(name == "datasync" for name, _ in disk.calls)))
            return 4096

        disk.calls.clear()
        await chunks.write("a", [bytes(3000), bytes(5192), b"rest"], limiter)
        assert asked == [(8196, 0), (4100, 1), (4, 2)]
        assert await chunks.read("a", 8190, 6) == b"\0\0rest"
        await chunks.close()

    asyncio.run(main())


def test_sweep_removes_files_of_dead_claims_only(tmp_path, env):
    async def main():
        one = await open_directory(str(tmp_path), env)
        living = one._claim.next_path()
        incoming = tmp_path / ".incoming"
        (incoming / os.path.basename(living)).write_bytes(b"being written")
        for name in ("dead.lock", "dead-1", "dead-2", "lost-1"):
            (incoming / name).write_bytes(b"left")
        other = await open_directory(str(tmp_path), env)
        assert left_over(tmp_path) == [os.path.basename(living)]
        assert len(os.listdir(incoming)) == 3, "two locks, one unfinished chunk"
        await one.close()
        await other.close()
        last = await open_directory(str(tmp_path), env)
        assert left_over(tmp_path) == []
        await last.close()
        assert os.listdir(incoming) == []

    asyncio.run(main())


def test_foreign_files_are_not_listed(tmp_path, env):
    async def main():
        chunks = await open_directory(str(tmp_path), env)
        await chunks.write("e1/a", [b"data"])
        (tmp_path / "e1" / "README").write_text("not ours")
        (tmp_path / ".hidden").mkdir()
        assert [entry async for entry in chunks.list("")] == [("e1/a", 4)]
        await chunks.close()

    asyncio.run(main())


def test_a_directory_that_cannot_be_made_is_unavailable(tmp_path, env):
    async def main():
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(Unavailable, match="chunk directory"):
            await open_directory(str(tmp_path / "file" / "chunks"), env)

    asyncio.run(main())


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_pieces_are_cut_without_loss(limit):
    parts = [b"", b"a", bytearray(b"bcdefgh"), b"", memoryview(b"ij"), b"k" * 20, b""]
    pieces = Pieces(parts)
    groups = []
    while pieces.left:
        groups.append(b"".join(pieces.take(limit)))
    assert b"".join(groups) == b"".join(parts)
    assert all(len(group) == limit for group in groups[:-1])
    assert 0 < len(groups[-1]) <= limit
    assert pieces.take(limit) == []


def test_the_constants_are_sane():
    assert directory.WRITERS >= 1
    assert directory.READERS >= 2
