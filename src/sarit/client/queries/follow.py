"""A query over the tail of a stream: what is appended is asked again and again, each event once."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sarit.client.core.segments import resolve_cut, tail_cut
from sarit.client.limits import FOLLOW_POLL_SECONDS
from sarit.client.queries.query import batches
from sarit.core.cuts import StreamCut
from sarit.core.errors import Invalid, NotFound
from sarit.core.names import StreamName, is_user_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import pyarrow as pa

    from sarit.client.queries.query import QueryOptions
    from sarit.client.queries.values import Values
    from sarit.client.session.session import Session
    from sarit.serializers.payload_columns import PayloadColumns
    from sarit.sql.meter import ScanMeter


async def follow(
    session: Session, sql: str, options: QueryOptions, meter: ScanMeter
) -> AsyncGenerator[pa.RecordBatch, None]:
    """Yield the rows of a query from `options.start` on, and then those of what is appended, until the stream is
    sealed.

    All batches have the columns of the first one.  Raises NotFollowable, Truncated, and what `batches` raises; Invalid:
    the columns of the stream have changed."""
    name = await _stream_of(session, sql)
    start = await _begin(session, name, options)
    settings = replace(options.settings, limit_bytes=None)
    options = replace(options, settings=settings, values=_KeptValues(options.values), catalogs={})
    schema: pa.Schema | None = None
    while True:
        active = await session.with_retry(lambda: session.controller.current_segments(name))
        end = await tail_cut(session, name)
        if schema is None or end != start:
            found = replace(options, start=start, end=end)
            async with aclosing(batches(session, sql, found, meter)) as rows:
                async for batch in rows:
                    if schema is not None and batch.schema != schema:
                        raise Invalid(f"the columns of {name} have changed meanwhile: begin again at {start}")
                    schema = batch.schema
                    yield batch
            start = end
        elif not active:
            return
        else:
            await asyncio.sleep(FOLLOW_POLL_SECONDS)


@dataclass(slots=True)
class _KeptValues:
    """Columns of values that stay as they were chosen first, whatever is registered or inferred later."""

    options: Values
    kept: PayloadColumns | None = None

    def columns(self, *given: Any) -> PayloadColumns:
        """Return the columns; see `ValueOptions.columns`."""
        if self.kept is None:
            self.kept = self.options.columns(*given)
        return self.kept


async def _begin(session: Session, name: StreamName, options: QueryOptions) -> StreamCut:
    if isinstance(options.start, int):
        time_ms = options.start
        return StreamCut(name, await session.with_retry(lambda: session.controller.cut_at(name, time_ms)))
    found = await resolve_cut(session, name, options.start)
    if found is None:
        raise Invalid("a query that follows a stream begins at a cut: give one, head, tail or a time")
    return found


async def _stream_of(session: Session, sql: str) -> StreamName:
    """Return the stream that a query follows.  Raises NotFollowable, Invalid, NotFound."""
    worker = session.env.threads.worker("sql")
    try:
        path: Any = await worker.run(lambda: _followed(sql))
    finally:
        await worker.close()
    if len(path) == 1 and path[0].count("/") == 1:
        path = tuple(path[0].split("/"))
    if len(path) != 2 or not all(map(is_user_name, path)):
        raise NotFound(f"{'.'.join(path)} is no stream: name it as scope.stream")
    return StreamName(*path)


def _followed(sql: str) -> tuple[str, ...]:
    from sarit.sql.sandbox import EngineSettings, open_engine
    from sarit.sql.statement import followed_table

    engine = open_engine(EngineSettings(locked=True))
    try:
        return followed_table(engine, sql)
    finally:
        engine.close()
