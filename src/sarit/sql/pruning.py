"""Which parts of a relation a filter can leave out, and which columns it needs (pure).

DuckDB gives the filters of a scan as one expression of Arrow.  Arrow simplifies it by what is known of a part, as it
does with the statistics of Parquet files: a part is left out when the expression cannot be true for any row of it.
What Arrow does not understand leaves nothing out, so a part too many may be read, but never one too few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from sarit.sql.limits import MAX_PARTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.sql.ports import Part

SARIT: Final = "sarit"
# Fields of `sarit` that cost nothing to make: the others are inside of the events.
POSITION_FIELDS: Final = ("segment", "offset", "ingested")


def pruned(parts: Sequence[Part], condition: pc.Expression | None, schema: pa.Schema) -> list[Part]:
    """Return the parts that may have a row for which a condition holds."""
    found = list(parts)
    if condition is None or not found or len(found) > MAX_PARTS or SARIT not in schema.names:
        return found
    try:
        # Fragments that nobody opens: only what is known of them is compared.
        form, system = ds.ParquetFileFormat(), fs.LocalFileSystem()
        fragments = [
            form.make_fragment(str(place), filesystem=system, partition_expression=_known(part))
            for place, part in enumerate(found)
        ]
        dataset = ds.FileSystemDataset(fragments, schema, form, system)
        return [found[int(fragment.path)] for fragment in dataset.get_fragments(condition)]
    except (pa.ArrowException, TypeError):
        return found


def needed_columns(schema: pa.Schema, wanted: Sequence[str], condition: pc.Expression | None) -> list[str]:
    """Return the columns that a scan reads: those wanted, and those that its condition is about.

    Of `sarit` only the fields that cost nothing, when the condition is about no others."""
    needed = [
        name
        for name in schema.names
        if name in wanted or (condition is not None and not _binds(schema, name, condition))
    ]
    if SARIT in needed and SARIT not in wanted and condition is not None:
        place = schema.get_field_index(SARIT)
        cheap = pa.struct([field for field in schema.field(place).type if field.name in POSITION_FIELDS])
        if _holds(schema.set(place, pa.field(SARIT, cheap)), condition):
            needed[needed.index(SARIT) : needed.index(SARIT) + 1] = [f"{SARIT}.{name}" for name in POSITION_FIELDS]
    return needed


def _binds(schema: pa.Schema, without: str, condition: pc.Expression) -> bool:
    """Return whether a condition can do without a column."""
    return _holds(schema.remove(schema.get_field_index(without)), condition)


def _holds(schema: pa.Schema, condition: pc.Expression) -> bool:
    try:
        ds.dataset(schema.empty_table()).scanner(filter=condition)
    except (pa.ArrowException, KeyError):
        return False
    return True


def _known(part: Part) -> pc.Expression:
    """Return what holds for every row of a part."""
    known: list[pc.Expression] = []

    def add(field: str, low: Any, high: Any, *, strict: bool = False) -> None:
        reference = pc.field(SARIT, field)
        if low is not None and low == high:
            known.append(reference == low)
            return
        if low is not None:
            known.append(reference >= low)
        if high is not None:
            known.append(reference < high if strict else reference <= high)

    add("segment", part.segment, part.segment)
    add("offset", part.start, part.end, strict=True)
    if part.ingested_us is not None:
        add("ingested", *(pa.scalar(time, pa.timestamp("us", "UTC")) for time in part.ingested_us))
    whole = pc.scalar(True)
    for one in known:
        whole = whole & one if whole is not None else one
    return whole
