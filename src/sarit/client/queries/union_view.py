"""Which streams have a table in a catalog that the caller knows, and the union of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.client.core.identity import creation_id
from sarit.client.core.segments import tail_cut
from sarit.client.queries.stream_relation import plan_stream, relation_of
from sarit.client.queries.values import ValueOptions
from sarit.client.streams.jobs import jobs
from sarit.core.errors import NotFound, Truncated
from sarit.lake.settings import IcebergSettings, decode_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.queries.access import QueryAccess
    from sarit.client.queries.stream_relation import StreamPlan
    from sarit.client.queries.union_relation import UnionRelation
    from sarit.client.queries.values import Values
    from sarit.client.session.session import Session
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName

ICEBERG_JOB: Final = "iceberg"


@dataclass(frozen=True, slots=True)
class CommittedStream:
    """A stream that a job commits to a table; `id`: its creation id, in hexadecimal digits."""

    name: StreamName
    id: str | None
    settings: IcebergSettings


async def table_of(
    session: Session, stream: StreamName, catalogs: Mapping[str, Mapping[str, str]]
) -> CommittedStream | None:
    """Return the stream with its table, if that is in one of the catalogs.  Raises Forbidden, Invalid."""
    try:
        for job in await jobs(session, stream):
            if job.kind == ICEBERG_JOB:
                settings = decode_settings(job.settings)
                if settings.catalog in catalogs:
                    found = await creation_id(session, stream.scope, stream=stream.stream)
                    return CommittedStream(stream, None if found is None else found.hex(), settings)
    except NotFound:
        pass
    return None


def union_of(
    access: QueryAccess, catalogs: Mapping[str, Mapping[str, str]], committed: CommittedStream, values: Values
) -> UnionRelation | None:
    """Return the union of the table and the tail behind it; None: nothing was committed yet.  Blocks.

    Raises TableProblem, Truncated (the stream was truncated behind the table's cut), Invalid, Unavailable."""
    from sarit.client.queries.union_relation import UnionRelation
    from sarit.lake.catalogs import Catalogs
    from sarit.lake.layout import SARIT
    from sarit.lake.table_reads import open_table

    settings = committed.settings
    # The table before the tail: what is committed in between is read from the stream.
    table = open_table(Catalogs(catalogs), settings, committed.id)
    if table is None or table.cut is None:
        return None
    table.plan()
    chosen = ValueOptions(settings.value, values.schemas if isinstance(values, ValueOptions) else None)
    plan = access.bridge.run(_plan_tail(access, table.cut, settings.table))
    known = table.schema.remove(table.schema.get_field_index(SARIT))
    tail = relation_of(access, plan, chosen, known=known, whole=True)
    return UnionRelation(access, table, tail, naive_times=settings.naive_times)


async def _plan_tail(access: QueryAccess, start: StreamCut, table: str) -> StreamPlan:
    try:
        return await plan_stream(access, start, await tail_cut(access.session, start.stream), whole=True)
    except Truncated as error:
        raise Truncated(
            f"table {table} and stream {start.stream} do not meet: events behind the table's cut were truncated before "
            f"they were committed.  Read the stream alone, without its catalog, or wait for the next commit, which "
            f"notes the gap: {error}",
            error.start_offset,
        ) from None
