"""`sarit query`: SQL over streams."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sarit.cli import query_output
from sarit.cli.contexts import registry_for
from sarit.cli.limits import PROGRESS_POLL_SECONDS
from sarit.cli.near_names import NamedCommand
from sarit.cli.option_types import Memory
from sarit.cli.options import confirm, controller_option, count_of
from sarit.cli.pipes import end_interrupted
from sarit.cli.progress import Bar
from sarit.client.queries.follow import follow as followed
from sarit.client.queries.query import QueryOptions, batches
from sarit.client.queries.values import ValueOptions, http_schemas
from sarit.core.extras import require
from sarit.core.limits import MIB
from sarit.core.times import parse_time
from sarit.env.real import RealClock
from sarit.lake.catalogs import read_catalogs
from sarit.sql.limits import MAX_QUERY_CHARS, QUERY_MEMORY_BYTES, UNCONFIRMED_QUERY_BYTES
from sarit.sql.meter import ScanMeter, TooMuch
from sarit.sql.sandbox import EngineSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import pyarrow as pa


@click.command(cls=NamedCommand)
@click.argument("sql")
@click.option("--from", "start", default="head", show_default=True, metavar="head|CUT|TIME", help="Where to begin.")
@click.option("--to", "end", default="tail", show_default=True, metavar="tail|CUT|TIME", help="Where to end.")
@click.option(
    "--values",
    type=click.Choice(["auto", "schema", "json", "binary"]),
    default="auto",
    show_default=True,
    help="The columns of values: of the stream's schema if it has one, inferred from JSON, or one column value.",
)
@click.option("--registry", metavar="URL", help="Where the schemas of streams are, as of `sarit schema`.")
@click.option(
    "--format", "form", type=click.Choice(query_output.FORMATS), help="How to print the result.  [default: table]"
)
@click.option("-o", "--output-file", "file", type=click.Path(dir_okay=False), help="Write the result to this file.")
@click.option(
    "--limit-bytes",
    type=Memory(),
    default=UNCONFIRMED_QUERY_BYTES,
    show_default="1G",
    help="How much of streams the query may read; where it reads more, it asks.",
)
@click.option("--yes", is_flag=True, help="Do not ask: read as much as it takes.")
@click.option(
    "--memory", type=Memory(), default=QUERY_MEMORY_BYTES, show_default="1G", help="How much memory the query may use."
)
@click.option(
    "--spill",
    type=click.Path(file_okay=False),
    help="A directory for what exceeds the memory.  [default: the query fails then]",
)
@click.option("--follow", is_flag=True, help="Go on with what is appended: of filters and projections of one stream.")
@click.option(
    "--catalogs",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="SARIT_CATALOGS",
    show_envvar=True,
    metavar="FILE",
    help="The file of Iceberg catalogs that the node has, too: streams with a table in one are read with it.",
)
@click.option("--timeout", type=click.FloatRange(0, min_open=True), help="End the query after so many seconds.")
@controller_option
def query(
    sql: str,
    start: str,
    end: str,
    values: str,
    registry: str | None,
    form: str | None,
    file: str | None,
    limit_bytes: int,
    yes: bool,
    memory: int,
    spill: str | None,
    follow: bool,
    catalogs: Path | None,
    timeout: float | None,
    controller: str,
) -> None:
    """Answer a SELECT over streams; "-" reads it from standard input.

    A stream is a table named scope.stream, or "scope"."stream" where a name is no plain word.  Its columns are sarit (a
    struct of segment, offset, ingested, time, key and headers) and those of its values.  Files of this machine can be
    joined, as 'prices.parquet' or read_csv('prices.csv').  An event that does not fit its schema has no values.

    The query sees each stream as it is when the query begins.  Bounds of sarit.segment, sarit.offset and sarit.ingested
    lessen what is read; a query that reads more than --limit-bytes asks before.

    With --catalogs, a stream that is committed to an Iceberg table is the table and the stream's tail behind it: each
    event once, also those that the stream has no more.  Key-value tables are tables, too: key, value, version.
    """
    require("sql", "SQL over streams")
    text = sys.stdin.read(MAX_QUERY_CHARS + 1) if sql == "-" else sql
    chosen = _format_of(form, file)
    settings = EngineSettings(memory, None, spill, limit_bytes=None if yes else limit_bytes)
    context = click.get_current_context()
    how = ValueOptions(values, lambda header: http_schemas(registry_for(context, registry))(header))
    known = read_catalogs(None if catalogs is None else str(catalogs))
    options = QueryOptions(settings, _position(start), _position(end), timeout, values=how, catalogs=known)
    if follow:
        _check_follow(chosen, end)
    try:
        try:
            asyncio.run(_query(controller, text, options, chosen, file, follow=follow))
        except TooMuch as error:
            confirm(f"The query reads {_size(error.planned_bytes)} of streams.  Go on?", yes=yes)
            unbounded = replace(options, settings=replace(settings, limit_bytes=None))
            asyncio.run(_query(controller, text, unbounded, chosen, file, follow=follow))
    except KeyboardInterrupt:
        end_interrupted()


def _format_of(form: str | None, file: str | None) -> str:
    """Return the format as given, else by the name of the file.  Raises UsageError."""
    found = form or ("table" if file is None else query_output.SUFFIXES.get(Path(file).suffix))
    if found is None:
        raise click.UsageError(f"{file}: the name does not say the format; give --format")
    if file is None and found in ("parquet", "arrow") and sys.stdout.isatty():
        raise click.UsageError(f"--format {found} is not for a terminal: give --output-file FILE, or a pipe")
    return found


def _check_follow(form: str, end: str) -> None:
    """Raises UsageError: an option does not go with --follow."""
    if form == "parquet":
        raise click.UsageError("--follow does not end, and a Parquet file is whole at its end: choose another format")
    if end != "tail":
        raise click.UsageError("--follow does not end: leave --to away")


def _position(text: str) -> str | int:
    """Return a time in milliseconds since 1970; the text of any other position."""
    if text[:1].isdigit() or text.startswith("-") or text == "now":
        return parse_time(text, RealClock().wall_ms())
    return text


def _size(length: int) -> str:
    return f"{length / MIB:,.0f} MiB" if length >= MIB else f"{length:,} bytes"


async def _query(
    controller: str, sql: str, options: QueryOptions, form: str, file: str | None, *, follow: bool
) -> None:
    from sarit.client import aio

    async with await aio.connect(controller) as client:
        meter = ScanMeter(options.settings.limit_bytes)
        progress = _Progress(meter) if sys.stderr.isatty() and not follow else None
        ask = followed if follow else batches
        try:
            # What is printed ends the bar; a file is written beside it.
            printing = progress if file is None else None
            count = await _write(ask(client.session, sql, options, meter), form, file, printing, at_once=follow)
        finally:
            if progress is not None:
                await progress.end()
    if meter.undecoded:
        click.echo(f"sarit: {count_of(meter.undecoded, 'event')} did not fit the schema: the values are null", err=True)
    if form == "table" and sys.stdout.isatty():
        query_output.echo_rows(count)


async def _write(
    rows: AsyncGenerator[pa.RecordBatch, None],
    form: str,
    file: str | None,
    bar: _Progress | None,
    *,
    at_once: bool,
) -> int:
    count = 0
    async with aclosing(rows):
        # Nothing is opened before the query is known to be right.
        first = await anext(rows)
        with query_output.opened(file) as stream:
            output = query_output.output_of(form, stream, first.schema)
            async for batch in rows:
                if bar is not None:
                    await bar.end()
                output.write(batch)
                count += batch.num_rows
                if at_once and batch.num_rows:
                    output.flush()
                    stream.flush()
            output.end()
    return count


class _Progress:
    """A bar on standard error, from the moment at which the query knows what it reads."""

    def __init__(self, meter: ScanMeter) -> None:
        self._meter = meter
        self._task = asyncio.ensure_future(self._run())

    async def end(self) -> None:
        """End the bar; called once or more often."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        bar, planned, done = Bar(), 0, 0
        try:
            while True:
                await asyncio.sleep(PROGRESS_POLL_SECONDS)
                if self._meter.planned_bytes != planned:
                    planned, done = self._meter.planned_bytes, 0
                    bar.begin("reading", planned)
                bar.add(self._meter.read_bytes - done)
                done = self._meter.read_bytes
        finally:
            bar.end()
