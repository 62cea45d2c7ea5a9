"""`sarit repair`: what it puts back, what it leaves, and that the damaged index stays."""

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
from sarit.core.errors import Corrupt
from sarit.index import keys
from sarit.index.record_seals import seal
from tests.faults import small_data
from tests.unit.ops.verify.test_verify import STREAM, contents_of, id_of, verified

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> tuple[Path, small_data.Served]:
    directory = tmp_path_factory.mktemp("repair") / "killed"
    return directory, asyncio.run(small_data.make(directory, stop=False))


@pytest.fixture
def data(original, tmp_path) -> Path:
    return shutil.copytree(original[0], tmp_path / "data")


@pytest.fixture
def expected(original) -> small_data.Served:
    return original[1]


def repaired(data: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["repair", str(data), *options])
    return result.exit_code, result.output


def edit(data: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(data / "index" / "container-0.db", isolation_level=None)) as connection:
        assert connection.execute(statement, values).rowcount == 1


def flip_value(data: Path, key: bytes, byte: int, bit: int) -> None:
    with closing(sqlite3.connect(data / "index" / "container-0.db")) as connection:
        (stored,) = connection.execute("SELECT v FROM entries WHERE k=?", (key,)).fetchone()
    damaged = bytearray(stored)
    damaged[byte] ^= 1 << bit
    edit(data, "UPDATE entries SET v=? WHERE k=?", bytes(damaged), key)


