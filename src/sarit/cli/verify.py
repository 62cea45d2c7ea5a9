"""`sarit verify` and `sarit repair`: is a data directory what was written?"""

from __future__ import annotations

import json
import sqlite3
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sarit.cli.options import count_of, format_option, show
from sarit.cli.progress import Bar
from sarit.core.errors import SaritError
from sarit.core.extras import require

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.ops.verify.directory import Directory
    from sarit.ops.verify.findings import Report

_DAMAGED, _FAILED = 1, 2


@click.command()
@click.argument("data", type=click.Path(path_type=Path), metavar="DATA")
@format_option
def verify(data: Path, output: str) -> None:
    """Check every record, chunk and log file of a node's data directory, and change nothing.

    DATA is the node's --data-dir.  A node may run on it; then its log is not checked.  Long-term storage is where the
    node has it: for S3 set the same environment variables.

    Exit codes: 0 nothing is damaged, 1 something is, 2 the check could not run.
    """
    require("node", "`sarit verify`")
    import asyncio

    from sarit.env.real import real_env
    from sarit.ops.verify.directory import open_directory
    from sarit.ops.verify.directory import verify as check

    path = str(data.absolute())

    async def main() -> tuple[Report, bool]:
        env = real_env()
        directory = open_directory(env, path)
        bar = Bar()
        try:
            return await check(env, directory, bar), directory.lock is None
        finally:
            bar.end()
            directory.close()

    try:
        report, running = asyncio.run(main())
    except (SaritError, OSError) as error:
        click.echo(f"sarit: {data} cannot be checked: {error}", err=True)
        sys.exit(_FAILED)
    if output == "json":
        click.echo(json.dumps(report.as_json() | {"running": running}))
    else:
        _print(report, running=running)
    sys.exit(_DAMAGED if report.damaged else 0)


def _print(report: Report, *, running: bool) -> None:
    for finding in report.findings:
        click.echo(finding.text())
    if running:
        click.echo("a node runs on this directory: the index was read as of one moment, the chunks after it")
    for what in report.unchecked:
        click.echo(f"not checked: {what}")
    click.echo(
        f"{report.records:,} records of {report.segments:,} segments, {report.chunks:,} chunks with "
        f"{report.chunk_bytes:,} bytes: " + (f"{report.damaged:,} damaged" if report.damaged else "nothing is damaged")
    )


@click.command()
@click.argument("data", type=click.Path(path_type=Path), metavar="DATA")
@click.option("--yes", is_flag=True, help="Do it; without this the command says what it would do.")
@format_option
def repair(data: Path, *, yes: bool, output: str) -> None:
    """Repair the index of a stopped node as far as no guess is needed; say what that is.

    A record with one flipped bit is put back, since its checksum says which bit.  A segment's name is made from its
    record.  Damaged records that nobody can need are dropped.  The damaged index stays beside the new one, as
    container-N.db.damaged.  Chunks and the log are not changed: `sarit verify` says what of them is lost.

    Exit codes: 0 nothing is left to repair, 1 something is, 2 the repair could not run.
    """
    require("node", "`sarit repair`")
    from sarit.env.real import real_env
    from sarit.ops.verify.directory import open_directory

    try:
        directory = open_directory(real_env(), str(data.absolute()))
    except (SaritError, OSError) as error:
        click.echo(f"sarit: {data} cannot be repaired: {error}", err=True)
        sys.exit(_FAILED)
    try:
        if directory.lock is None:
            click.echo(f"sarit: a node runs on {data}: stop it first", err=True)
            sys.exit(_FAILED)
        found = _repair(directory, yes=yes, say=click.echo if output == "text" else _say_nothing)
    except (SaritError, OSError, sqlite3.Error) as error:
        click.echo(f"sarit: {data} cannot be repaired: {error}", err=True)
        sys.exit(_FAILED)
    finally:
        directory.close()
    if output == "json" or found.text():
        show(output, asdict(found), found.text())
    sys.exit(_DAMAGED if found.left or (found.changes and not yes) else 0)


@dataclass(slots=True)
class _Repaired:
    """The changes of a repair, made or (without --yes) planned, and what it cannot repair; each with its container."""

    done: bool
    changes: list[dict[str, object]] = field(default_factory=list)
    left: list[dict[str, object]] = field(default_factory=list)

    def text(self) -> str:
        """Return what is left to do, in words; empty: what is left cannot be repaired."""
        if self.changes and not self.done:
            return f"{count_of(len(self.changes), 'change')} would be made: give --yes to make them"
        return "" if self.left else "nothing is left to repair in the index; `sarit verify` checks chunks and log, too"


def _say_nothing(_text: str) -> None:
    """Print nothing: the document at the end has it."""


def _repair(directory: Directory, *, yes: bool, say: Callable[[str], None]) -> _Repaired:
    """Plan the repair of each index, say what it is, and make it if `yes`."""
    from sarit.env.real import real_env
    from sarit.ops.verify.repair import apply, plan_repair

    env, found, bar = real_env(), _Repaired(yes), Bar()
    for number in range(directory.description.containers):
        path = directory.index_path(number)
        if not env.files.exists(path) and not env.files.exists(f"{directory.path}/log/{number}"):
            continue
        plan = plan_repair(env, number, path)
        for change in plan.changes:
            say(f"{'' if yes else 'would '}{change} (container {number})")
        for what in plan.left:
            say(f"cannot be repaired: {what} (container {number})")
        found.changes += [{"container": number, "what": str(change)} for change in plan.changes]
        found.left += [{"container": number, "what": str(what)} for what in plan.left]
        if plan.changes and yes:
            bar.begin(f"index {number}", directory.index_bytes(env, number))
            apply(env, plan, bar.add)
            bar.end()
    return found
