"""A query by a client: the engine on a thread of its own, which reads streams by the event loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from sarit.client.queries.access import QueryAccess
from sarit.client.queries.loop_bridge import LoopBridge
from sarit.client.queries.tables import ClientTables
from sarit.client.queries.values import ValueOptions, Values
from sarit.core.errors import Invalid, TimedOut
from sarit.core.extras import require
from sarit.env.background import shielded
from sarit.sql.meter import ScanMeter
from sarit.sql.sandbox import EngineSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    import pyarrow as pa

    from sarit.client.core.values import Cut
    from sarit.client.session.session import Session
    from sarit.sql.engine import Engine, Result

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """How a query runs.

    `start`, `end`: between which cuts of each stream; a number is a time, in milliseconds since 1970.  `timeout`: after
    how many seconds it ends with TimedOut.
    `tables`: Arrow tables by the names that the query has for them.  `values`: which columns streams have.
    `catalogs`: of Iceberg, where tables of streams are."""

    settings: EngineSettings = field(default_factory=EngineSettings)
    start: Cut | int = "head"
    end: Cut | int = "tail"
    timeout: float | None = None
    tables: Mapping[str, Any] = field(default_factory=dict)
    values: Values = field(default_factory=ValueOptions)
    catalogs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


async def batches(
    session: Session, sql: str, options: QueryOptions, meter: ScanMeter | None = None
) -> AsyncGenerator[pa.RecordBatch, None]:
    """Yield the result of a query: at least one batch, whose schema says which columns it has.

    `meter`: counts what the query plans and reads, meanwhile.

    Raises Invalid (wrong SQL), NotFound, Forbidden, TooMuch, TimedOut, MissingExtra, Unavailable."""
    require("sql", "SQL over streams")
    query = _Query(session, sql, options, meter or ScanMeter(options.settings.limit_bytes))
    try:
        yield await query.begin()
        while (batch := await query.next()) is not None:
            yield batch
    finally:
        await query.close()


class _Query:
    """One query under way, on its thread."""

    def __init__(self, session: Session, sql: str, options: QueryOptions, meter: ScanMeter) -> None:
        self._session = session
        self._sql = sql
        self._options = options
        self._meter = meter
        self._bridge = LoopBridge()
        self._worker = session.env.threads.worker("sql")
        self._engine: Engine | None = None
        self._result: Result | None = None
        self._late = False
        seconds = options.timeout
        self._timer = None if seconds is None else session.loop.call_later(seconds, self._time_out)

    async def begin(self) -> pa.RecordBatch:
        """Begin the query; return a batch without rows, which has the columns of the result."""
        await self._run(self._begin)
        assert self._result is not None
        return _empty(self._result.schema)

    async def next(self) -> pa.RecordBatch | None:
        """Return the next rows; None at the end."""
        assert self._result is not None
        return await self._run(self._result.next)

    async def close(self) -> None:
        """End the query, whether it is done or not, and its thread.

        The thread is waited for: a process that ends while the engine runs in it is aborted."""
        if self._timer is not None:
            self._timer.cancel()
        self._stop()
        await shielded(self._session.background.spawn(self._end(), "end the thread of a query"))

    async def _end(self) -> None:
        try:
            await self._worker.run(self._release)
        finally:
            await self._worker.close()

    async def _run(self, call: Callable[[], T]) -> T:
        try:
            return await self._worker.run(call)
        except Exception:
            if self._late:
                raise TimedOut(f"the query was not done after {self._options.timeout:g} seconds") from None
            raise

    def _time_out(self) -> None:
        self._late = True
        self._stop()

    def _stop(self) -> None:
        if self._engine is not None:
            self._engine.interrupt()
        self._bridge.close()

    # -- on the thread --------------------------------------------------------------------------

    def _begin(self) -> None:
        from sarit.sql.engine import Engine

        options = self._options
        tables = ClientTables(
            QueryAccess(self._session, self._bridge, self._meter),
            options.start,
            options.end,
            options.values,
            options.catalogs,
        )
        self._engine = Engine(tables, options.settings, options.tables)
        self._result = self._engine.run(self._sql, self._meter)

    def _release(self) -> None:
        if self._result is not None:
            self._result.close()
        if self._engine is not None:
            self._engine.close()


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows.  Raises Invalid: a column is of a type that Arrow for Python does not have."""
    import pyarrow as pa

    for column in schema:
        try:
            pa.array([], column.type)
        except (pa.ArrowException, NotImplementedError):
            raise Invalid(f"the column {column.name} of the result is of type {column.type}: cast it") from None
    return pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema=schema)


async def table_of(session: Session, sql: str, options: QueryOptions) -> pa.Table:
    """Return the whole result of a query.  Raises what `batches` raises."""
    import pyarrow as pa

    found = [batch async for batch in batches(session, sql, options)]
    return pa.Table.from_batches(found)
