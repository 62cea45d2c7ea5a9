"""Relations in memory: a table of Arrow, cut into parts whose bounds are those of its rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sarit.sql.ports import Part
from sarit.sql.rows import SARIT_TYPE, TIME

MINUTE_US = 60_000_000


def rows_table(rows, schema=None):
    """A table of rows (segment, offset, ingested in microseconds or None, value)."""
    sarit = pa.array(
        [{"segment": segment, "offset": offset, "key": f"key {segment}"} for segment, offset, _, _ in rows], SARIT_TYPE
    )
    ingested = pa.array([at for _, _, at, _ in rows], pa.int64()).cast(TIME)
    parts = [ingested if field.name == "ingested" else sarit.field(field.name) for field in SARIT_TYPE]
    whole = pa.StructArray.from_arrays(parts, fields=list(SARIT_TYPE))
    return pa.table({"sarit": whole, "value": pa.array([value for *_, value in rows], pa.binary())}, schema)


class MemoryRelation:
    """`bounds`: whether its parts have any; what was read is counted."""

    def __init__(self, table, part_rows=3, *, bounds=True, failure=None):
        self.schema = table.schema
        self._slices = [table.slice(at, part_rows) for at in range(0, table.num_rows, part_rows)]
        self.parts = tuple(_part(number, part, bounds=bounds) for number, part in enumerate(self._slices))
        self.read_numbers = []
        self.read_columns = []
        self._failure = failure

    def read(self, numbers, columns):
        self.read_numbers += numbers
        self.read_columns.append(tuple(columns))
        tops = list(dict.fromkeys(name.split(".")[0] for name in columns))
        for number in numbers:
            if self._failure is not None:
                raise self._failure
            yield from self._slices[number].select(tops).combine_chunks().to_batches()


class MemoryTables:
    """Relations by path; `asked`: the paths that `find` was called with."""

    def __init__(self, relations, near=()):
        self._relations = relations
        self._near = near
        self.asked = []

    def find(self, path):
        self.asked.append(tuple(path))
        return self._relations.get(tuple(path))

    def near(self, path):
        return self._near


def _part(number, table, *, bounds):
    if not bounds:
        return Part(number, table.num_rows)
    sarit = table.column("sarit").combine_chunks()
    segments = set(sarit.field("segment").to_pylist())
    offsets = sarit.field("offset").to_pylist()
    times = sarit.field("ingested").cast(pa.int64())
    known = None if times.null_count else (pc.min(times).as_py(), pc.max(times).as_py())
    segment = segments.pop() if len(segments) == 1 else None
    return Part(number, table.num_rows, segment, min(offsets), max(offsets) + 1, known)