def copy_wal(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def every_record(data: Path) -> list[tuple[bytes, bytes]]:
    with closing(sqlite3.connect(data / "index" / "container-0.db")) as connection:
        return connection.execute("SELECT k, v FROM entries ORDER BY k").fetchall()


def test_a_whole_index_needs_no_repair_and_is_not_changed(data) -> None:
    before = contents_of(data)
    assert repaired(data)[0] == 0
    assert repaired(data, "--yes")[0] == 0
    assert contents_of(data) == before


def test_what_a_repair_would_do_and_does_is_a_document(data) -> None:
    flip_value(data, keys.segment_key(id_of(data, STREAM)), 2, 5)
    code, said = repaired(data, "--format", "json")
    planned = json.loads(said)
    assert (code, planned["done"], planned["left"]) == (1, False, [])
    (change,) = planned["changes"]
    assert change["container"] == 0
    assert repaired(data, "--yes", "--format", "json") == (0, json.dumps({**planned, "done": True}) + "\n")


@pytest.mark.parametrize("place", [(2, 5), (20, 0)], ids=["checksum", "value"])
def test_a_flipped_bit_is_put_back_and_the_damaged_index_stays(data, expected, place) -> None:
    rows = every_record(data)
    for key in (keys.segment_key(id_of(data, STREAM)), keys.attribute_key(1, small_data.WRITER)):
        flip_value(data, key, place[0], place[1]) if len(dict(rows)[key]) > place[0] else None
    damaged = every_record(data)
    code, text = repaired(data)
    assert code == 1
    assert "would put back the record of segment" in text
    assert every_record(data) == damaged, "without --yes nothing is changed"
    code, text = repaired(data, "--yes")
    assert code == 0, text
    assert every_record(data) == rows
    with closing(sqlite3.connect(data / "index" / "container-0.db.damaged")) as connection:
        assert connection.execute("SELECT k, v FROM entries ORDER BY k").fetchall() == damaged
    assert verified(data)[0] == 0
    assert asyncio.run(small_data.read(data)) == expected


def test_keys_out_of_order_are_put_in_order(data, expected) -> None:
    """A flipped bit of a key: the index does not open, since a search may miss any record."""
    path = data / "index" / "container-0.db"
    copy_wal(path)
    content = path.read_bytes()
    at = content.rindex(b"nscope/table")
    path.write_bytes(content[:at] + b"N" + content[at + 1 :])
    with pytest.raises(Corrupt, match="out of order"):
        asyncio.run(small_data.read(data))
    assert repaired(data, "--yes")[0] == 0
    assert asyncio.run(small_data.read(data)) == expected


def test_record_whose_damaged_key_is_that_of_another_one_is_put_back_and_the_other_stays(data, expected) -> None:
    path = data / "index" / "container-0.db"
    copy_wal(path)
    rows = every_record(data)
    content = path.read_bytes()
    key, other = keys.attribute_key(2, small_data.WRITER), keys.attribute_key(3, small_data.WRITER)
    assert content.count(key) == 1
    path.write_bytes(content.replace(key, other))
    with pytest.raises(Corrupt, match="out of order"):
        asyncio.run(small_data.read(data))
    code, text = repaired(data, "--yes")
    assert code == 0, text
    assert every_record(data) == rows
    assert asyncio.run(small_data.read(data)) == expected


def test_the_name_of_a_segment_is_made_from_its_record(data, expected) -> None:
    edit(data, "DELETE FROM entries WHERE k=?", keys.name_key(STREAM))
    code, text = repaired(data, "--yes")
    assert (code, f"make the name of segment {STREAM} from its record" in text) == (0, True)
    assert asyncio.run(small_data.read(data)) == expected


def test_records_that_nobody_needs_are_dropped(data, expected) -> None:
    for key in (keys.garbage_key("c0000/x"), keys.attribute_key(99, bytes(16)), keys.meta_key("transient/x")):
        edit(data, "INSERT INTO entries VALUES (?,?)", key, b"damaged in many bits")
    code, text = repaired(data, "--yes")
    assert code == 0
    assert text.count("drop the record of") == 3
    assert asyncio.run(small_data.read(data)) == expected
    assert verified(data)[0] == 0


def test_what_cannot_be_repaired_is_said_and_left(data) -> None:
    key = keys.segment_key(id_of(data, STREAM))
    edit(data, "UPDATE entries SET v=? WHERE k=?", b"damaged in many bits", key)
    before = every_record(data)
    code, text = repaired(data, "--yes")
    assert code == 1
    assert "cannot be repaired: the record of segment" in text
    assert every_record(data) == before


def test_two_segments_of_one_name_are_left(data) -> None:
    with closing(sqlite3.connect(data / "index" / "container-0.db")) as connection:
        (stored,) = connection.execute("SELECT v FROM entries WHERE k=?", (keys.segment_key(1),)).fetchone()
    edit(data, "INSERT INTO entries VALUES (?,?)", keys.segment_key(77), seal(keys.segment_key(77), stored[4:]))
    code, text = repaired(data, "--yes")
    assert (code, "two segments have the name" in text) == (1, True)


def test_an_interrupted_repair_is_finished(data, expected) -> None:
    index = data / "index"
    edit(data, "DELETE FROM entries WHERE k=?", keys.name_key(STREAM))
    assert repaired(data, "--yes")[0] == 0
    (index / "container-0.db").rename(index / "container-0.db.repaired")
    assert repaired(data)[0] == 1
    assert repaired(data, "--yes")[0] == 0
    assert asyncio.run(small_data.read(data)) == expected


def test_a_directory_in_use_is_not_repaired(data) -> None:
    async def main() -> tuple[int, str]:
        opened = await small_data.open_store(data)
        try:
            return await asyncio.to_thread(repaired, data, "--yes")
        finally:
            await opened.close()

    code, text = asyncio.run(main())
    assert (code, "stop it first" in text) == (2, True)


def test_damaged_pages_are_left_to_a_backup(data) -> None:
    path = data / "index" / "container-0.db"
    copy_wal(path)
    content = bytearray(path.read_bytes())
    content[8192 + 3] ^= 2  # the number of cells of a page
    path.write_bytes(content)
    before = path.read_bytes()
    code, text = repaired(data, "--yes")
    assert (code, "restore index and log" in text) == (1, True)
    assert path.read_bytes() == before
