"""Results of queries as text: values of Arrow as JSON has them, and rows as CSV.

What JSON cannot carry is text: whole numbers that a browser would round, decimals, times (UTC), and numbers that are
not finite.  Bytes are text where they are UTF-8, else hexadecimal after `\\x`.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sarit.core.errors import Invalid
from sarit.core.texts import cut_text
from sarit.sql.limits import MAX_QUERY_COLUMNS, MAX_QUERY_TYPE_CHARS, SHORT_CELL_CHARS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SAFE_WHOLE: Final = 1 << 53  # JavaScript's numbers are exact up to here
_CUT: Final = "…"
# In a cell of CSV they need quotes around the cell.
_QUOTED_IN_CSV: Final = frozenset(',"\r\n')


def columns_of(schema: pa.Schema) -> list[dict[str, Any]]:
    """Return name, type and alignment of each column.  Raises Invalid: too many."""
    if len(schema) > MAX_QUERY_COLUMNS:
        raise Invalid(f"the result has {len(schema):,} columns, of at most {MAX_QUERY_COLUMNS:,}: name those you need")
    return [
        {
            "name": cut_text(field.name, MAX_QUERY_TYPE_CHARS),
            "type": cut_text(str(field.type), MAX_QUERY_TYPE_CHARS),
            "number": pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
            or pa.types.is_decimal(field.type),
        }
        for field in schema
    ]  # fmt: skip


def row_texts(batch: pa.RecordBatch, cell_chars: int, row_bytes: int) -> Iterator[str]:
    """Yield each row as a JSON array.  Cells end after `cell_chars`, and earlier in a row above `row_bytes`."""
    columns = [_cells(column, cell_chars) for column in batch.columns]
    for row in zip(*columns, strict=True) if columns else ():
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
        if len(text) > row_bytes:
            text = json.dumps([_cut(cell, SHORT_CELL_CHARS) for cell in row], ensure_ascii=False)
        yield text


def csv_head(schema: pa.Schema) -> str:
    """Return the first line of CSV: the names of the columns."""
    return _csv_line(schema.names)


def csv_lines(batch: pa.RecordBatch) -> Iterator[str]:
    """Yield each row as a line of CSV (RFC 4180): null is nothing between two commas, an empty text is quoted."""
    for row in zip(*(map(_text, values(column)) for column in batch.columns), strict=True):
        yield _csv_line(row)


def _csv_line(cells: Sequence[str | None]) -> str:
    return ",".join(map(_csv_cell, cells)) + "\r\n"


def _csv_cell(cell: str | None) -> str:
    if cell is None:
        return ""
    if cell and _QUOTED_IN_CSV.isdisjoint(cell):
        return cell
    return '"' + cell.replace('"', '""') + '"'


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _cells(column: pa.Array, cell_chars: int) -> list[Any]:
    """Return a column's cells: numbers, truth values, None, and texts of at most `cell_chars` and a sign of the cut."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = pc.utf8_slice_codeunits(column, 0, cell_chars + 1)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        column = pc.binary_slice(column, 0, cell_chars + 1)
    return [_cut(value, cell_chars) for value in values(column)]


def _cut(value: Any, chars: int) -> Any:
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and len(value) > chars:
        return value[:chars] + _CUT
    return value


def values(column: pa.Array) -> list[Any]:
    """Return the values of an array as JSON has them.

    Types of time are not made Python's, which have smaller ranges, and need files of time zones."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return values(column.dictionary_decode())
    if isinstance(column, pa.ExtensionArray):
        return values(column.storage)
    if pa.types.is_struct(kind):
        return _structs(column)
    if pa.types.is_map(kind):
        return _maps(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(column)
    if pa.types.is_integer(kind):
        return [v if v is None or -_SAFE_WHOLE <= v <= _SAFE_WHOLE else str(v) for v in column.to_pylist()]
    if pa.types.is_floating(kind):
        return [_float(v) for v in column.to_pylist()]
    if pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return list(column.to_pylist())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return [None if v is None else _bytes(v) for v in column.to_pylist()]
    return _by_cast(column)


def _by_cast(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        naive = column.cast(pa.timestamp(kind.unit))
        return [None if v is None else f"{v}Z" for v in _strings(naive)]
    return _strings(column)


def _strings(column: pa.Array) -> list[Any]:
    if column.type == pa.month_day_nano_interval():
        return [None if value is None else _interval(*value) for value in column.to_pylist()]
    try:
        return list(column.cast(pa.string()).to_pylist())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return [str(value) if value.is_valid else None for value in column]


def _structs(column: pa.StructArray) -> list[Any]:
    names = [field.name for field in column.type]
    children = [values(column.field(place)) for place in range(len(names))]
    rows = zip(*children, strict=True) if children else ((),) * len(column)
    return _where_valid(column, [dict(zip(names, row, strict=True)) for row in rows])


def _lists(column: pa.Array) -> list[Any]:
    if pa.types.is_fixed_size_list(column.type):
        size = column.type.list_size
        found = values(column.values.slice(column.offset * size, len(column) * size))
        return _where_valid(column, [found[place * size : (place + 1) * size] for place in range(len(column))])
    return _where_valid(column, _pieces(column, column.values))


def _maps(column: pa.MapArray) -> list[Any]:
    keys, items = _pieces(column, column.keys), _pieces(column, column.items)
    return _where_valid(
        column,
        [
            [{"key": key, "value": item} for key, item in zip(some, others, strict=True)]
            for some, others in zip(keys, items, strict=True)
        ],
    )


def _pieces(column: pa.Array, children: pa.Array) -> list[list[Any]]:
    """Return the children of each element of a list."""
    offsets = column.offsets.to_pylist()
    first = offsets[0]
    found = values(children.slice(first, offsets[-1] - first))
    return [found[start - first : end - first] for start, end in itertools.pairwise(offsets)]


def _where_valid(column: pa.Array, found: list[Any]) -> list[Any]:
    if not column.null_count:
        return found
    return [value if valid else None for value, valid in zip(found, column.is_valid().to_pylist(), strict=True)]


def _float(value: float | None) -> Any:
    return value if value is None or math.isfinite(value) else str(value)


def _bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "\\x" + value.hex()


def _interval(months: int, days: int, nanoseconds: int) -> str:
    """Return an interval as SQL has it: months and days, whose lengths differ, and the time."""
    seconds, part = divmod(abs(nanoseconds), 10**9)
    sign = "-" if nanoseconds < 0 else ""
    time = (
        f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{f'.{part:09}'.rstrip('0').rstrip('.')}"
    )
    parts = [f"{count} {unit}" for count, unit in ((months, "months"), (days, "days")) if count]
    return " ".join([*parts, time] if nanoseconds or not parts else parts)
