"""Pages of a Parquet file, checked before they are decoded.

A file of some hundred bytes may decode to gigabytes: a page of one long run compresses well, a value of a dictionary is
repeated by one bit, and a value of DELTA_BYTE_ARRAY repeats its predecessor.  What a row group takes is known by the
headers of its pages (not by the footer, which may lie), and from that follows how many rows may be read at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from sarit.cli.transfer.limits import (
    MAX_PARQUET_DICTIONARY_VALUES,
    MAX_PARQUET_HEADERS,
    MAX_PARQUET_PAGE_BYTES,
    PARQUET_BATCH_BYTES,
    PARQUET_BATCH_ROWS,
    PARQUET_VALUE_BYTES,
)
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

# Kinds of pages, and encodings.
_DATA: Final = 0
_DICTIONARY: Final = 2
_DATA_V2: Final = 3
_PLAIN_DICTIONARY: Final = 2
_RLE: Final = 3
_DELTA_LENGTH: Final = 6
_DELTA_PREFIXES: Final = 7
_RLE_DICTIONARY: Final = 8
_DEEPEST_HEADER: Final = 8
_WORDS: Final = "write the file again with smaller pages and row groups"


@dataclass(frozen=True, slots=True)
class _Page:
    """`size`: decompressed.  `header`: the part that is about this kind of page, by field."""

    kind: int
    size: int
    stored: int
    at: int
    header: dict[int, Any]

    @property
    def values(self) -> int:
        return int(self.header.get(1, 0))

    @property
    def encoding(self) -> int:
        return int(self.header.get(4 if self.kind == _DATA_V2 else 2, 0))


@dataclass(slots=True)
class _Taken:
    """The memory that the columns of a row group take: `pages` in bytes at a time, `row` in bytes for each row."""

    pages: int = 0
    row: int = 1


def dictionary_columns(parquet: Any, leaves: list[int]) -> list[str]:
    """Return the columns inside lists that are read as dictionaries, so that a value that is repeated is held once.

    Arrow cannot do that for values of the DELTA encodings."""
    metadata, schema = parquet.metadata, parquet.schema
    return [
        schema.column(leaf).path
        for leaf in leaves
        if schema.column(leaf).max_repetition_level
        and schema.column(leaf).physical_type == "BYTE_ARRAY"
        and not any(
            name.startswith("DELTA")
            for group in range(metadata.num_row_groups)
            for name in metadata.row_group(group).column(leaf).encodings
        )
    ]


def rows_at_a_time(file: BinaryIO, parquet: Any, group: int, leaves: list[int], as_dictionary: list[str]) -> int:
    """Return how many rows of a row group are read at a time, so that memory stays bounded.

    `leaves`: the columns that are read.  Raises Invalid for what cannot be."""
    taken = _Taken()
    for leaf in leaves:
        column = parquet.schema.column(leaf)
        chunk = parquet.metadata.row_group(group).column(leaf)
        try:
            if column.max_repetition_level:
                _add_nested(taken, file, chunk, column, column.path in as_dictionary)
            else:
                _add_flat(taken, file, chunk, column)
            if taken.pages > MAX_PARQUET_PAGE_BYTES:
                raise Invalid(f"its pages are too large at {taken.pages} bytes: {_WORDS}")
        except Invalid as error:
            raise Invalid(f"row group {group}, column {column.path[:100]}: {error}") from None
    return max(1, min(PARQUET_BATCH_ROWS, PARQUET_BATCH_BYTES // taken.row))


def _add_flat(taken: _Taken, file: BinaryIO, chunk: Any, column: Any) -> None:
    """Add a column of one value a row: a page and a dictionary are held at a time."""
    largest = dictionary = row = 0
    for page in _pages(file, chunk, column):
        if page.kind == _DICTIONARY:
            dictionary = max(dictionary, page.size)
            continue
        largest = max(largest, page.size)
        row = max(row, _row_bytes(page, dictionary, column))
    taken.pages += largest + dictionary
    taken.row += row


def _row_bytes(page: _Page, dictionary: int, column: Any) -> int:
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        if column.length > PARQUET_BATCH_BYTES:
            raise Invalid(f"its values of {column.length} bytes are too long")
        return int(column.length)
    if column.physical_type != "BYTE_ARRAY":
        return PARQUET_VALUE_BYTES
    if page.encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY):
        return dictionary + PARQUET_VALUE_BYTES
    if page.encoding == _DELTA_PREFIXES:
        return page.size + PARQUET_VALUE_BYTES
    return page.size // max(page.values, 1) + PARQUET_VALUE_BYTES


def _add_nested(taken: _Taken, file: BinaryIO, chunk: Any, column: Any, as_dictionary: bool) -> None:
    """Add a column inside lists.  One row may have all values of it, so it is held whole."""
    if chunk.num_values > MAX_PARQUET_HEADERS:
        raise Invalid(f"it has {chunk.num_values} values, and at most {MAX_PARQUET_HEADERS} are taken: {_WORDS}")
    dictionary = 0
    for page in _pages(file, chunk, column):
        taken.pages += page.size
        if page.kind == _DICTIONARY:
            dictionary = max(dictionary, page.size)
        elif column.physical_type == "FIXED_LEN_BYTE_ARRAY":
            taken.pages += column.length * page.values
        elif page.encoding == _DELTA_PREFIXES:
            taken.pages += page.size * page.values
        elif page.encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY) and not as_dictionary:
            taken.pages += dictionary * page.values


def _pages(file: BinaryIO, chunk: Any, column: Any) -> Iterator[_Page]:
    """Yield the pages that Arrow will read of a column chunk.  Raises Invalid."""
    begin = chunk.data_page_offset
    if chunk.dictionary_page_offset is not None and 0 < chunk.dictionary_page_offset < begin:
        begin = chunk.dictionary_page_offset
    at, end, seen = begin, begin + chunk.total_compressed_size, 0
    while seen < chunk.num_values:
        if at >= end:
            raise Invalid("its pages have fewer values than the footer says")
        file.seek(at)
        found = _struct(file, end)
        kind, size, stored = (int(found.get(field, 0)) for field in (1, 2, 3))
        header = found.get({_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}.get(kind, 0))
        at = file.tell() + stored
        if stored < 0 or size < 0 or at > end:
            raise Invalid("the header of a page is damaged")
        if isinstance(header, dict):
            page = _Page(kind, size, stored, file.tell(), header)
            _check(page, file, chunk, column)
            if kind != _DICTIONARY:
                seen += page.values
            yield page


def _check(page: _Page, file: BinaryIO, chunk: Any, column: Any) -> None:
    if page.size > MAX_PARQUET_PAGE_BYTES:
        limit = MAX_PARQUET_PAGE_BYTES
        raise Invalid(f"a page has {page.size} bytes once it is decompressed, and at most {limit} are taken: {_WORDS}")
    if page.values < 0:
        raise Invalid("the header of a page is damaged")
    if page.kind == _DICTIONARY and page.values > MAX_PARQUET_DICTIONARY_VALUES:
        raise Invalid(f"its dictionary has {page.values} values, at most {MAX_PARQUET_DICTIONARY_VALUES} are taken")
    if page.kind != _DICTIONARY and page.encoding in (_DELTA_LENGTH, _DELTA_PREFIXES):
        if page.values > MAX_PARQUET_HEADERS:
            raise Invalid(f"a page has {page.values} values, and at most {MAX_PARQUET_HEADERS} are taken: {_WORDS}")
        _check_lengths(page, _values_of(page, file, chunk, column))


def _values_of(page: _Page, file: BinaryIO, chunk: Any, column: Any) -> bytes:
    """Return the values of a page, decompressed, without levels."""
    import pyarrow as pa

    data = file.read(page.stored)
    levels = int(page.header.get(5, 0)) + int(page.header.get(6, 0)) if page.kind == _DATA_V2 else 0
    compressed = chunk.compression != "UNCOMPRESSED" and (page.kind == _DATA or page.header.get(7, True))
    if not 0 <= levels <= min(page.size, page.stored):
        raise Invalid("the header of a page is damaged")
    data = data[levels:]
    if compressed and data:
        name = {"LZ4": "lz4_raw"}.get(chunk.compression, chunk.compression.lower())
        data = pa.Codec(name).decompress(data, page.size - levels, asbytes=True)
    if page.kind == _DATA_V2:
        return data
    for most, encoding in ((column.max_repetition_level, 4), (column.max_definition_level, 3)):
        if most:
            if page.header.get(encoding, _RLE) != _RLE:
                raise Invalid("its levels have an encoding that is not read")
            data = data[4 + int.from_bytes(data[:4], "little") :]
    return data


def _check_lengths(page: _Page, data: bytes) -> None:
    """Arrow makes room for as many lengths as the values say themselves: not more than the page may have."""
    at = _lengths_end(data, 0, page.values)
    if page.encoding == _DELTA_PREFIXES:
        _lengths_end(data, at, page.values)


def _lengths_end(data: bytes, at: int, most: int) -> int:
    """Return where numbers of DELTA_BINARY_PACKED end.  Raises Invalid for more than `most`."""
    block, at = _varint(data, at)
    parts, at = _varint(data, at)
    count, at = _varint(data, at)
    _, at = _varint(data, at)
    if count > most or not parts or block < parts:
        raise Invalid(f"its lengths are damaged: {count} of {most} values")
    left, of_part = count - 1, block // parts
    while left > 0:
        _, at = _varint(data, at)
        widths = data[at : at + parts]
        at += parts
        for width in widths:
            if left <= 0:
                break
            at += width * of_part // 8
            left -= of_part
        if at > len(data):
            raise Invalid("its lengths are cut off")
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    for place in range(at, min(at + 10, len(data))):
        found |= (data[place] & 0x7F) << shift
        shift += 7
        if data[place] < 0x80:
            return found, place + 1
    raise Invalid("a number in it is cut off")


def _struct(file: BinaryIO, end: int, depth: int = 0) -> dict[int, Any]:
    """Return a struct of Thrift's compact protocol: numbers and structs by field; what else there is, is passed
    over."""
    if depth > _DEEPEST_HEADER:
        raise Invalid("the header of a page is damaged")
    found: dict[int, Any] = {}
    field = 0
    while head := _byte(file, end):
        field = field + (head >> 4) if head >> 4 else _zigzag(file, end)
        found[field] = _value(file, end, head & 15, depth)
    return found


def _value(file: BinaryIO, end: int, kind: int, depth: int) -> Any:
    if kind in (1, 2):
        return kind == 1
    if kind == 3:
        return _byte(file, end)
    if kind in (4, 5, 6):
        return _zigzag(file, end)
    if kind == 7:
        file.seek(8, 1)
    elif kind == 8:
        file.seek(_number(file, end), 1)
    elif kind in (9, 10):
        head = _byte(file, end)
        for _ in range(_number(file, end) if head >> 4 == 15 else head >> 4):
            if head & 15 in (1, 2):
                _byte(file, end)
            else:
                _value(file, end, head & 15, depth + 1)
    elif kind == 12:
        return _struct(file, end, depth + 1)
    else:
        raise Invalid("the header of a page is damaged")
    return None


def _byte(file: BinaryIO, end: int) -> int:
    found = file.read(1)
    if not found or file.tell() > end:
        raise Invalid("the header of a page is cut off")
    return found[0]


def _number(file: BinaryIO, end: int) -> int:
    found = 0
    for shift in range(0, 70, 7):
        byte = _byte(file, end)
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found
    raise Invalid("the header of a page is damaged")


def _zigzag(file: BinaryIO, end: int) -> int:
    found = _number(file, end)
    return (found >> 1) ^ -(found & 1)
