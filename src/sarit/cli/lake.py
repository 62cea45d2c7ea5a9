"""`sarit lake`: streams that are Iceberg tables."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import click

import sarit
from sarit.cli.iceberg_options import table_lines
from sarit.cli.job_status import lag_bytes, replace_job
from sarit.cli.limits import LAKE_POLL_SECONDS, MAX_DEAD_LETTERS_SHOWN
from sarit.cli.names import SCOPE, STREAM
from sarit.cli.options import Commands, confirm, controller_option, count_of, format_option, show, show_rows, yes_option
from sarit.client.streams.iceberg import ICEBERG_JOB, table_of
from sarit.core.errors import Invalid, NotFound, SaritError, TimedOut, Unavailable
from sarit.core.names import is_user_name
from sarit.core.texts import cut_text
from sarit.env.real import real_env
from sarit.lake.catalogs import open_catalog, read_catalogs
from sarit.lake.problems import name_in
from sarit.lake.settings import DEAD_LETTERS_SUFFIX, IcebergSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.cli.options import Command
    from sarit.client.blocking.client import Client
    from sarit.client.streams.iceberg import IcebergTable
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName

_MS_PER_SECOND = 1000


@click.group(cls=Commands)
def lake() -> None:
    """List and inspect streams that are Iceberg tables, go on after a problem, and maintain tables.

    `sarit stream update NAME --iceberg CATALOG.NAMESPACE.TABLE` makes a stream a table."""


def _catalogs_option(command: Command) -> Command:
    return click.option(
        "--catalogs",
        type=click.Path(dir_okay=False, path_type=Path),
        required=True,
        envvar="SARIT_CATALOGS",
        show_envvar=True,
        metavar="FILE",
        help="The file of catalogs that the node has, too: this command asks the catalog itself.",
    )(command)


_table_argument = click.argument("table", metavar="CATALOG.NAMESPACE.TABLE")


@lake.command("list")
@click.argument("scope", type=SCOPE, required=False)
@controller_option
@format_option
def list_tables(scope: str | None, controller: str, output: str) -> None:
    """List the streams of SCOPE, or of all scopes, that are tables."""
    rows: list[dict[str, object]] = []
    with sarit.connect(controller) as client:
        scopes = [found for found in client.list_scopes() if is_user_name(found)] if scope is None else [scope]
        for name in (name for found in scopes for name in client.list_streams(found)):
            table = table_of(client.stream(name).jobs())
            if table is not None:
                lag = lag_bytes(client, name, table.job)
                row = {"stream": str(name), "table": table.settings.table, "state": table.job.state}
                rows.append(row | {"rows": table.progress.rows, "lag_bytes": lag, "problem": table.job.problem or None})
    shown = [row | {"lag": "-" if row["lag_bytes"] is None else row["lag_bytes"]} for row in rows]
    show_rows(output, rows if output == "json" else shown, ["stream", "table", "state", "rows", "lag"])


@lake.command()
@click.argument("name", type=STREAM)
@controller_option
@format_option
def info(name: StreamName, controller: str, output: str) -> None:
    """Show the table of SCOPE/STREAM: rows, lag, dead letters, the problem if there is one, and the choices."""
    with sarit.connect(controller) as client:
        table = _table(client, name)
        _show(name, table, lag_bytes(client, name, table.job), output)


@lake.command()
@click.argument("name", type=STREAM)
@click.option(
    "--timeout", type=click.FloatRange(0), default=300.0, show_default=True, metavar="SECONDS", help="How long at most."
)
@controller_option
@format_option
def wait(name: StreamName, timeout: float, controller: str, output: str) -> None:
    """Wait until everything that is in SCOPE/STREAM now is in its table."""
    clock = real_env().clock
    ends = clock.monotonic() + timeout
    with sarit.connect(controller) as client:
        tail = client.stream_info(name).tail
        while not _is_committed(client, name, table := _table(client, name), tail):
            if name_in(table.job.problem):  # until an operator decides, nothing is committed
                raise Invalid(f"nothing of {name} is committed: {table.job.problem}")
            if clock.monotonic() >= ends:
                why = f": {table.job.problem}" if table.job.problem else ""
                raise TimedOut(f"the table of {name} is still behind after {timeout:g} s{why}")
            Event().wait(LAKE_POLL_SECONDS)
        _show(name, table, lag_bytes(client, name, table.job), output)


def _is_committed(client: Client, name: StreamName, table: IcebergTable, tail: StreamCut) -> bool:
    """Return whether a table has everything of its stream before a cut."""
    since = sum(part.length for part in client.stream(name).batch(tail, "tail", skip_truncated=True).slices)
    lag = lag_bytes(client, name, table.job)  # asked after `since`: what is written in between makes it larger
    return lag is not None and lag <= since


@lake.command("resume-from")
@click.argument("name", type=STREAM)
@click.argument("where")
@yes_option
@controller_option
@format_option
def resume_from(name: StreamName, where: str, yes: bool, controller: str, output: str) -> None:
    """Go on committing SCOPE/STREAM from WHERE, after a problem that stopped it.

    WHERE is `table` (the cut that the table itself names now), `head`, `tail`, or the text of a stream cut.  Events
    between the table's cut and a later WHERE are never in the table; those after an earlier WHERE are in it twice."""
    if where == "table":
        question = f"go on with {name} at the cut that its table names?"
    else:
        question = f"go on with {name} at {cut_text(where, 80)}, whatever its table holds?"
    confirm(question, yes=yes)
    with sarit.connect(controller) as client:
        table = _table(client, name)
        new = replace(table.settings, resume_from=where).check()
        replace_job(client, name, ICEBERG_JOB, table.settings.encode(), new.encode())
    show(output, {"stream": str(name), "resumed_from": where}, f"stream {name} goes on from {cut_text(where, 80)}")


