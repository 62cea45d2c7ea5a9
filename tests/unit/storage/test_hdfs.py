"""HDFS without HDFS: its errors, its URL, a namenode that is not there."""

import asyncio
import socket
import sys
import threading
from contextlib import nullcontext

import pytest

from sarit.core.errors import Exists, Invalid, NotFound, Unavailable
from sarit.env.real import real_env
from sarit.storage import hdfs
from sarit.storage.hdfs import HdfsChunks, map_error
from sarit.storage.open import open_storage
from tests.limits import HANG_SECONDS


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileExistsError("/a"), Exists),
        (FileNotFoundError("/a"), NotFound),
        (PermissionError("/a"), Unavailable),
        (OSError("Name node is in safe mode"), Unavailable),
        (RuntimeError("anything"), Unavailable),
    ],
)
def test_errors_of_the_client_are_those_of_the_port(error, kind):
    mapped = map_error(error, "read chunk a of hdfs://here/x")
    assert type(mapped) is kind
    assert str(mapped).startswith("read chunk a of hdfs://here/x: ")


@pytest.mark.parametrize("url", ["hdfs:///x", "hdfs://here", "hdfs://here/", "hdfs://here/a b", "hdfs://here/.x"])
def test_url_without_namenode_or_folder_is_refused(url):
    with pytest.raises(Invalid, match="hdfs://NAMENODE:PORT/folder"):
        asyncio.run(open_storage(url, real_env()))


def test_missing_extra_is_a_clear_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(Invalid, match=r"HDFS needs .*sarit\[cluster\]"):
        asyncio.run(open_storage("hdfs://here:8020/x", real_env()))


@pytest.mark.long  # the client tries four times
def test_namenode_that_is_not_there_is_unavailable_within_seconds():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        with pytest.raises(Unavailable, match="Connection refused"):
            asyncio.run(open_storage(f"hdfs://127.0.0.1:{port}/x", real_env()))


class Client:
    """A client whose rename fails as given; it notes what it was asked for."""

    def __init__(self, error):
        self.error, self.calls = error, []

    def create(self, path, options):
        self.calls.append(("create", path))
        return self

    def write(self, data):
        # As a raw file may: not all of it at once.
        self.calls.append(("write", bytes(data[:2])))
        return len(data[:2])

    def hsync(self):
        self.calls.append(("hsync",))

    def close(self):
        self.calls.append(("close",))

    def mkdirs(self, path, create_parent):
        self.calls.append(("mkdirs", path))

    def delete(self, path):
        self.calls.append(("delete", path))
        return True

    def rename(self, source, target, overwrite):
        assert not overwrite
        self.calls.append(("rename", source, target))
        if self.error is not None:
            raise self.error


class PanicException(BaseException):
    """As the bindings raise it: no Exception."""


def written(error, expectation):
    client = Client(error)

    async def main():
        chunks = HdfsChunks(client, "/root", "hdfs://here/root", real_env())
        with expectation:
            await chunks.write("c0/a", [b"abc", b"de"])
        await chunks.close()

    asyncio.run(main())
    return client.calls


def test_chunk_is_synced_before_it_has_its_name():
    calls = written(None, nullcontext())
    assert [call[0] for call in calls] == ["create", "write", "write", "write", "hsync", "close", "mkdirs", "rename"]
    assert b"".join(call[1] for call in calls if call[0] == "write") == b"abcde"
    assert calls[-1][2] == "/root/c0/a.chunk"


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (FileExistsError("x"), Exists),
        (FileNotFoundError("x"), Unavailable),
        (OSError("gone"), Unavailable),
        (PanicException("x"), Unavailable),
    ],
)
def test_failed_write_removes_its_file(error, raised):
    calls = written(error, pytest.raises(raised))
    assert calls[-1] == ("delete", calls[0][1])


class Hanging:
    """A client whose listings wait for an event."""

    def __init__(self):
        self.goes_on, self.listed = threading.Event(), 0

    def list_status(self, path, recursive):
        self.goes_on.wait()
        self.listed += 1
        return []


async def listing(chunks):
    return [found async for found in chunks.list("c0")]


def test_calls_of_a_hanging_namenode_are_given_up_and_others_get_their_threads(monkeypatch):
    async def main():
        monkeypatch.setattr(hdfs, "HDFS_CALL_SECONDS", 0.02)
        client = Hanging()
        chunks = HdfsChunks(client, "/root", "hdfs://here/root", real_env())
        # On a busy machine a call may be given up before its thread began it: that thread does not hang.
        refused = f"{hdfs.MAX_THREADS} calls wait for it"
        async with asyncio.timeout(HANG_SECONDS):
            while True:
                with pytest.raises(Unavailable, match=f"no answer within|{refused}") as raised:
                    await listing(chunks)
                if refused in str(raised.value):
                    break
        client.goes_on.set()
        monkeypatch.setattr(hdfs, "HDFS_CALL_SECONDS", HANG_SECONDS)
        while any(thread.unfinished for thread in chunks._threads):
            await asyncio.sleep(0.01)
        assert await asyncio.gather(*(listing(chunks) for _ in range(20))) == [[]] * 20
        assert client.listed == hdfs.MAX_THREADS + 20
        await chunks.close()

    asyncio.run(main())


def test_a_call_that_was_given_up_before_it_began_is_not_made(monkeypatch):
    async def main():
        monkeypatch.setattr(hdfs, "HDFS_CALL_SECONDS", 0.02)
        monkeypatch.setattr(hdfs, "THREADS", 1)
        monkeypatch.setattr(hdfs, "MAX_THREADS", 1)
        client = Hanging()
        chunks = HdfsChunks(client, "/root", "hdfs://here/root", real_env())
        outcomes = await asyncio.gather(*(listing(chunks) for _ in range(3)), return_exceptions=True)
        assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
        client.goes_on.set()
        while chunks._threads[0].unfinished:
            await asyncio.sleep(0.01)
        assert client.listed == 1
        await chunks.close()

    asyncio.run(main())
