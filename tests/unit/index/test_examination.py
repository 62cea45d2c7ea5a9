"""Opening examines an index: lost records and a damaged structure are found before they are taken for absent."""

import asyncio
import shutil
import sqlite3
from contextlib import closing

import pytest

from sarit.core.errors import Corrupt
from sarit.env.real import real_env
from sarit.index import database
from sarit.index.examination import right_record
from sarit.index.port import DamagedRecord, WriteBatch
from sarit.index.record_seals import seal
from sarit.index.scans import scan_readable
from sarit.index.sqlite import SqliteIndexProvider

ROWS = {b"a%d" % number: b"value" * 10 for number in range(0, 8, 2)}


@pytest.fixture
def provider(tmp_path):
    return SqliteIndexProvider(real_env(), str(tmp_path / "index"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "index" / "container-0.db"


async def written(provider, rows=None) -> None:
    index = await provider.open(0)
    await index.commit(WriteBatch(ROWS if rows is None else rows))
    await index.close()


def rekey(path, key: bytes, other: bytes, *, value: bytes | None = None) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE entries SET k=?, v=coalesce(?, v) WHERE k=?", (other, value, key))
        connection.commit()


def test_a_record_with_a_flipped_bit_in_its_key_is_damaged_and_not_absent(provider, path):
    async def main():
        await written(provider)
        rekey(path, b"a2", b"a3")  # one bit; still between its neighbours
        index = await provider.open(0)
        with pytest.raises(DamagedRecord):
            await index.get([b"a2"])
        assert await index.get([b"a1", b"a0", b"a4"]) == [None, ROWS[b"a0"], ROWS[b"a4"]]
        with pytest.raises(DamagedRecord):
            await index.scan(b"a2", b"a3", 10)
        assert await index.scan(b"a3\0", b"b", 10) == [(key, ROWS[key]) for key in (b"a4", b"a6")]
        rows, damaged = await scan_readable(index, b"a", b"b")
        assert [key for key, _ in rows] == [b"a0", b"a4", b"a6"]
        assert damaged
        await index.close()

    asyncio.run(main())


def test_a_record_with_a_foreign_key_may_be_any_between_its_neighbours(provider, path):
    async def main():
        await written(provider)
        rekey(path, b"a2", b"a3xyz")  # more than one bit: nobody knows the right key
        index = await provider.open(0)
        for key in (b"a2", b"a1", b"a0\0", b"a3zzz"):
            with pytest.raises(DamagedRecord):
                await index.get([key])
        assert await index.get([b"a4", b"a5", b"a"]) == [ROWS[b"a4"], None, None]
        for low, high in ((b"a1", b"a2"), (b"a", b"b"), (b"a3yyy", b"a3z")):
            with pytest.raises(DamagedRecord):
                await index.scan(low, high, 10)
        assert await index.scan(b"a", b"b", 1) == [(b"a0", ROWS[b"a0"])]
        assert await index.scan(b"a", b"b", 2, reverse=True) == [(key, ROWS[key]) for key in (b"a6", b"a4")]
        rows, damaged = await scan_readable(index, b"a", b"b")
        assert [key for key, _ in rows] == [b"a0", b"a4", b"a6"]
        assert len(damaged) == 1
        assert (await scan_readable(index, b"a1", b"a2"))[0] == []
        await index.close()

    asyncio.run(main())


def test_a_damaged_value_hides_no_other_key(provider, path):
    async def main():
        await written(provider)
        sealed = bytearray(seal(b"a2", ROWS[b"a2"]))
        sealed[20] ^= 4
        rekey(path, b"a2", b"a2", value=bytes(sealed))
        index = await provider.open(0)
        assert await index.get([b"a1", b"a3"]) == [None, None]
        with pytest.raises(DamagedRecord):
            await index.get([b"a2"])
        await index.close()

    asyncio.run(main())


def test_every_flipped_bit_of_a_small_record_is_located():
    key, sealed = b"key", seal(b"key", b"some value")
    whole = key + sealed
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        assert right_record(bytes(damaged[:3]), bytes(damaged[3:])) == (key, sealed), bit
    assert right_record(b"key", b"") is None
    assert right_record(b"kez", seal(b"abc", b"another")) is None


def test_pages_that_are_out_of_order_are_refused(provider, path):
    """A search may miss any record then."""

    async def main():
        await written(provider, {b"k%04d" % number: b"value" * 20 for number in range(500)})
        data = bytearray(path.read_bytes())
        at = data.index(b"k0100")
        data[at] ^= 1  # "j0100", among its neighbours
        path.write_bytes(data)
        for _ in range(2):
            with pytest.raises(Corrupt, match=r"out of order|pages are damaged"):
                await provider.open(0)

    asyncio.run(main())


def test_a_changed_schema_is_refused(provider, path):
    async def main():
        await written(provider)
        data = bytearray(path.read_bytes())
        at = data.index(b"CHECK (one=1)")
        data[at + 11] ^= 2
        path.write_bytes(data)
        with pytest.raises(Corrupt, match="schema"):
            await provider.open(0)

    asyncio.run(main())


@pytest.mark.parametrize("change", ["DELETE FROM owner", "UPDATE owner SET epoch='x'"])
def test_an_index_without_the_epoch_of_its_owner_is_refused(provider, path, change):
    async def main():
        await written(provider)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(change)
            connection.commit()
        with pytest.raises(Corrupt, match="epoch of its owner"):
            await provider.open(0)

    asyncio.run(main())


def test_a_large_index_is_not_examined(provider, path, monkeypatch):
    """Its opening must not last for minutes; `sarit verify` examines it."""
    monkeypatch.setattr(database, "INDEX_EXAMINED_BYTES", 4096)

    async def main():
        await written(provider)
        rekey(path, b"a2", b"a3")
        index = await provider.open(0)
        assert await index.get([b"a2"]) == [None]
        with pytest.raises(DamagedRecord):
            await index.get([b"a3"])
        await index.close()

    asyncio.run(main())


def killed_with_wal(provider, path, commits: int) -> None:
    """A database as `kill -9` leaves it: nothing is copied out of the WAL."""

    async def main():
        index = await provider.open(0)
        for number in range(commits):
            await index.commit(WriteBatch({b"k": b"%d" % number}))
        copies = [path.with_name(path.name + suffix) for suffix in ("", "-wal")]
        for copy in copies:
            shutil.copy(copy, f"{copy}.copy")
        await index.close()
        for copy in copies:
            shutil.move(f"{copy}.copy", copy)

    asyncio.run(main())


def test_rot_in_the_wal_is_refused_and_not_taken_for_a_torn_end(provider, path):
    """SQLite takes the first bad frame for the end, and forgets commits that were durable."""
    killed_with_wal(provider, path, 6)
    wal = path.with_name(path.name + "-wal")
    whole = wal.read_bytes()
    frame_bytes = 24 + 4096
    frames = (len(whole) - 32) // frame_bytes
    assert frames >= 6

    async def opened() -> bytes | None:
        index = await provider.open(0)
        (value,) = await index.get([b"k"])
        await index.close()
        return value

    def damaged(at: int) -> None:
        data = bytearray(whole)
        data[at] ^= 1
        wal.write_bytes(data)

    database_bytes = path.read_bytes()
    for at in (8, 30, 32 + 100, 32 + frame_bytes + 2000, 32 + 3 * frame_bytes + 5):
        damaged(at)
        for _ in range(2):  # the first refusal must not hide it from the second
            with pytest.raises(Corrupt, match="write-ahead log"):
                asyncio.run(opened())
        assert path.read_bytes() == database_bytes
    # A torn end: the last commit alone.
    wal.write_bytes(whole[:-4000])
    assert asyncio.run(opened()) == b"4"


def test_a_whole_wal_is_opened(provider, path):
    killed_with_wal(provider, path, 6)

    async def main():
        index = await provider.open(0)
        assert await index.get([b"k"]) == [b"5"]
        await index.close()

    asyncio.run(main())