@lake.command()
@_table_argument
@_catalogs_option
@click.option(
    "--older-than", type=click.IntRange(0), default=86_400, show_default=True, metavar="SECONDS", help="Which ones."
)
@format_option
def expire(table: str, catalogs: Path, older_than: int, output: str) -> None:
    """Remove old snapshots of a table now, and the files that only they refer to.

    The node does it by itself, as `--iceberg-expire` of `sarit stream update` says.  The newest snapshot stays, and
    those of branches and tags."""
    from sarit.lake.maintenance import expire as expire_snapshots

    snapshots = files = 0
    with _opened(table, catalogs) as found:
        before_ms = real_env().clock.wall_ms() - older_than * _MS_PER_SECOND
        while (done := expire_snapshots(found, before_ms)).snapshots:
            snapshots, files = snapshots + done.snapshots, files + done.files
    text = f"{count_of(snapshots, 'snapshot')} of {table} removed, {count_of(files, 'file')} deleted"
    show(output, {"table": table, "snapshots": snapshots, "files": files}, text)


@lake.command("dead-letters")
@_table_argument
@_catalogs_option
@click.option(
    "--limit", type=click.IntRange(1, MAX_DEAD_LETTERS_SHOWN), default=20, show_default=True, help="How many at most."
)
@format_option
def dead_letters(table: str, catalogs: Path, limit: int, output: str) -> None:
    """Show events of a table's stream that could not become rows, and why.

    TABLE is the table itself or its table of dead letters.  All of them can be read there by SQL, too."""
    name = table if table.endswith(DEAD_LETTERS_SUFFIX) else table + DEAD_LETTERS_SUFFIX
    with _opened(name, catalogs, missing="there are no dead letters") as found:
        rows = found.scan(limit=limit).to_arrow().to_pylist()
    shown = [_letter(row) for row in rows]
    show_rows(output, shown, ["segment", "offset", "error", "raw"])


def _letter(row: dict[str, Any]) -> dict[str, object]:
    raw = bytes(row.get("raw") or b"")
    return {
        "segment": row.get("segment"),
        "offset": row.get("offset"),
        "error": row.get("error"),
        "raw": cut_text(raw.decode("utf-8", "backslashreplace").translate(_CONTROLS), 200),
    }


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 127)}


def _table(client: Client, name: StreamName) -> IcebergTable:
    found = table_of(client.stream(name).jobs())
    if found is None:
        raise Invalid(
            f"stream {name} is no Iceberg table: sarit stream update {name} --iceberg CATALOG.NAMESPACE.TABLE"
        )
    return found


def _show(name: StreamName, table: IcebergTable, lag: int | None, output: str) -> None:
    settings = table.settings
    choices = f"value {settings.value}, from the {settings.start}, a commit each {settings.interval_seconds} s or "
    choices += f"{settings.target_bytes:,} bytes"
    age = settings.expire_after_seconds
    choices += f", snapshots stay {age:,} s" if age else ", snapshots stay for ever"
    choices += ", times without zone" if settings.naive_times else ""
    choices += ", numbered metadata" if settings.numbered_metadata else ""
    lines = [("stream", str(name)), *table_lines(table, lag), ("choices", choices), ("worker", table.job.holder or "-")]
    text = "\n".join(f"{label:<10}{value}" for label, value in lines)
    show(output, {"stream": str(name), **table.document(lag)}, text)


@contextmanager
def _opened(table: str, path: Path, missing: str = "") -> Iterator[Any]:
    """Open a table of a catalog.  Raises Invalid, NotFound, Unavailable."""
    # A table of dead letters has a name that settings refuse.
    settings = IcebergSettings(table.removesuffix(DEAD_LETTERS_SUFFIX)).check()
    catalogs = read_catalogs(str(path))
    catalog = open_catalog(catalogs, settings.catalog)
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    with closing(catalog):
        try:
            yield catalog.load_table(tuple(table.split(".")[1:]))
        except (NoSuchTableError, NoSuchNamespaceError):
            raise NotFound(f"there is no table {table}" + (f": {missing}" if missing else "")) from None
        except SaritError:
            raise
        except Exception as error:
            text = catalogs.hide(f"{type(error).__name__}: {error}")
            raise Unavailable(f"table {table} cannot be used: {text}") from None
