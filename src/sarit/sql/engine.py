"""SQL over relations: DuckDB, with the relations of a query's names registered as its tables.

It blocks, and knows neither asyncio nor a client: the console runs it in a process of its own, clients on a thread.
`interrupt` may be called from any other thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid, NotFound, SaritError, Unavailable
from sarit.sql.limits import QUERY_RESULT_BATCH_ROWS
from sarit.sql.meter import ScanMeter
from sarit.sql.sandbox import EngineSettings, open_engine
from sarit.sql.statement import explained, parse_query

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from sarit.sql.ports import Relation, Tables

# Schemas of DuckDB's own: a name in them is its business.
_OWN_SCHEMAS: Final = ("information_schema", "pg_catalog", "temp", "main", "system")


class Interrupted(Unavailable):
    """The query was interrupted."""


class Result:
    """The rows of a query, as they are computed.  Close it, or read it to its end."""

    def __init__(self, reader: pa.RecordBatchReader, meter: ScanMeter) -> None:
        self._reader = reader
        self.meter = meter

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._reader.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (batch := self.next()) is not None:
            yield batch

    def next(self) -> pa.RecordBatch | None:
        """Return the next rows; None at the end.  Raises what a scan raised, Invalid, Interrupted."""
        try:
            return self._reader.read_next_batch()
        except StopIteration:
            return None
        except Exception as error:
            raise translated(error, self.meter) from None

    def close(self) -> None:
        """End the query; its scans end, too."""
        self._reader.close()


class Engine:
    """One query engine, which runs one query at a time."""

    def __init__(
        self, tables: Tables, settings: EngineSettings | None = None, others: Mapping[str, Any] | None = None
    ) -> None:
        """Open the engine.  `others`: Arrow tables by names of the caller.  Raises MissingExtra, Invalid."""
        self._tables = tables
        self._settings = settings or EngineSettings()
        self._engine = open_engine(self._settings)
        self._registered = 0
        for name, table in (others or {}).items():
            try:
                self._engine.register(name, table)
            except Exception as error:
                self._engine.close()
                raise Invalid(f"the table {name} cannot be used in SQL, give one of Arrow: {error}") from None

    def run(self, sql: str, meter: ScanMeter | None = None) -> Result:
        """Begin a query; `meter` counts what it reads, and bounds it.

        Raises Invalid (wrong SQL, with its place), NotFound (a stream), Forbidden, TooMuch."""
        meter = meter or ScanMeter(self._settings.limit_bytes)
        try:
            statement = parse_query(self._engine, explained(sql))
            meter.ends_early = statement.ends_early
            relations = self._relations(statement.tables)
            for path, relation in relations.items():
                self._register(path, relation, meter)
            reader = self._engine.sql(sql).to_arrow_reader(QUERY_RESULT_BATCH_ROWS)
        except SaritError:
            raise
        except Exception as error:
            raise translated(self._with_place(sql, error), meter) from None
        return Result(reader, meter)

    def _with_place(self, sql: str, error: Exception) -> Exception:
        """Return an error of planning with its place in the query, which DuckDB names only if asked in another way."""
        import duckdb

        if isinstance(error, duckdb.BinderException | duckdb.CatalogException) and "\nLINE " not in str(error):
            try:
                self._engine.execute(sql)
            except duckdb.Error as again:
                return again
        return error

    def interrupt(self) -> None:
        """End the query under way, which then raises Interrupted; called on any thread."""
        self._engine.interrupt()

    def close(self) -> None:
        """Release the engine's memory and files."""
        self._engine.close()

    def _relations(self, paths: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], Relation]:
        found: dict[tuple[str, ...], Relation] = {}
        seen: dict[tuple[str, ...], tuple[str, ...]] = {}
        for path in paths:
            name = path
            if len(path) == 1 and path[0].count("/") == 1 and not path[0].startswith((".", "/")):
                name = tuple(path[0].split("/"))
            if len(name) != 2 or name[0].lower() in _OWN_SCHEMAS:
                continue  # a common table expression, a file, or a mistake that DuckDB names
            relation = self._tables.find(name)
            if relation is None and len(path) == 1:
                continue  # a file in a directory
            if relation is None:
                raise NotFound(_unknown(name, self._tables.near(name)))
            folded = tuple(part.lower() for part in path)
            if seen.setdefault(folded, path) != path:
                raise Invalid(
                    f"{'.'.join(path)} and {'.'.join(seen[folded])} differ in case alone: SQL takes them for one"
                )
            found[path] = relation
        return found

    def _register(self, path: tuple[str, ...], relation: Relation, meter: ScanMeter) -> None:
        from sarit.sql.scans import ROW, RelationDataset

        self._registered += 1
        hidden = f"__relation_{self._registered}"
        self._engine.register(hidden, RelationDataset(relation, meter))
        if len(path) == 2:
            self._engine.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(path[0])}")
        name = ".".join(map(quoted, path))
        self._engine.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT * EXCLUDE ({ROW}) FROM {hidden}")


def quoted(name: str) -> str:
    """Return a name as SQL has it, whatever it contains."""
    return '"' + name.replace('"', '""') + '"'


def _unknown(name: Sequence[str], near: Sequence[str]) -> str:
    proposal = f"; near it: {', '.join(near)}" if near else ""
    return f"there is no stream or table {'.'.join(name)}{proposal}"


def translated(error: Exception, meter: ScanMeter) -> BaseException:
    """Return an error of the engine as one of ours: the failure of a scan itself, if there was one."""
    import duckdb

    if meter.failure is not None:
        return meter.failure
    text = str(error).strip()
    if isinstance(error, duckdb.InterruptException) or "INTERRUPT" in text:
        return Interrupted("the query was interrupted")
    if isinstance(error, duckdb.OutOfMemoryException) or text.startswith("Out of Memory"):
        return Invalid(f"the query needs more memory than it may use, or than fits its spill directory: {text}")
    if isinstance(error, duckdb.CatalogException) and "Table with name" in text:
        return NotFound(f"{text.partition(chr(10))[0]}  (a stream is named scope.stream)")
    return Invalid(text)
