"""Data directories that earlier versions of Sarit wrote (`tests/golden/write_directory.py`).

This version opens them.  Until it has opened all containers it changes no format, so that the version that wrote them
still starts (docs/formats/README.md).
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tarfile
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sarit.client import aio
from sarit.core.errors import Corrupt
from sarit.env.real import real_env
from sarit.process.ownership.claims import META_VERSION, claim_directory, claim_long_term_storage
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from tests.limits import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

GOLDEN = Path(__file__).parents[2] / "golden"
DIRECTORIES = sorted(GOLDEN.glob("directory-*.tar.xz"))
# The formats before were of versions that nobody else has had.
FIRST_FORMAT = 2


@pytest.fixture(params=DIRECTORIES, ids=lambda path: path.name.partition(".")[0])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "data"


def test_there_is_a_directory_of_this_format_and_of_the_one_before() -> None:
    formats = {int(path.name.split("-")[1]) for path in DIRECTORIES}
    assert formats >= {max(META_VERSION - 1, FIRST_FORMAT), META_VERSION}, "write one: tests/golden/write_directory.py"


@asynccontextmanager
async def started(directory: Path) -> AsyncIterator[Any]:
    """A node on the directory, as `sarit standalone` starts it."""
    config = NodeConfig(str(directory), containers=2, controller_port=0, store_port=0).validated()
    claim = claim_directory(config, real_env())
    node = None
    try:
        node = await open_node(config, real_env(), claim)
        await claim_long_term_storage(config, real_env(), node.storage, claim)
        await node.start(claim)
        yield node
    finally:
        if node is not None:
            await node.stop()
        claim.lock.close()


def versions(directory: Path) -> dict[str, set[int]]:
    """The formats of all files that have one."""
    found = {"meta": {json.loads((directory / "meta").read_text())["version"]}, "log": set(), "index": set()}
    for log in directory.glob("log/*/*.log"):
        found["log"].add(int.from_bytes(log.read_bytes()[8:10], "big"))
    for path in directory.glob("index/*.db"):
        with closing(sqlite3.connect(path)) as index:
            found["index"].add(index.execute("PRAGMA user_version").fetchone()[0])
    return found


async def check_content(client: Any) -> None:
    """Read all that `write_directory.py` has written."""
    events = [event async for event in client.reader("s/t", end="tail")]
    by_key = [[int(event) for event in events if int(event) % 7 == key] for key in range(7)]
    assert by_key == [list(range(key, 300, 7)) for key in range(7)]
    large = [event async for event in client.reader("s/large", end="tail")]
    assert large == [b"0" * 700_000, b"1" * 700_000, b"2" * 700_000, b"of a transaction"]
    assert [event async for event in client.reader("s/truncated", end="tail")] == [b"after"]
    table = client.table("s/table")
    assert [(entry.key, entry.value) async for entry in table.scan()] == [
        (b"%02d" % number, b"value %d" % number) for number in range(20)
    ]
    assert [name async for name in client.reader_groups.list("s")] == ["s/group"]


def test_directory_of_an_earlier_version_opens_and_goes_on(directory: Path) -> None:
    """Format 2 refused what format 1 had written."""

    async def go() -> None:
        for turn in range(2):
            async with started(directory) as node, await aio.connect(f"127.0.0.1:{node.controller_port}") as client:
                if not turn:
                    await check_content(client)
                async with client.writer("s/truncated") as writer:
                    writer.write(b"%d" % turn)
                    await writer.flush()
                assert [event async for event in client.reader("s/truncated", end="tail")][-1] == b"%d" % turn

    async def bounded() -> None:
        async with asyncio.timeout(HANG_SECONDS):
            await go()

    asyncio.run(bounded())
    assert versions(directory)["meta"] == {META_VERSION}


def test_start_that_does_not_open_all_containers_leaves_the_format(directory: Path) -> None:
    """The version that wrote the directory starts again."""
    before = versions(directory)
    index = directory / "index" / "container-1.db"
    right = index.read_bytes()

    async def go() -> None:
        async with started(directory):
            raise AssertionError("it started")

    index.write_bytes(b"damaged".ljust(len(right), b"\0"))
    with pytest.raises(Corrupt):
        asyncio.run(go())
    index.write_bytes(right)
    assert versions(directory) == before
