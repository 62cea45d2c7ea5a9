"""One suite for the blobs and the rows of indexes: in memory, and in segments and tables of a store."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from sarit.core.errors import Conflict, Corrupt, NotFound, SaritError
from sarit.process.search import site as search_site
from sarit.process.search.site import SegmentBlobs, TableRows
from sarit.search.memory_world import MemoryBlobs, MemoryRows
from tests.contract.test_controller_ports import ports_of
from tests.limits import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sarit.search.ports import Blobs, Rows

NAME = "ab" * 16 + "/0123"


@dataclass
class Parts:
    blobs: Blobs
    rows: Rows
    other: Blobs  # of another process


@asynccontextmanager
async def parts_of(kind: str) -> AsyncIterator[Parts]:
    if kind == "memory":
        blobs = MemoryBlobs()
        yield Parts(blobs, MemoryRows(), blobs)
        return
    async with ports_of(kind) as ports:
        rows = TableRows(ports.tables)
        yield Parts(SegmentBlobs(ports.segments, rows), rows, SegmentBlobs(ports.segments, TableRows(ports.tables)))


@pytest.fixture(params=["in process", "remote", "memory"])
def run(request):
    def run_test(test) -> None:
        async def main() -> None:
            async with asyncio.timeout(HANG_SECONDS), parts_of(request.param) as parts:
                await test(parts)

        asyncio.run(main())

    return run_test


def test_blob_grows_at_its_end_and_is_read_in_parts(run):
    async def test(parts):
        blobs = parts.blobs
        assert await blobs.append(NAME, [b"one", b"", b"two"]) == 0
        assert await blobs.append(NAME, [b"three"]) == 6
        assert await parts.other.append(NAME, [b"four"]) == 11
        assert await parts.other.read(NAME, 0, 15) == b"onetwothreefour"
        assert await blobs.read(NAME, 6, 5) == b"three"
        assert await blobs.read(NAME, 6, 0) == b""

    run(test)


def test_blob_of_many_pieces_comes_back(run, monkeypatch):
    monkeypatch.setattr(search_site, "BLOB_PIECE_BYTES", 1000)
    monkeypatch.setattr(search_site, "BLOB_PIECES_AT_ONCE", 3)

    async def test(parts):
        content = bytes(range(256)) * 40
        await parts.blobs.append(NAME, [b"before"])
        assert await parts.blobs.append(NAME, [content[:7], content[7:]]) == 6
        assert await parts.other.read(NAME, 6, len(content)) == content
        assert await parts.other.read(NAME, 1006, 2001) == content[1000:3001]

    run(test)


def test_large_piece_comes_back(run):
    async def test(parts):
        content = bytes(range(256)) * 4 * 4096  # 4 MiB
        assert await parts.blobs.append(NAME, [content]) == 0
        assert await parts.other.read(NAME, 1, len(content) - 1) == content[1:]

    run(test)


def test_what_is_not_there_is_an_error(run):
    async def test(parts):
        with pytest.raises(NotFound):
            await parts.blobs.read(NAME, 0, 1)
        await parts.blobs.append(NAME, [b"one"])
        # The caller asks for what a state says is there: less is damage.
        for offset, length in ((0, 4), (2, 2), (9, 1)):
            with pytest.raises(SaritError) as error:
                await parts.blobs.read(NAME, offset, length)
            assert isinstance(error.value, Corrupt) or offset > 3

    run(test)


def test_appends_at_the_same_time_do_not_mix(run):
    async def test(parts):
        contents = [bytes([number]) * 1000 for number in range(8)]
        offsets = await asyncio.gather(
            *((parts.blobs if number % 2 else parts.other).append(NAME, [one]) for number, one in enumerate(contents))
        )
        for offset, content in zip(offsets, contents, strict=True):
            assert await parts.blobs.read(NAME, offset, 1000) == content

    run(test)


def test_blobs_are_listed_until_they_are_deleted(run):
    async def test(parts):
        blobs = parts.blobs
        assert await blobs.names("") == []
        for name in ("a/1", "b/2", "a/0"):
            await blobs.append(name, [b"x"])
        assert await blobs.names("") == ["a/0", "a/1", "b/2"]
        assert await parts.other.names("a/") == ["a/0", "a/1"]
        await parts.other.delete("a/1")
        await blobs.delete("a/1")
        await blobs.delete("never")
        assert await blobs.names("a/") == ["a/0"]
        with pytest.raises(NotFound):
            await blobs.read("a/1", 0, 1)
        assert await blobs.append("a/1", [b"again"]) == 0
        assert await blobs.names("a/") == ["a/0", "a/1"]

    run(test)


def test_rows_change_from_version_to_version(run):
    async def test(parts):
        rows = parts.rows
        assert await rows.get([b"a", b"b"]) == [None, None]
        assert await rows.scan(b"") == []
        first = await rows.put(b"a", b"1", None)
        with pytest.raises(Conflict):
            await rows.put(b"a", b"2", None)
        with pytest.raises(Conflict):
            await rows.put(b"a", b"2", first + 1)
        with pytest.raises(Conflict):
            await rows.put(b"b", b"2", 7)
        second = await rows.put(b"a", b"2", first)
        assert second > first
        assert await rows.get([b"b", b"a"]) == [None, (b"2", second)]
        with pytest.raises(Conflict):
            await rows.put(b"a", None, first)
        assert await rows.put(b"a", None, second) == -1
        assert await rows.get([b"a"]) == [None]

    run(test)


def test_several_rows_change_together_with_their_mark(run):
    async def test(parts):
        rows = parts.rows
        made = await rows.put_all([(b"a", b"1", None), (b"b", b"2", None)], (b"mark", b"m"))
        ((_, first),) = await rows.get([b"mark"])
        assert await rows.get([b"a", b"b"]) == [(b"1", made[0]), (b"2", made[1])]
        with pytest.raises(Conflict):
            await rows.put_all([(b"a", b"3", made[0]), (b"b", b"3", made[1] + 1)], (b"mark", b"n"))
        assert await rows.get([b"a", b"mark"]) == [(b"1", made[0]), (b"m", first)]
        changed = await rows.put_all([(b"a", b"3", made[0]), (b"b", None, made[1])], (b"mark", b"m"))
        assert changed[1] == -1
        ((_, second),) = await rows.get([b"mark"])
        assert second > first
        assert await rows.get([b"a", b"b"]) == [(b"3", changed[0]), None]
        await rows.put_all([(b"b", b"4", None)])
        assert await rows.get([b"mark"]) == [(b"m", second)]

    run(test)


def test_rows_are_scanned_by_prefix_in_order(run):
    async def test(parts):
        rows = parts.rows
        versions = {key: await rows.put(key, key.upper(), None) for key in (b"q/2", b"q/1", b"r", b"p", b"q/\xff")}
        assert await rows.scan(b"q/") == [(key, key.upper(), versions[key]) for key in (b"q/1", b"q/2", b"q/\xff")]
        assert len(await rows.scan(b"")) == 5

    run(test)
