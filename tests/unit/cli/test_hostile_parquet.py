"""Parquet files that are small and decode to much, or say what is not so: memory of an import stays bounded."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sarit.cli.transfer import parquet_format, parquet_pages
from sarit.core.envelope import Envelope
from sarit.core.errors import Invalid

KIB = 1 << 10
LARGE = b"x" * (256 * KIB)
HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
BYTES_COLUMNS = ("event", "key", "headers.list.element.name", "headers.list.element.value")


def repeated(value: bytes, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([value]))


def headers(count: int, value: bytes) -> pa.Table:
    structs = pa.StructArray.from_arrays(
        [repeated(b"n", count).cast(pa.string()), repeated(value, count)], ["name", "value"]
    )
    column = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), structs)
    return pa.table({"event": [b"e"], "headers": column, "envelope": [True]})


def by_dictionary() -> dict:
    return {"table": pa.table({"event": repeated(LARGE, 400)}), "store_schema": False}


def by_prefixes() -> dict:
    table = pa.table({"event": pa.array([LARGE] * 400)})
    return {"table": table, "use_dictionary": False, "column_encoding": {"event": "DELTA_BYTE_ARRAY"}}


def by_run() -> dict:
    return {"table": pa.table({"event": pa.array([LARGE] * 400)}), "use_dictionary": False}


def by_headers() -> dict:
    return {"table": headers(400, LARGE)}


def by_headers_with_prefixes() -> dict:
    encoding = {"headers.list.element.value": "DELTA_BYTE_ARRAY"}
    return {"table": headers(400, LARGE), "use_dictionary": False, "column_encoding": encoding}


def by_many_headers() -> dict:
    return {"table": headers(200_000, b"")}


@pytest.fixture
def pool(monkeypatch):
    """Arrow's memory, counted.  The bounds are smaller than true ones, and so are the files."""
    monkeypatch.setattr(parquet_pages, "MAX_PARQUET_PAGE_BYTES", 4096 * KIB)
    for module in (parquet_pages, parquet_format):
        monkeypatch.setattr(module, "PARQUET_BATCH_BYTES", 2048 * KIB)
    counted = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    yield counted
    pa.set_memory_pool(before)


@pytest.mark.parametrize(
    ("made", "refusal"),
    [
        (by_dictionary, None),
        (by_prefixes, None),
        (by_run, "row group 0, column event: a page has 104859"),
        (by_headers, "row 0: it takes 1050"),
        (by_headers_with_prefixes, "row group 0, column headers.list.element.value: its pages are too large"),
        (by_many_headers, "row 0: it takes 80"),
    ],
)
def test_small_file_that_decodes_to_much_takes_bounded_memory_or_is_refused(tmp_path, pool, made, refusal) -> None:
    path = tmp_path / "small.parquet"
    given = made()
    pq.write_table(given.pop("table"), path, compression="zstd", write_statistics=False, **given)
    assert path.stat().st_size < 8 * KIB
    pa.set_memory_pool(pool)
    if refusal is None:
        assert [row.event for row in parquet_format.rows(str(path))] == [LARGE] * 400
    else:
        with pytest.raises(Invalid, match=refusal):
            next(parquet_format.rows(str(path)))
    assert pool.max_memory() < 16_384 * KIB


def test_one_row_of_more_headers_than_are_taken_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(parquet_pages, "MAX_PARQUET_HEADERS", 99)
    pq.write_table(headers(100, b"v"), tmp_path / "a.parquet")
    with pytest.raises(Invalid, match=r"column headers.list.element.name: it has 100 values, and at most 99"):
        next(parquet_format.rows(str(tmp_path)))


def test_file_that_says_of_itself_what_is_not_so_is_refused(tmp_path) -> None:
    path = tmp_path / "a.parquet"
    encoding = {"event": "DELTA_LENGTH_BYTE_ARRAY"}
    table = pa.table({"event": [b"abc"] * 10})
    pq.write_table(table, path, compression="none", use_dictionary=False, column_encoding=encoding)
    good = path.read_bytes()
    # The lengths: blocks of 128 in 4 parts, 10 of them, the first is 3.
    lengths = good.index(bytes([0x80, 1, 4, 10, 6]))
    for at, byte, words in ((lengths + 3, 127, "127 of 10 values"), (lengths + 2, 0, "damaged"), (4, 0x2B, "header")):
        path.write_bytes(good[:at] + bytes([byte]) + good[at + 1 :])
        with pytest.raises(Invalid, match=f"row group 0, column event: .*{words}"):
            next(parquet_format.rows(str(path)))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "lz4", "zstd"])
@pytest.mark.parametrize("encoding", [None, "PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_each_encoding_of_other_writers_is_read_exactly(tmp_path, version, codec, encoding) -> None:
    count = 60
    want = [
        Envelope(b"e%d" % (at % 30), key=f"k{at % 7}" if at % 3 else None, headers=[("n", b"v%d" % at)] * (at % 4))
        for at in range(count)
    ]
    found = [
        [{"name": name, "value": value} for name, value in one.headers] if at % 5 else None if at % 4 == 0 else []
        for at, one in enumerate(want)
    ]
    want = [Envelope(one.payload, key=one.key, headers=one.headers if found[at] else ()) for at, one in enumerate(want)]
    table = pa.table({
        "event": [one.payload for one in want], "key": [one.key for one in want],
        "headers": pa.array(found, HEADERS), "envelope": [True] * count,
    })  # fmt: skip
    given = (
        {} if encoding is None else {"use_dictionary": False, "column_encoding": dict.fromkeys(BYTES_COLUMNS, encoding)}
    )
    path = tmp_path / "a.parquet"
    pq.write_table(
        table, path, compression=codec, data_page_version=version, data_page_size=50, write_batch_size=7,
        row_group_size=25, **given,
    )  # fmt: skip
    assert [row.event for row in parquet_format.rows(str(path))] == [bytes(one) for one in want]
