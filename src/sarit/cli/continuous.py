"""`sarit continuous`: queries that are asked about every new event of a stream."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import sarit
from sarit.cli.limits import MAX_SHOWN_QUERY_CHARACTERS
from sarit.cli.names import STREAM
from sarit.cli.options import (
    Commands,
    confirm,
    controller_option,
    format_option,
    show,
    show_fields,
    show_rows,
    yes_option,
)
from sarit.core import cuts
from sarit.core.errors import Invalid
from sarit.core.texts import cut_text

if TYPE_CHECKING:
    from sarit.client.search.continuous import ContinuousQuery
    from sarit.core.names import StreamName

_COLUMNS: Final = ["name", "state", "query", "output", "maker", "problem"]
_MS_PER_SECOND: Final = 1000


@click.group(cls=Commands)
def continuous() -> None:
    """Have queries asked about every new event of a stream: each match goes to an output stream, exactly once.

    A query holds from a cut of the stream, which is shown.  It acts with the rights of who made it."""


_mapping = click.option(
    "--mapping", "mapping_file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='Fields that queries of this stream may name, as JSON: {"fields": {"level": "keyword"}}; without it those of '
    "its index, or of its first events.",
)  # fmt: skip
_wait = click.option(
    "--wait", default=30.0, show_default=True, metavar="SECONDS", help="Wait so long until it holds; 0: do not wait."
)


@continuous.command()
@click.argument("stream", type=STREAM)
@click.argument("name")
@click.argument("query")
@click.argument("matches", metavar="OUTPUT", type=STREAM)
@click.option("--with-event", is_flag=True, help="Write the text of each event into its match.")
@_mapping
@_wait
@controller_option
@format_option
def create(
    stream: StreamName, name: str, query: str, matches: StreamName, with_event: bool, mapping_file: Path | None,
    wait: float, controller: str, output: str,
) -> None:  # fmt: skip
    """Ask QUERY about every new event of SCOPE/STREAM from now on, by the NAME; write matches to OUTPUT.

    OUTPUT is a stream that exists.  Queries are written as for `sarit search`."""
    with sarit.connect(controller) as client:
        made = client.continuous.create(
            stream, name, query, matches, with_event=with_event, mapping=_read(mapping_file), wait=wait
        )
    show(output, _as_json(made), _said(made))


@continuous.command("list")
@click.argument("stream", type=STREAM)
@controller_option
@format_option
def list_all(stream: StreamName, controller: str, output: str) -> None:
    """List the queries of SCOPE/STREAM that you made, or whose output you may read."""
    with sarit.connect(controller) as client:
        found = client.continuous.list(stream)
        progress = client.continuous.progress(stream)
    if output == "json":
        show_rows(output, [_as_json(one) for one in found], [])
        return
    show_rows(output, [_row(one) for one in found], _COLUMNS)
    if progress.problem:
        click.echo(f"they are not asked now: {progress.problem}", err=True)


@continuous.command("show")
@click.argument("stream", type=STREAM)
@click.argument("name")
@controller_option
@format_option
def show_query(stream: StreamName, name: str, controller: str, output: str) -> None:
    """Show the query NAME of SCOPE/STREAM: its text, from which cut it holds, and what is wrong."""
    with sarit.connect(controller) as client:
        found = client.continuous.get(stream, name)
        progress = client.continuous.progress(stream)
    if output == "json":
        of_all = {"events": progress.events, "matches": progress.matches, "problem": progress.problem}
        show(output, _as_json(found) | {"all_queries": of_all}, "")
        return
    created = datetime.fromtimestamp(found.created_ms / _MS_PER_SECOND, UTC)
    shown = {
        "name": found.name, "stream": str(found.stream), "query": found.query, "output": str(found.output),
        "with event": "yes" if found.with_event else "no", "state": found.state, "problem": found.problem or "-",
        "holds from": "-" if found.holds_from is None else cuts.to_text(found.holds_from), "id": found.id,
        "maker": found.maker or "-", "created": created.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "matches of all queries": progress.matches,
    }  # fmt: skip
    show_fields(output, shown | ({"not asked because": progress.problem} if progress.problem else {}))


@continuous.command()
@click.argument("stream", type=STREAM)
@click.argument("name")
@click.argument("query")
@click.option("--with-event/--without-event", default=None, help="Write the text of each event into its match, or not.")
@_mapping
@_wait
@controller_option
@format_option
def change(
    stream: StreamName, name: str, query: str, with_event: bool | None, mapping_file: Path | None, wait: float,
    controller: str, output: str,
) -> None:  # fmt: skip
    """Give the query NAME of SCOPE/STREAM another text: the old one holds until the new one does.

    The query acts with the rights of who changed it last.  Its output stays."""
    with sarit.connect(controller) as client:
        made = client.continuous.change(
            stream, name, query, with_event=with_event, mapping=_read(mapping_file), wait=wait
        )
    show(output, _as_json(made), _said(made))


@continuous.command()
@click.argument("stream", type=STREAM)
@click.argument("name")
@_wait
@yes_option
@controller_option
@format_option
def delete(stream: StreamName, name: str, wait: float, yes: bool, controller: str, output: str) -> None:
    """Delete the query NAME of SCOPE/STREAM: its matches stay where they are, and none comes any more."""
    confirm(f"delete continuous query {name} of {stream}?", yes=yes)
    with sarit.connect(controller) as client:
        client.continuous.delete(stream, name, wait=wait)
    show(output, {"stream": str(stream), "deleted": name}, f"continuous query {name} of {stream} is deleted")


def _read(path: Path | None) -> Any:
    """Return the mapping in a file; None: there is none.  Raises Invalid."""
    if path is None:
        return None
    try:
        return json.loads(path.read_text())
    except (ValueError, RecursionError, OSError) as error:
        raise Invalid(f"{path} is no mapping in JSON: {error}") from None


def _said(query: ContinuousQuery) -> str:
    if query.state == "failed":
        return f"continuous query {query.name} holds for no event: {query.problem}"
    if query.holds_from is None:
        where = f"`sarit continuous show {query.stream} {query.name}`"
        return f"continuous query {query.name} is {query.state}: {where} says from when it holds"
    return f"continuous query {query.name} holds from {cuts.to_text(query.holds_from)}"


def _as_json(query: ContinuousQuery) -> dict[str, object]:
    found = {each.name: getattr(query, each.name) for each in fields(query)}
    found |= {"stream": str(query.stream), "output": str(query.output)}
    found["holds_from"] = None if query.holds_from is None else cuts.to_text(query.holds_from)
    return found


def _row(query: ContinuousQuery) -> dict[str, object]:
    return {
        "name": query.name, "state": query.state, "query": cut_text(query.query, MAX_SHOWN_QUERY_CHARACTERS),
        "output": str(query.output), "maker": query.maker or "-", "problem": query.problem or "-",
    }  # fmt: skip
