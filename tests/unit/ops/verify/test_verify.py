"""`sarit verify` on a small data directory: what it finds, what it says, and that it changes nothing."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from sarit.cli.main import cli
from sarit.index import keys
from sarit.index.record_seals import seal
from tests.faults import small_data

if TYPE_CHECKING:
    from pathlib import Path

STREAM = small_data.STREAMS[0]


@pytest.fixture(scope="module", params=["killed", "stopped"])
def original(request, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("verify") / request.param
    asyncio.run(small_data.make(directory, stop=request.param == "stopped"))
    return directory


@pytest.fixture
def data(original, tmp_path) -> Path:
    return shutil.copytree(original, tmp_path / "data")


def verified(data: Path) -> tuple[int, dict]:
    result = CliRunner().invoke(cli, ["verify", str(data), "--format", "json"])
    return result.exit_code, json.loads(result.stdout)


def change(data: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(data / "index" / "container-0.db", isolation_level=None)) as connection:
        assert connection.execute(statement, values).rowcount == 1


def id_of(data: Path, name: str) -> int:
    with closing(sqlite3.connect(data / "index" / "container-0.db")) as connection:
        (stored,) = connection.execute("SELECT v FROM entries WHERE k=?", (keys.name_key(name),)).fetchone()
    return keys.parse_id_value(stored[4:])


def contents_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.stat().st_size and not path.name.endswith("-shm")
    }


def test_a_whole_directory_has_no_damage_and_is_not_changed(data) -> None:
    before = contents_of(data)
    code, report = verified(data)
    assert (code, report["damaged"], report["running"]) == (0, 0, False)
    assert report["segments"] == 6
    assert report["chunks"] >= 4
    assert report["records"] > 30
    assert contents_of(data) == before


@pytest.mark.parametrize("how", ["flipped", "cut", "missing"])
def test_a_damaged_chunk_is_named_with_its_segment_and_bytes(data, how) -> None:
    chunk = sorted((data / "chunks" / "c0000").rglob("*.chunk"))[0]
    content = bytearray(chunk.read_bytes())
    content[100] ^= 1
    if how == "missing":
        chunk.unlink()
    else:
        chunk.write_bytes(content if how == "flipped" else content[:900])
    code, report = verified(data)
    (finding,) = [found for found in report["findings"] if found["damage"]]
    assert code == 1
    assert finding["segment"] == STREAM
    assert finding["stream"] == "scope/stream0"
    assert (finding["start"], finding["end"]) == (0, 1600)
    assert "backup" in finding["advice"]
    text = CliRunner().invoke(cli, ["verify", str(data)]).stdout
    assert f"DAMAGE  container 0, segment {STREAM}, bytes 0 to 1600: chunk c0000" in text
    assert "1 damaged" in text


# The first byte of one record in 256 is 0 already.
OTHER_BYTE = "CAST((CASE substr(v,1,1) WHEN X'00' THEN X'01' ELSE X'00' END)||substr(v,2) AS BLOB)"


@pytest.mark.parametrize("value", [OTHER_BYTE, "CAST(v AS TEXT)", "5", "X''"])
def test_a_damaged_record_is_named(data, value) -> None:
    key = keys.segment_key(id_of(data, STREAM))
    change(data, f"UPDATE entries SET v={value} WHERE k=?", key)
    code, report = verified(data)
    assert code == 1
    (message,) = [found["message"] for found in report["findings"] if found["damage"]]
    assert f"segment {id_of(data, STREAM)} is damaged" in message


def test_a_record_of_another_format_is_named(data) -> None:
    number = id_of(data, STREAM)
    change(
        data, "UPDATE entries SET v=? WHERE k=?", seal(keys.segment_key(number), b"\x09new"), keys.segment_key(number)
    )
    code, report = verified(data)
    assert code == 1
    assert any("unknown format" in found["message"] for found in report["findings"])


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (lambda data: keys.name_key(STREAM), "the name of the segment with id"),
        (lambda data: keys.segment_key(id_of(data, STREAM)), "the record of the segment with id"),
        (lambda data: keys.entry_key(id_of(data, small_data.TABLE), b"key1"), "entries, and its record says"),
        (lambda data: keys.version_key(id_of(data, small_data.TABLE), 0), "versions do not match"),
        (lambda data: keys.meta_key("frame"), "lost its meta value frame"),
    ],
    ids=["name", "segment", "entry", "version", "meta"],
)
def test_a_lost_record_is_missed(data, key, text) -> None:
    change(data, "DELETE FROM entries WHERE k=?", key(data))
    code, report = verified(data)
    assert code == 1
    assert any(text in found["message"] for found in report["findings"]), report["findings"]


def test_a_lost_extent_between_two_others_is_missed(tmp_path) -> None:
    data = tmp_path / "stopped"
    asyncio.run(small_data.make(data, stop=True))
    change(data, "DELETE FROM entries WHERE k=?", keys.extent_key(id_of(data, STREAM), 1600))
    code, report = verified(data)
    assert code == 1
    assert any("no extent holds these bytes" in found["message"] for found in report["findings"]), report["findings"]


def test_chunks_that_nobody_names_are_a_note(data) -> None:
    (data / "chunks" / "c0000" / "e0000000001" / "000000000099-s9-0.chunk").write_bytes(b"left over")
    code, report = verified(data)
    (finding,) = report["findings"]
    assert (code, finding["damage"]) == (0, False)
    assert "1 chunks of 9 bytes are named by no extent" in finding["message"]


def test_missing_long_term_storage_is_one_finding(data) -> None:
    shutil.rmtree(data / "chunks")
    code, report = verified(data)
    assert code == 1
    assert ["long-term storage is missing" in found["message"] for found in report["findings"]] == [True]
    assert not (data / "chunks").exists()


@pytest.mark.parametrize("name", ["owner", "start-000000000001"])
def test_damaged_ownership_of_long_term_storage_is_named(data, name) -> None:
    chunk = data / "chunks" / "node" / f"{name}.chunk"
    content = bytearray(chunk.read_bytes())
    content[11] ^= 64
    chunk.write_bytes(content)
    code, report = verified(data)
    (finding,) = report["findings"]
    assert (code, finding["damage"]) == (1, True)
    assert "its checksum does not match" in finding["message"]
    assert f"node/{name}" in finding["message"]


def test_a_description_with_a_flipped_bit_cannot_be_trusted(data) -> None:
    meta = data / "meta"
    meta.write_bytes(meta.read_bytes().replace(b'"containers": 1', b'"containers": 0'))
    result = CliRunner().invoke(cli, ["verify", str(data)])
    assert result.exit_code == 2
    assert "meta is damaged" in result.stderr


def test_a_directory_in_use_is_checked_beside_its_node(data) -> None:
    async def main() -> tuple[int, dict]:
        opened = await small_data.open_store(data)
        try:
            return await asyncio.to_thread(verified, data)
        finally:
            await opened.close()

    code, report = asyncio.run(main())
    assert (code, report["running"]) == (0, True)
    assert any("durable log" in what for what in report["unchecked"])


@pytest.mark.parametrize("content", [None, b"{}", b"\xff", b'{"version": 99, "containers": 1, "storage": "chunks"}'])
def test_what_is_no_data_directory_cannot_be_checked(tmp_path, content) -> None:
    if content is not None:
        (tmp_path / "meta").write_bytes(content)
    result = CliRunner().invoke(cli, ["verify", str(tmp_path)])
    assert result.exit_code == 2
    assert "cannot be checked" in result.stderr
