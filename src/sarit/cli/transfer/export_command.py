"""`sarit export`: the events of a stream to a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sarit.cli.contexts import registry_for
from sarit.cli.names import STREAM
from sarit.cli.near_names import NamedCommand
from sarit.cli.options import controller_option, count_of, format_option, show
from sarit.cli.pipes import end_interrupted
from sarit.cli.transfer import stream_properties, stream_schemas
from sarit.cli.transfer.limits import EXPORT_NOTE_BYTES
from sarit.cli.transfer.output import LinesOutput, PartsOutput
from sarit.cli.transfer.progress import Noted, Shown
from sarit.cli.transfer.rows import row_of
from sarit.core import cuts
from sarit.core.errors import Invalid
from sarit.core.extras import require
from sarit.core.times import parse_time
from sarit.env.real import RealClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.cli.transfer.output import Output
    from sarit.cli.transfer.stream_schemas import SchemaCollector
    from sarit.client.aio import Client
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName

FORMATS = {".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet", ".raw": "raw"}


def format_of(path: str, given: str | None) -> str:
    """Return the format of a file: as given, else by its name.  Raises UsageError, MissingExtra (of Parquet)."""
    found = given or FORMATS.get(Path(path).suffix)
    if found is None:
        raise click.UsageError(f"{path}: the name does not say the format; give --as jsonl, parquet or raw")
    if found == "parquet":
        require("arrow", "Parquet")
    return found


@click.command(cls=NamedCommand)
@click.argument("name", type=STREAM)
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--as", "form", type=click.Choice(["jsonl", "parquet", "raw"]), help="The format, if the name is silent.")
@click.option("--from", "start", default="head", show_default=True, metavar="head|CUT|TIME", help="Where to begin.")
@click.option("--to", "end", default="tail", show_default=True, metavar="tail|CUT|TIME", help="Where to end.")
@click.option("--registry", metavar="URL", help="Where the schemas of its events are, as of `sarit schema`.")
@click.option("--no-schemas", is_flag=True, help="Leave out the schemas that events name in their headers.")
@controller_option
@format_option
def export(
    name: StreamName, file: str, form: str | None, start: str, end: str, registry: str | None, no_schemas: bool,
    controller: str, output: str,
) -> None:  # fmt: skip
    """Write the events of SCOPE/STREAM to FILE, with their keys; "-" is standard output.

    The format is that of the name: .jsonl, .raw, or .parquet, which is a directory of files.  It ends at the tail as it
    was at the beginning.  An export that was interrupted or killed goes on where it was when it is repeated: until it
    is done, FILE.progress says how far it is.

    The properties of the stream are in FILE.properties.  If these say that events name their schemas in a header
    (schema-header: confluent), the schemas are in FILE.schemas, from the registry that has them.
    """
    chosen = format_of(file, form)
    context = click.get_current_context()

    def collector(properties: Mapping[str, str], *, goes_on: bool) -> SchemaCollector | None:
        if not stream_schemas.wanted(file, properties, without=no_schemas):
            return None
        from sarit.cli.schema.registry import open_registry

        client = open_registry(registry_for(context, registry))
        return stream_schemas.SchemaCollector(file, name, client, goes_on=goes_on)

    try:
        events = asyncio.run(_export(name, file, chosen, start, end, controller, collector))
    except KeyboardInterrupt:
        end_interrupted("" if file == "-" else "the export is not complete; the same command goes on where it was")
    report = {"stream": str(name), "file": file, "events": events}
    show(output, report, f"{count_of(events, 'event')} of {name} in {file}", err=output == "text" or file == "-")


async def _export(
    name: StreamName, file: str, form: str, start: str, end: str, controller: str, collector: Callable[..., Any]
) -> int:
    from sarit.client import aio

    described = {"stream": str(name), "format": form, "from": start, "to": end}
    noted = Noted(None if file == "-" else Path(f"{file.rstrip('/')}.progress"), described)
    before = noted.read()
    if before is None:
        _check_absent(file)
    async with await aio.connect(controller) as client:
        noted.belongs_to(await client.stream(name).creation_id())
        if before is None:
            first, last = await _cut(client, name, start), await _cut(client, name, end)
            _check_order(first, last, start, end)
            before = {"position": cuts.to_text(first), "end": cuts.to_text(last), "events": 0}
        else:
            click.echo(f"sarit: going on after {count_of(before['events'], 'event')}", err=True)
        written = before.get("output")
        output: Output = PartsOutput(file, written) if form == "parquet" else LinesOutput(
            file, raw=form == "raw", noted=written
        )  # fmt: skip
        properties = await client.stream(name).properties()
        schemas = collector(properties, goes_on=written is not None)
        if written is None:
            if file != "-":
                stream_properties.write(file, properties)
            noted.write({**before, "output": output.note() or {"parts": 0}})
        return await _copy(client, name, output, noted, before, schemas)


def _check_absent(file: str) -> None:
    if file != "-" and Path(file).exists():
        raise Invalid(f"{file} exists: choose another name, or delete it")


def _check_order(first: StreamCut, last: StreamCut, start: str, end: str) -> None:
    """Raises Invalid for an end before the beginning: nothing would be exported, without a word."""
    before = [s for s, at in last.positions.items() if at < first.positions.get(s, 0)]
    earlier = max(last.positions) < min(first.positions) if last.positions and first.positions else False
    if before or earlier:
        raise Invalid(f"--to {end[:40]} is before --from {start[:40]} in {first.stream}: give a later end")


async def _cut(client: Client, name: StreamName, text: str) -> StreamCut:
    if text[:1].isdigit() or text.startswith("-"):
        return await client.stream(name).cut_at(parse_time(text, RealClock().wall_ms()))
    found = await client.cut(name, text)
    assert found is not None
    return found


async def _copy(
    client: Client, name: StreamName, output: Output, noted: Noted, before: dict[str, Any],
    schemas: SchemaCollector | None,
) -> int:  # fmt: skip
    first, last = cuts.from_text(before["position"]), cuts.from_text(before["end"])
    assert first is not None
    assert last is not None
    from sarit.client.groups.generations import unread_bytes_after
    from sarit.client.groups.values import GroupSegment

    here = {GroupSegment(name, segment): at for segment, at in first.positions.items()}
    total = await unread_bytes_after(client.session, here, {name: last})
    shown = Shown(RealClock(), total)
    since = 0
    whole = True  # whether all that the reader has handed out was written
    async with client.reader(name, first, last) as reader:

        def note(*, last_one: bool = False) -> None:
            # No await comes between, so that the progress that is noted is what was written.
            written = output.note(last=last_one)
            if written is not None:
                count = before["events"] + shown.events
                noted.write({**before, "position": cuts.to_text(reader.position()), "events": count, "output": written})

        try:
            while (found := await reader.next_events()) is not None:
                events, segment = list(found.left), found.segment.packed
                whole = False
                if schemas is not None:
                    schemas.add(events)
                output.write([row_of(event, segment) for event in events])
                whole = True
                size = sum(map(len, events))
                since += size
                shown.add(len(events), size)
                if since >= EXPORT_NOTE_BYTES:
                    note()
                    since = 0
        except BaseException:
            if whole:
                note()
            raise
        finally:
            shown.end()
        note(last_one=True)
    noted.remove()
    return int(before["events"]) + shown.events
