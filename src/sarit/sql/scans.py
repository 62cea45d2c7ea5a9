"""A relation as DuckDB reads it: an Arrow dataset, of which it asks columns and a filter for each scan.

DuckDB calls `scanner` once for each place of a query that reads the relation, with the columns that it needs there and
the filters that it has pushed down, which it does not check again.  So a scan must filter exactly: it leaves parts out
by their bounds, and filters the rows of the others by Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from sarit.sql.pruning import POSITION_FIELDS, SARIT, needed_columns, pruned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.compute as pc

    from sarit.sql.meter import ScanMeter
    from sarit.sql.ports import Relation

# The first column of what DuckDB sees, and hidden by a view: it reads the first one where a query needs none.
ROW: Final = "__row"


class RelationDataset(ds.Dataset):  # type: ignore[misc]
    """A relation in the place of an Arrow dataset: DuckDB asks for the class, and calls `schema` and `scanner`."""

    def __init__(self, relation: Relation, meter: ScanMeter) -> None:
        self._relation = relation
        self._meter = meter

    @property
    def schema(self) -> pa.Schema:
        """The columns of the relation, after the one that stands for a row."""
        return pa.schema([pa.field(ROW, pa.int8()), *self._relation.schema])

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any) -> Scan:
        """Begin a scan of some columns.  Raises TooMuch, and whatever the relation raises."""
        try:
            names = self.schema.names if columns is None else list(columns)
            schema = self._relation.schema
            parts = pruned(self._relation.parts, filter, schema)
            self._meter.plan(parts)
            needed = needed_columns(schema, names, filter) or [_cheapest(schema)]
            tops = list(dict.fromkeys(name.split(".")[0] if name not in schema.names else name for name in needed))
            source = pa.schema([pa.field(ROW, pa.int8()), *(schema.field(name) for name in tops)])
            batches = self._read([part.number for part in parts], needed, source)
            reader = pa.RecordBatchReader.from_batches(source, batches)
            if filter is not None or source.names != names:
                reader = ds.Scanner.from_batches(reader, columns=names, filter=filter).to_reader()
            return Scan(reader)
        except BaseException as error:
            self._meter.fail(error)
            raise

    def _read(self, numbers: Sequence[int], needed: Sequence[str], source: pa.Schema) -> Iterator[pa.RecordBatch]:
        if not numbers:
            return
        batches = self._relation.read(numbers, needed)
        try:
            for batch in batches:
                row = pa.nulls(batch.num_rows, pa.int8())
                yield pa.RecordBatch.from_arrays([row, *batch.columns], schema=source)
        except GeneratorExit:
            raise
        except BaseException as error:
            self._meter.fail(error)
            raise
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()


class Scan:
    """A scan in the place of Arrow's scanner."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns that it gives."""
        return self._reader.schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows."""
        return self._reader


def _cheapest(schema: pa.Schema) -> str:
    """Return the column to read when only rows are counted."""
    return f"{SARIT}.{POSITION_FIELDS[0]}" if SARIT in schema.names else str(schema.names[0])
