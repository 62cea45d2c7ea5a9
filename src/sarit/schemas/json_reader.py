"""JSON payloads to columns.

*The fast way.*  Arrow's JSON reader takes a whole batch at once.  It is strict, and refuses what is not exactly of the
wanted type.  But it reads documents, not lines: one payload may hold two documents, and two payloads may make one.  So
each payload must begin with a bracket and end with one: then the documents of a payload end where it ends, as no JSON
has "}" and "{" beside each other within a document.  As many documents as payloads are then one document in each.  The
number of a payload, a member that is added to it, proves their order.

*The exact way.*  Where Arrow refuses a batch, smaller pieces of it are tried, and the pieces that it refuses are
decoded payload by payload (`json_values.py`).  Both ways give the same columns where the first gives any (a test
compares them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from sarit.schemas.json_values import JsonValues
from sarit.schemas.limits import MAX_JSON_BATCH_BYTES
from sarit.schemas.payloads import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEMBER: Final = r"^\{[ \t\r\n]*\""
_EMPTY: Final = r"^\{[ \t\r\n]*\}"
_END: Final = r"\}[ \t\r\n]*$"
_SPACE: Final = " \t\r\n"
# The texts of times that Arrow and Spark read alike; other texts are left to the exact way.
_DATE: Final = r"^\d{4}-\d{2}-\d{2}$"
_TIME: Final = r"^\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(\.\d{1,6})?"
_ZONE: Final = r"(Z|[+-](0\d|1[0-7]):[0-5]\d|[+-]18:00)"
_PIECES: Final = 16
_FEW: Final = 64


class _NotExact(Exception):
    """The fast way would not be exact."""


class JsonReader:
    """Decodes the fields of a schema."""

    def __init__(self, schema: pa.Schema, time_zone: str = "UTC") -> None:
        """`time_zone`: of times that name none.

        Raises Invalid for a field of a type that JSON does not have, and for an unknown zone."""
        self._schema = schema
        self._values = JsonValues(schema, time_zone)
        self._number = "row"
        while self._number in schema.names:
            self._number += "#"
        self._utc = time_zone == "UTC"
        types = [_fast_type(field.type) for field in schema]
        self._fast: pa.Schema | None = None
        if None not in types:
            names = [*schema.names, self._number]
            self._fast = pa.schema(list(zip(names, [*types, pa.int64()], strict=True)))

    def problem(self, payload: bytes) -> str:
        """Return what is wrong with a payload."""
        return self._values.row(payload)[1] or "nothing is wrong with it"

    def read(self, payloads: pa.Array) -> Rows:
        """Decode payloads, one row each."""
        pieces: list[Rows] = list(self._pieces(payloads))
        if len(pieces) == 1:
            return pieces[0]
        columns = [pa.concat_arrays(list(parts)) for parts in zip(*(piece.columns for piece in pieces), strict=True)]
        return Rows(columns, np.concatenate([piece.bad for piece in pieces]))

    def _pieces(self, payloads: pa.Array) -> Iterator[Rows]:
        count = len(payloads)
        if payloads.nbytes > MAX_JSON_BATCH_BYTES and count > 1:
            yield from self._pieces(payloads[: count // 2])
            yield from self._pieces(payloads[count // 2 :])
            return
        found = self._read_fast(payloads)
        if found is not None:
            yield found
            return
        step = max(_FEW, -(-count // _PIECES)) if self._fast is not None else max(count, 1)
        for first in range(0, max(count, 1), step):
            piece = payloads[first : first + step]
            fast = self._read_fast(piece) if step < count else None
            yield fast if fast is not None else self._read_exactly(piece)

    def _read_exactly(self, payloads: pa.Array) -> Rows:
        rows, bad = [], np.zeros(len(payloads), bool)
        for at, payload in enumerate(payloads.to_pylist()):
            row, problem = self._values.row(payload)
            rows.append(row)
            bad[at] = problem is not None
        columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(self._schema)]
        return Rows(columns, bad)

    def _read_fast(self, payloads: pa.Array) -> Rows | None:
        """Return the rows; None: Arrow cannot read all payloads exactly."""
        if self._fast is None or not len(payloads) or payloads.null_count:
            return None
        try:
            table = self._table(payloads)
            numbers = table.column(self._number)
            if len(table) != len(payloads) or not numbers.equals(pa.chunked_array([np.arange(len(payloads))])):
                return None
            columns = [
                _finished(_whole(table.column(at)), field.type, utc=self._utc) for at, field in enumerate(self._schema)
            ]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, _NotExact):
            return None
        return Rows(columns, np.zeros(len(payloads), bool))

    def _table(self, payloads: pa.Array) -> pa.Table:
        # The cast checks that they are UTF-8, which Arrow's reader does not.
        texts = payloads.cast(pa.large_binary()).cast(pa.large_string())
        if not pc.all(pc.match_substring_regex(texts, _END)).as_py():
            raise _NotExact
        members = pc.match_substring_regex(texts, _MEMBER)
        if not pc.all(members).as_py():
            texts = pc.utf8_ltrim(texts, _SPACE)
            members = pc.match_substring_regex(texts, _MEMBER)
            if not pc.all(pc.or_(members, pc.match_substring_regex(texts, _EMPTY))).as_py():
                raise _NotExact
        kind = pa.large_string()
        numbers = pa.array(np.arange(len(texts))).cast(kind)
        commas = pc.if_else(members, pa.scalar(",", kind), pa.scalar("", kind))
        longest = pc.max(pc.binary_length(texts)).as_py()  # an end for the slice below: Arrow fails without one
        rest = pc.binary_slice(texts.cast(pa.large_binary()), 1, longest).cast(kind)
        begin, end = pa.scalar(f'{{"{self._number}":', kind), pa.scalar("\n", kind)
        lines = pc.binary_join_element_wise(begin, numbers, commas, rest, end, pa.scalar("", kind))
        offsets = np.frombuffer(lines.buffers()[1], np.int64, len(lines) + 1, lines.offset * 8)
        data = lines.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        return arrow_json.read_json(
            pa.BufferReader(data),
            # Uses one block: where a block ends, Arrow would split a payload at a newline.
            arrow_json.ReadOptions(use_threads=False, block_size=data.size + 1),
            arrow_json.ParseOptions(explicit_schema=self._fast, unexpected_field_behavior="ignore"),
        )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _fast_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type that Arrow reads for a type: texts for times.  None: it has no exact way."""
    types = pa.types
    if types.is_date(kind) or types.is_timestamp(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_map(kind):
        return None
    if types.is_list(kind):
        element = _fast_type(kind.value_type)
        return None if element is None else pa.list_(pa.field("element", element))
    if types.is_struct(kind):
        found = [_fast_type(field.type) for field in kind]
        names = [field.name for field in kind]
        if None in found or len(set(names)) != len(names):
            return None
        return pa.struct(list(zip(names, found, strict=True)))
    return kind


def _finished(found: pa.Array, kind: pa.DataType, *, utc: bool) -> pa.Array:
    """Cast what Arrow has read to `kind`.  Raises _NotExact for texts that are not exactly a time."""
    types = pa.types
    if types.is_list(kind):
        flat = _finished(found.values, kind.value_type, utc=utc)
        mask = found.is_null() if found.null_count else None
        return pa.ListArray.from_arrays(pa.array(found.offsets.to_numpy()), flat, type=kind, mask=mask)
    if types.is_struct(kind):
        parts = [_finished(found.field(at), kind.field(at).type, utc=utc) for at in range(kind.num_fields)]
        if not parts:
            raise _NotExact
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=found.is_null() if found.null_count else None)
    if types.is_date(kind):
        _check(found, _DATE)
        return found.cast(kind)
    if types.is_timestamp(kind):
        # Requires that the times of a column all have a zone, or all have none.
        zoned = kind.tz is not None and not (utc and pc.all(pc.match_substring_regex(found, f"{_TIME}$")).as_py())
        _check(found, f"{_TIME}{_ZONE if zoned else ''}$")
        return found.cast(pa.timestamp("us", tz="UTC" if zoned else None)).cast(kind)
    if types.is_decimal(kind):
        # Checks the precision: Arrow has counted the written digits, not those that the scale adds.
        found.validate(full=True)
    return found if found.type == kind else found.cast(kind)


def _check(texts: pa.Array, pattern: str) -> None:
    if not pc.all(pc.match_substring_regex(texts, pattern)).as_py():
        raise _NotExact
