"""Columns that also hold what later columns hold: how the schema of a table follows that of its events.

The columns of two schemas, by name at every level: those of the first one in their order, then those that only the
second one has.  A column that one of them lacks may be null.  A type widens within its own family alone, as tables of
Iceberg allow: integers to more bits, `float` to `double`, decimals of one scale to more digits.  Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sarit.core.errors import Invalid
from sarit.schemas.column_types import sql_name
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_FAMILIES: Final = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
)


def wider(old: pa.Schema, new: pa.Schema) -> pa.Schema:
    """Return columns that hold the values of two schemas.  Raises Invalid with the column whose types have no such one.

    Large texts, bytes and lists are taken for small ones, and metadata are dropped.  The order of three or more schemas
    matters for the order of columns alone, and how they are grouped does not matter."""
    return pa.schema(_fields(old, new, ""))


def grown(known: pa.Schema, found: pa.Schema) -> pa.Schema:
    """Return `known` with the columns that only `found` has, and wider where both can be; another type stays as it is.

    For columns that are inferred from samples: a value that does not fit the known type makes its own row bad."""
    return pa.schema(_grown(known, found))


def _grown(known: Iterable[pa.Field], found: Iterable[pa.Field]) -> list[pa.Field]:
    before, after = _by_name(known, ""), _by_name(found, "")
    made = []
    for name in {**before, **after}:
        first, second = before.get(name), after.get(name)
        kinds = [one.type for one in (first, second) if one is not None]
        made.append(pa.field(name, _grown_type(kinds[0], kinds[-1])))
    return made


def _grown_type(known: pa.DataType, found: pa.DataType) -> pa.DataType:
    types = pa.types
    known, found = small_type(known), small_type(found)
    if types.is_struct(known) and types.is_struct(found):
        return pa.struct(_grown(known, found))
    if types.is_list(known) and types.is_list(found):
        return pa.list_(known.value_field.with_type(_grown_type(known.value_type, found.value_type)))
    try:
        return _type(known, found, "")
    except Invalid:
        return known


def _fields(old: Iterable[pa.Field], new: Iterable[pa.Field], path: str) -> list[pa.Field]:
    before, after = _by_name(old, path), _by_name(new, path)
    found: list[pa.Field] = []
    for name in {**before, **after}:
        first, second = before.get(name), after.get(name)
        if first is None or second is None:
            found.extend(pa.field(name, small_type(one.type)) for one in (first, second) if one is not None)
        else:
            kind = _type(first.type, second.type, f"{path}{name}")
            found.append(pa.field(name, kind, nullable=first.nullable or second.nullable))
    return found


def _by_name(fields: Iterable[pa.Field], path: str) -> dict[str, pa.Field]:
    found: dict[str, pa.Field] = {}
    for one in fields:
        if one.name in found:
            raise Invalid(f"column {shown(path + one.name)} is there twice")
        found[one.name] = one
    return found


def _type(old: pa.DataType, new: pa.DataType, path: str) -> pa.DataType:
    types = pa.types
    old, new = small_type(old), small_type(new)
    if types.is_struct(old) and types.is_struct(new):
        return pa.struct(_fields(old, new, f"{path}."))
    if types.is_list(old) and types.is_list(new):
        return pa.list_(_inner(old.value_field, new.value_field, f"{path}[]"))
    if types.is_map(old) and types.is_map(new) and old.key_type == new.key_type:
        return pa.map_(old.key_field, _inner(old.item_field, new.item_field, f"{path}{{}}"))
    if old == new:
        return old
    if types.is_decimal128(old) and types.is_decimal128(new) and old.scale == new.scale:
        return pa.decimal128(max(old.precision, new.precision), old.scale)
    for family in _FAMILIES:
        if old in family and new in family:
            return max(old, new, key=family.index)
    raise Invalid(
        f"column {shown(path)} is {shown(sql_name(old))}, which cannot be widened to {shown(sql_name(new))}: only "
        "integers to larger ones, float to double and decimals of one scale to more digits can"
    )


def _inner(old: pa.Field, new: pa.Field, path: str) -> pa.Field:
    return pa.field(old.name, _type(old.type, new.type, path), nullable=old.nullable or new.nullable)


def small_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with texts, bytes and lists of 32-bit offsets at every level, and without metadata of fields."""
    types = pa.types
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_small_field(kind.value_field))
    if types.is_map(kind):
        return pa.map_(_small_field(kind.key_field), _small_field(kind.item_field))
    if types.is_struct(kind):
        return pa.struct([_small_field(one) for one in kind])
    return kind


def _small_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, small_type(field.type), nullable=field.nullable)


def widened(columns: Sequence[pa.Array], schema: pa.Schema, target: pa.Schema) -> list[pa.Array]:
    """Return the columns of `schema` as those of `target`, which is `wider` of it and others.

    Columns and fields that are not there are null.  `target` may have large types."""
    rows = len(columns[0]) if columns else 0
    found = dict(zip(schema.names, columns, strict=True))
    return [_cast(found[one.name], one.type) if one.name in found else pa.nulls(rows, one.type) for one in target]


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values as a wider type; structs get nulls for fields that they lack (Arrow 17 does not give them)."""
    types = pa.types
    if types.is_struct(kind):
        found = {values.type.field(at).name: one for at, one in enumerate(values.flatten())}
        parts = [
            _cast(found[one.name], one.type) if one.name in found else pa.nulls(len(values), one.type) for one in kind
        ]
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if types.is_list(kind) or types.is_large_list(kind):
        large = types.is_large_list(kind)
        made = pa.LargeListArray if large else pa.ListArray
        inner = _cast(pc.list_flatten(values), kind.value_type)
        return made.from_arrays(_offsets(values, np.int64 if large else np.int32), inner, type=kind)
    if types.is_map(kind):
        entries = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
        keys, items = pc.list_flatten(entries).flatten()
        offsets = _offsets(entries, np.int32)
        return pa.MapArray.from_arrays(offsets, _cast(keys, kind.key_type), _cast(items, kind.item_type), type=kind)
    return values if values.type == kind else values.cast(kind)


def _offsets(values: pa.Array, kind: Any) -> pa.Array:
    """Return where each list begins when they are put one after the other; a null list has none."""
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(kind)
    nulls = np.append(values.is_null().to_numpy(zero_copy_only=False), False)  # the end is none
    return pa.array(starts, mask=nulls) if values.null_count else pa.array(starts)


__all__ = ["grown", "small_type", "widened", "wider"]
