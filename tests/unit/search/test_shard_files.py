"""The files of shards, to blobs and back into directories."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest

from sarit.core.errors import Corrupt
from sarit.env.real import real_env
from sarit.search import shard_files
from sarit.search.memory_world import MemoryBlobs
from sarit.search.shard_files import download, fetch, read_file, upload
from sarit.search.state import StoredFile
from tests.unit.search.index_world import Inline

CONTENTS = {"meta-1.json": b"{}", "empty.idx": b"", "seven.pos": b"0123456", "eight.pos": b"01234567", "0a.b_c-d": b"x"}


async def stored(monkeypatch, upload_bytes: int = 8):
    monkeypatch.setattr(shard_files, "UPLOAD_BYTES", upload_bytes)
    blobs = MemoryBlobs()
    return blobs, await upload(blobs, "1/a", CONTENTS)


@pytest.mark.parametrize("upload_bytes", [1, 3, 8, 100])
def test_files_come_back_as_they_were_and_over_older_ones(tmp_path, monkeypatch, upload_bytes) -> None:
    async def work():
        blobs, files = await stored(monkeypatch, upload_bytes)
        for _ in range(2):
            await download(blobs, files, tmp_path / "made", real_env().files, Inline())
            assert {name: (tmp_path / "made" / name).read_bytes() for name in os.listdir(tmp_path / "made")} == CONTENTS
            (tmp_path / "made" / "seven.pos").write_bytes(b"what an attempt before has left")
        assert [await read_file(blobs, file) for file in files if file.name == "seven.pos"] == [b"0123456"]

    asyncio.run(work())


def test_damaged_file_is_refused_however_it_is_read(tmp_path, monkeypatch) -> None:
    async def work():
        blobs, files = await stored(monkeypatch)
        wrong = replace(next(file for file in files if file.name == "eight.pos"), checksum=1)
        for reading in (
            download(blobs, [wrong], tmp_path, real_env().files, Inline()),
            fetch(blobs, wrong, tmp_path, real_env().files, Inline().run, 3),
            read_file(blobs, wrong),
        ):  # fmt: skip
            with pytest.raises(Corrupt, match=r"file eight\.pos of an index is not what was stored in blob 1/a"):
                await reading

    asyncio.run(work())


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/x", "a/b", ".hidden", "a\0", "a\n", "a b", "ä", "a" * 202])
def test_names_that_no_file_of_a_shard_has_are_refused_before_anything_is_written(tmp_path, monkeypatch, name) -> None:
    async def work():
        blobs, _ = await stored(monkeypatch)
        (tmp_path / "made").mkdir()
        bad, before = StoredFile(name, "1/a", 0, 1, 0), sorted(os.walk(tmp_path))
        for reading in (
            download(blobs, [bad], tmp_path / "made", real_env().files, Inline()),
            fetch(blobs, bad, tmp_path / "made", real_env().files, Inline().run, 3),
        ):  # fmt: skip
            with pytest.raises(Corrupt, match="no proper name"):
                await reading
        assert sorted(os.walk(tmp_path)) == before

    asyncio.run(work())
