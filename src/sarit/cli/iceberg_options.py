"""Options of a stream's Iceberg table, for `sarit stream create` and `sarit stream update`, and what they do."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from sarit.cli.job_status import replace_job, time_since
from sarit.cli.option_types import Memory
from sarit.cli.options import count_of
from sarit.client.streams.iceberg import ICEBERG_JOB, table_of
from sarit.core.errors import Invalid
from sarit.lake.problems import name_in
from sarit.lake.settings import STARTS, VALUE_CHOICES, IcebergSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.cli.options import Command
    from sarit.client.blocking.client import Client
    from sarit.client.streams.iceberg import IcebergTable
    from sarit.core.names import StreamName

_OPTIONS = (
    click.option(
        "--iceberg", "table", metavar="CATALOG.NAMESPACE.TABLE",
        help="Commit the events into this Iceberg table, which is created; CATALOG is a name that the operator of the "
        "node has given one.",
    ),
    click.option(
        "--iceberg-value", "value", type=click.Choice(VALUE_CHOICES),
        help="What payloads become: columns of the registered schema, columns of JSON, one column of bytes; auto: "
        "columns if the stream has a schema, else bytes.",
    ),
    click.option(
        "--iceberg-start", "start", type=click.Choice(STARTS),
        help="Where a new table begins: with the oldest event that there is (head), or with the next one (tail).",
    ),
    click.option(
        "--iceberg-interval", "interval_seconds", type=int, metavar="SECONDS",
        help="How long after a commit the next one is made; 60 without it.",
    ),
    click.option(
        "--iceberg-target", "target_bytes", type=Memory(), metavar="SIZE",
        help="How much is committed at once, and about the size of a file; 128M without it.",
    ),
    click.option(
        "--iceberg-expire", "expire_after_seconds", type=int, metavar="SECONDS",
        help="How long snapshots stay; 0: for ever; a day without it.",
    ),
    click.option(
        "--iceberg-naive-times/--no-iceberg-naive-times", "naive_times", default=None,
        help="Times without a zone, in UTC, for readers that know no zones, as Presto; for a new table.",
    ),
    click.option(
        "--iceberg-numbered-metadata/--no-iceberg-numbered-metadata", "numbered_metadata", default=None,
        help="Write version-hint.text and numbered copies of the metadata, for readers without a catalog, as Presto's "
        "HADOOP catalog; for a new table.",
    ),
)  # fmt: skip
_NAMES = tuple(IcebergSettings.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class IcebergChange:
    """The changes of a stream's table that a command line asks for.

    `given`: the fields of `IcebergSettings` that it names.  `ends`: the stream is to be no table any more."""

    given: Mapping[str, object]
    ends: bool = False

    def __bool__(self) -> bool:
        return bool(self.given) or self.ends


def iceberg_options(command: Command) -> Command:
    """Add the options of a table; the command gets them as `iceberg`, an `IcebergChange`."""

    @functools.wraps(command)
    def call(**options: Any) -> Any:
        given = {name: value for name in _NAMES if (value := options.pop(name, None)) is not None}
        ends = options.pop("no_iceberg", False)
        if ends and given:
            raise click.UsageError("--no-iceberg, or options of a table, not both")
        return command(**options, iceberg=IcebergChange(given, ends))

    made: Any = call
    for option in reversed(_OPTIONS):
        made = option(made)
    result: Command = made
    return result


no_iceberg_option = click.option(
    "--no-iceberg", is_flag=True, help="Commit no more events into the table, which stays as it is."
)


def new_settings(change: IcebergChange) -> IcebergSettings:
    """Return the settings of a table that does not exist.  Raises UsageError, Invalid."""
    if "table" not in change.given:
        raise click.UsageError("the options --iceberg-… need --iceberg CATALOG.NAMESPACE.TABLE: the stream is no table")
    given: Any = change.given
    return IcebergSettings(**given).check()


def change_table(client: Client, name: StreamName, change: IcebergChange) -> None:
    """Make a stream a table, change the choices of its table, or end it.  Raises UsageError, Invalid, NotFound."""
    handle = client.stream(name)
    found = table_of(handle.jobs())
    if change.ends:
        if found is None:
            raise Invalid(f"stream {name} is no Iceberg table")
        handle.delete_job(ICEBERG_JOB)
        return
    if found is None:
        handle.create_job(ICEBERG_JOB, new_settings(change).encode())
        return
    given: Any = change.given
    wanted = replace(found.settings, **given).check()
    if wanted.table != found.settings.table:
        raise Invalid(
            f"stream {name} is table {found.settings.table} already: end that first (sarit stream update {name} "
            "--no-iceberg), or name the same table to change its choices"
        )
    if found.progress.cut is not None:  # where it was to begin has been decided
        wanted = replace(wanted, resume_from="")
    if wanted != found.settings:
        replace_job(client, name, ICEBERG_JOB, found.settings.encode(), wanted.encode())


# -- what there is -------------------------------------------------------------------------------


def table_lines(table: IcebergTable, lag: int | None) -> list[tuple[str, str]]:
    """Return a table for people: labels with texts."""
    progress, settings = table.progress, table.settings
    lines = [("table", f"{settings.table} ({table.job.state})")]
    rows = f"{count_of(progress.rows, 'row')} in {count_of(progress.files, 'file')}"
    lines.append(("rows", f"{rows}, last commit {time_since(progress.committed_ms)}"))
    lines.append(("lag", "unknown" if lag is None else count_of(lag, "byte")))
    if progress.dead_letters:
        where = ".".join((settings.catalog, *settings.dead_letters))
        lines.append(("dead", f"{count_of(progress.dead_letters, 'event')} could not become rows: they are in {where}"))
    if progress.gap_bytes:
        lines.append(("gap", f"{count_of(progress.gap_bytes, 'byte')} were truncated before they were committed"))
    if table.job.problem:
        lines.append(("problem", table.job.problem))
        if name_in(table.job.problem):
            lines.append(
                ("what now", "docs/operations/iceberg.md#when-nothing-is-committed; sarit lake resume-from --help")
            )
    return lines
