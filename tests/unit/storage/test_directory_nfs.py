"""Chunks in a directory on NFS: descriptors that become stale, replies that are lost, errors that come with the sync.

No NFS server runs here.  A shim over real files gives the errors that a mount gives.
"""

import asyncio
import errno
import os
import threading
from dataclasses import replace

import pytest

from sarit.core.errors import Exists, NotFound, Unavailable
from sarit.env.real import real_env
from sarit.storage.directory import open_directory
from tests.limits import HANG_SECONDS


class MountedFile:
    """A file of the mount; `stale` as soon as the server does not know its handle any more."""

    def __init__(self, mount, file):
        self._mount, self._file, self._server = mount, file, mount.server

    def __getattr__(self, name):
        def call(*arguments):
            if name != "close" and self._server != self._mount.server:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            self._mount.meet(name)
            return getattr(self._file, name)(*arguments)

        return call


class Mount:
    """Real files through a mount.  `errors`: of the next call of a name; `after`: it took effect all the same."""

    def __init__(self):
        self._files = real_env().files
        self.server = 1
        self.errors: dict[str, int] = {}
        self.after = False
        self.answers = threading.Event()
        self.answers.set()

    def meet(self, name):
        self.answers.wait(HANG_SECONDS)
        if not self.after and name in self.errors:
            raise OSError(number := self.errors.pop(name), os.strerror(number))

    def open(self, path, mode):
        self.meet("open")
        return MountedFile(self, self._files.open(path, mode))

    def __getattr__(self, name):
        def call(*arguments):
            self.meet(name)
            done = getattr(self._files, name)(*arguments)
            if name in self.errors:
                raise OSError(number := self.errors.pop(name), os.strerror(number))
            return done

        return call


def on_mount(tmp_path, body):
    async def main():
        mount = Mount()
        chunks = await open_directory(str(tmp_path), replace(real_env(), files=mount), readers=1)
        try:
            await body(mount, chunks)
        finally:
            mount.answers.set()
            await chunks.close()

    asyncio.run(main())


def test_chunk_is_read_through_a_new_descriptor_after_the_server_was_replaced(tmp_path):
    async def body(mount, chunks):
        await chunks.write("c0/a", [b"abcdef"])
        assert await chunks.read("c0/a", 1, 2) == b"bc"
        mount.server = 2
        assert await chunks.read("c0/a", 2, 2) == b"cd"

    on_mount(tmp_path, body)


def test_stale_descriptor_of_a_chunk_that_another_machine_deleted_is_a_missing_chunk(tmp_path):
    async def body(mount, chunks):
        await chunks.write("c0/a", [b"abcdef"])
        assert await chunks.read("c0/a", 1, 2) == b"bc"
        os.unlink(tmp_path / "c0" / "a.chunk")
        mount.server = 2
        with pytest.raises(NotFound):
            await chunks.read("c0/a", 2, 2)

    on_mount(tmp_path, body)


@pytest.mark.parametrize("number", [errno.EIO, errno.EDQUOT, errno.ESTALE])
@pytest.mark.parametrize("call", ["datasync", "sync_dir", "rename_new", "make_dirs"])
def test_error_of_the_server_is_an_unknown_outcome_and_another_name_works(tmp_path, call, number):
    async def body(mount, chunks):
        mount.errors[call] = number
        with pytest.raises(Unavailable, match=os.strerror(number)):
            await chunks.write("c0/a", [b"abc"])
        await chunks.write("c0/b", [b"abc"])
        assert await chunks.read("c0/b", 0, 3) == b"abc"
        assert [entry for entry in os.listdir(tmp_path / ".incoming") if not entry.endswith(".lock")] == []

    on_mount(tmp_path, body)


def test_rename_whose_reply_was_lost_ends_as_exists_and_the_chunk_is_whole(tmp_path):
    """The client of NFS sends the link again, and finds its own."""

    async def body(mount, chunks):
        mount.after = True
        mount.errors["rename_new"] = errno.EEXIST
        with pytest.raises(Exists):
            await chunks.write("c0/a", [b"abc"])
        assert await chunks.read("c0/a", 0, 3) == b"abc"

    on_mount(tmp_path, body)


def test_mount_that_hangs_delays_nothing_but_its_own_calls(tmp_path):
    async def body(mount, chunks):
        await chunks.write("c0/a", [b"abc"])
        mount.answers.clear()
        calls = [asyncio.ensure_future(chunks.read("c0/a", 0, 3)) for _ in range(3)]
        calls.append(asyncio.ensure_future(chunks.write("c0/b", [b"abc"])))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not any(call.done() for call in calls)
        mount.answers.set()
        assert await asyncio.gather(*calls) == [b"abc", b"abc", b"abc", None]

    on_mount(tmp_path, body)
