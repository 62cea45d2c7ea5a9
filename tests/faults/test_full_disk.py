"""A full disk: appends wait, reads continue, and the service resumes when there is free space; deleting streams frees
some."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess

import pytest

from sarit.client.aio import connect
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

STREAM = "full/disk"
EVENT = b"x" * 50_000


def mount(directory, *options):
    subprocess.run(["mount", *options, str(directory)], check=True, capture_output=True)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1000 MiB in memory."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small file system needs root")
    directory = tmp_path / "disk"
    directory.mkdir()
    try:
        mount(directory, "-t", "tmpfs", "-o", "size=1000m", "tmpfs")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no tmpfs can be mounted here: {error.stderr}")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


def test_appends_wait_for_free_space_and_reads_continue(small_disk):
    node = RunningNode(small_disk / "data", "--containers", "2").start()

    async def main():
        async with await connect(node.controller) as client:
            await client.create_scope("full")
            await client.create_stream(STREAM)
            writer = client.writer(STREAM)
            count = 20_000  # 1 GB: more than fits
            writing = asyncio.create_task(fill(writer, count))
            while "the disk is full" not in log().read_text():
                assert not writing.done()
                await asyncio.sleep(0.1)
            # What the node deletes on a full disk lets some more in first.
            before, waiting = None, await client.stream_cut_tail(STREAM)
            while waiting != before:  # until nothing is appended for a second, and nothing refused
                await asyncio.sleep(1)
                before, waiting = waiting, await client.stream_cut_tail(STREAM)
            assert not writing.done()
            first = await client.reader(STREAM).read_events(10)
            assert first == [EVENT] * len(first) != []
            await client.create_stream("full/other")  # control requests are served
            mount(small_disk, "-o", "remount,size=3000m")
            await asyncio.wait_for(writing, HANG_SECONDS)
            got = 0
            async for batch in client.reader(STREAM, end="tail").batches():
                got += len(batch)
            assert got == count

    def log():
        return small_disk / "data.log"

    try:
        asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    finally:
        node.stop()


async def fill(writer, count):
    for _ in range(count // 100):
        writer.write_many([EVENT] * 100)
        await writer.drain()
    await writer.flush()


def test_deleting_stream_frees_space_in_full_storage(small_disk, tmp_path):
    """Long-term storage has its own disk; the disk of the log has free space."""
    mount(small_disk, "-o", "remount,size=60m")
    node = RunningNode(tmp_path / "data", "--containers", "1", "--storage", f"file://{small_disk}").start()

    async def main():
        async with await connect(node.controller) as client:
            await client.create_scope("full")
            for name in ("full/old", "full/new"):
                await client.create_stream(name)
            await fill(client.writer("full/old"), 800)  # 40 MB
            while bytes_in(small_disk) < 35_000_000:
                await asyncio.sleep(0.1)
            old = chunks_in(small_disk)
            await fill(client.writer("full/new"), 800)
            await client.delete_stream("full/old", seal=True)
            while chunks_in(small_disk) & old or bytes_in(small_disk) < 35_000_000:
                await asyncio.sleep(0.1)
            got = 0
            async for batch in client.reader("full/new", end="tail").batches():
                got += len(batch)
            assert got == 800

    try:
        asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    finally:
        node.stop()


def chunks_in(directory):
    return set(directory.rglob("*-s*.chunk"))


def bytes_in(directory):
    return sum(path.stat().st_size for path in chunks_in(directory))
