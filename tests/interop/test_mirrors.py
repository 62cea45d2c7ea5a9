"""The clients of others on a mirror: a writer gets an error that names the mirror, and does not try for ever."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.peers.maven import PeerMissing
from sarit.client import aio
from sarit.env.real import real_env
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from sarit.store.server.append_handler import AppendHandler
from tests.interop.java_peer import compiled
from tests.limits import HANG_SECONDS

SEGMENT = "s/t/0.#epoch.0"
# The official Python client, which is the Rust client.
RUST = """
import os, sys
import pravega_client
writer = pravega_client.StreamManager("tcp://" + sys.argv[1], False, False).create_writer("s", "t")
try:
    writer.write_event("event", "key")
    writer.flush()
    print("written")
except Exception as error:
    print("failed", error)
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    try:
        source = Path(__file__).parent / "java" / "WriterPeer.java"
        return compiled(tmp_path_factory.mktemp("classes"), source)
    except PeerMissing as error:
        pytest.skip(f"no Java client to write with: {error}")


@asynccontextmanager
async def mirrored(directory):
    """A node with a stream of one segment, which is a mirror; yields the controller's address."""
    config = NodeConfig(str(directory / "node"), controller_port=0, store_port=0)
    node = await open_node(config.validated(), real_env())
    await node.start()
    endpoint = f"127.0.0.1:{node.controller_port}"
    try:
        async with await aio.connect(endpoint) as client:
            await client.create_scope("s")
            await client.create_stream("s/t")
        container = node.store.container(SEGMENT)
        await container.set_mirror(SEGMENT, True)
        yield endpoint
        assert (await container.info(SEGMENT)).length == 0
    finally:
        await node.stop()


async def said_by(*command, cwd=None):
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, cwd=cwd
    )
    try:
        return (await process.communicate())[0].decode()
    finally:
        if process.returncode is None:
            process.kill()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["event", "flush", "large", "bytes"])
def test_java_writer_is_refused_with_the_reason(tmp_path, classes, mode):
    async def main():
        async with asyncio.timeout(HANG_SECONDS), mirrored(tmp_path) as endpoint:
            place = classes.rpartition(":")[2]
            said = await said_by("java", "-Xmx256m", "-cp", classes, "WriterPeer", endpoint, "s", "t", mode, cwd=place)
            assert "\nfailed io.pravega" in f"\n{said}", said
            assert "segment s/t/0.#epoch.0 is a mirror of another installation" in said

    asyncio.run(main())


def test_rust_writer_is_refused_and_does_not_try_for_ever(tmp_path, monkeypatch):
    set_ups = []
    right = AppendHandler.set_up
    monkeypatch.setattr(AppendHandler, "set_up", lambda self, command: set_ups.append(1) or right(self, command))

    async def main():
        async with asyncio.timeout(HANG_SECONDS), mirrored(tmp_path) as endpoint:
            assert (await said_by(sys.executable, "-c", RUST, endpoint)).startswith("failed ")
            assert len(set_ups) <= 3

    asyncio.run(main())
