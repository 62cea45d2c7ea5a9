"""`sarit group`: reader groups by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

import sarit
from sarit.cli import positions
from sarit.cli.group_lag import lag_seconds
from sarit.cli.names import GROUP, SCOPE, STREAM
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

if TYPE_CHECKING:
    from sarit.client.blocking.client import Client
    from sarit.core.names import StreamName

_POSITION_HELP = "The reader's last position, as the hex of Position.to_bytes()."
group_argument = click.argument("name", type=GROUP)


@click.group(cls=Commands)
def group() -> None:
    """Create, list, inspect, checkpoint, reset and delete reader groups; declare readers offline."""


@group.command("list")
@click.argument("scope", type=SCOPE)
@controller_option
@format_option
def list_groups(scope: str, controller: str, output: str) -> None:
    """List the reader groups of SCOPE."""
    with sarit.connect(controller) as client:
        rows = [{"group": name} for name in client.reader_groups.list(scope)]
    show_rows(output, rows, ["group"])


@group.command()
@group_argument
@click.argument("streams", nargs=-1, required=True, type=STREAM, metavar="SCOPE/STREAM...")
@click.option("--start", default="head", show_default=True, metavar=positions.METAVAR, help=positions.HELP)
@click.option("--end", default=None, metavar="tail|TIME|OFFSETS|CUT", help="Otherwise the group follows the tail.")
@click.option("--checkpoint-seconds", type=float, default=30.0, show_default=True, help="Between checkpoints; 0: none.")
@click.option("--retention", type=click.Choice(["none", "manual", "checkpoint"]), default="none", show_default=True)
@controller_option
@format_option
def create(
    name: str,
    streams: tuple[StreamName, ...],
    start: str,
    end: str | None,
    checkpoint_seconds: float,
    retention: str,
    controller: str,
    output: str,
) -> None:
    """Create SCOPE/GROUP, which reads these streams; an existing group is unchanged."""
    with sarit.connect(controller) as client:
        made = client.reader_groups.create(
            name,
            streams,
            start=_bound(client, streams, start),
            end=None if end is None else _bound(client, streams, end),
            automatic_checkpoint=checkpoint_seconds or None,
            retention=retention,
        )
        info = made.info()
    read = [str(stream) for stream in info.config.starts]
    show(output, {"group": info.name, "streams": read}, f"group {info.name} reads {', '.join(read)}")


@group.command()
@group_argument
@controller_option
@format_option
def info(name: str, controller: str, output: str) -> None:
    """Print what SCOPE/GROUP reads, its checkpoints under way, and how much is unread."""
    with sarit.connect(controller) as client:
        found = client.reader_groups.open(name)
        group_info, unread = found.info(), found.unread_bytes()
    row: dict[str, Any] = {
        "group": group_info.name,
        "generation": group_info.generation,
        "streams": [str(stream) for stream in group_info.config.starts],
        "checkpoint_seconds": group_info.config.checkpoint_ms / 1000,
        "retention": ("none", "manual", "checkpoint")[group_info.config.retention],
        "readers": len(group_info.readers),
        "unassigned_segments": len(group_info.unassigned),
        "waiting_segments": len(group_info.waiting),
        "checkpoints_under_way": list(group_info.checkpoints),
        "unread_bytes": unread,
        "at_end": group_info.at_end,
    }
    show_fields(output, row)


@group.command()
@group_argument
@controller_option
@format_option
def readers(name: str, controller: str, output: str) -> None:
    """Print which reader of SCOPE/GROUP reads which segment; `-` reads those that are free."""
    with sarit.connect(controller) as client:
        group_info = client.reader_groups.open(name).info()
    rows = [
        {"reader": reader, "segment": str(segment)} for reader, owned in group_info.readers.items() for segment in owned
    ]
    rows += [{"reader": reader, "segment": ""} for reader, owned in group_info.readers.items() if not owned]
    rows += [{"reader": "-", "segment": str(segment)} for segment in group_info.unassigned]
    show_rows(output, rows, ["reader", "segment"])


@group.command()
@group_argument
@controller_option
@format_option
def unread(name: str, controller: str, output: str) -> None:
    """Print how many bytes are unread after the last checkpoint of SCOPE/GROUP."""
    with sarit.connect(controller) as client:
        found = client.reader_groups.open(name).unread_bytes()
    show(output, {"group": name, "unread_bytes": found}, str(found))


@group.command()
@group_argument
@controller_option
@format_option
def lag(name: str, controller: str, output: str) -> None:
    """Print how far SCOPE/GROUP is behind in each segment, in bytes, and below which time in each stream.

    Readers report their positions every few seconds.  The time is of the oldest unread event, and is known to a minute
    in the last hour, more roughly before that; "-": nothing is unread, or no bound is known.
    """
    with sarit.connect(controller) as client:
        segments = client.reader_groups.open(name).progress()
        bounds = {stream: lag_seconds(client, stream, segments) for stream in {each.stream for each in segments}}
    rows = [
        {
            "stream": str(each.stream), "segment": str(each.segment), "reader": each.reader or "-",
            "position": each.position, "end": each.end, "unread_bytes": each.unread,
            "below_seconds": bounds[each.stream] if each.unread else 0,
        }
        for each in segments
    ]  # fmt: skip
    if output == "text":
        rows = [{**row, "below_seconds": row["below_seconds"] or "-"} for row in rows]
    show_rows(output, rows, list(rows[0]) if rows else ["stream", "segment", "unread_bytes"])


@group.command()
@group_argument
@click.argument("checkpoint")
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds to wait for the readers.")
@controller_option
@format_option
def checkpoint(name: str, checkpoint: str, timeout: float, controller: str, output: str) -> None:
    """Have all readers of SCOPE/GROUP pass CHECKPOINT; print its cut of each stream."""
    with sarit.connect(controller) as client:
        made = client.reader_groups.open(name).checkpoint(checkpoint, timeout)
    rows = [{"stream": str(stream), "cut": str(cut)} for stream, cut in made.cuts.items()]
    show_rows(output, rows, ["stream", "cut"])


@group.command()
@group_argument
@click.option("--cut", "cuts", multiple=True, help="The text of a cut; once for each stream to begin at one.")
@click.option(
    "--to", metavar="head|tail|TIME|OFFSETS", help=f"Instead of cuts, where to begin in all streams.  {positions.HELP}"
)
@controller_option
@format_option
def reset(name: str, cuts: tuple[str, ...], to: str | None, controller: str, output: str) -> None:
    """Reset SCOPE/GROUP to cuts, to a time or offsets, or to its last checkpoint.  Its readers have to join again."""
    if cuts and to is not None:
        raise click.UsageError("--cut or --to, not both")
    with sarit.connect(controller) as client:
        found = client.reader_groups.open(name)
        if to is not None:
            generation = found.reset({each: positions.cut_of(client, each, to) for each in found.info().config.starts})
        else:
            generation = found.reset(_cuts(cuts) if cuts else None)
    show(output, {"group": name, "generation": generation}, f"group {name} has generation {generation}")


@group.command()
@group_argument
@click.argument("reader")
@click.option("--position", help=_POSITION_HELP)
@click.option("--rewind", is_flag=True, help="Continue at --position also where the group knows a later one.")
@controller_option
@format_option
def offline(name: str, reader: str, position: str | None, rewind: bool, controller: str, output: str) -> None:
    """Declare READER of SCOPE/GROUP lost: others continue at its position, or its last checkpoint."""
    known = None
    if position is not None:
        try:
            data = bytes.fromhex(position)
        except ValueError:
            raise click.UsageError(f"{position[:40]!r} is not a position in hex") from None
        known = sarit.Position.from_bytes(data)
    with sarit.connect(controller) as client:
        was = client.reader_groups.open(name).reader_offline(reader, known, rewind=rewind)
    text = f"reader {reader} is offline" if was else f"reader {reader} was not in the group"
    show(output, {"reader": reader, "was_online": was}, text)


@group.command()
@group_argument
@yes_option
@controller_option
@format_option
def delete(name: str, yes: bool, controller: str, output: str) -> None:
    """Delete SCOPE/GROUP; its readers fail."""
    confirm(f"delete reader group {name}?", yes=yes)
    with sarit.connect(controller) as client:
        client.reader_groups.delete(name)
    show(output, {"group": name, "deleted": True}, f"group {name} deleted")


def _bound(client: Client, streams: tuple[StreamName, ...], text: str) -> str | dict[StreamName, sarit.StreamCut]:
    """Return what a group takes for a position in all of its streams."""
    found = {stream: positions.position_of(client, stream, text) for stream in streams}
    cuts = {stream: cut for stream, cut in found.items() if isinstance(cut, sarit.StreamCut)}
    return cuts or text


def _cuts(texts: tuple[str, ...]) -> dict[StreamName, sarit.StreamCut]:
    from sarit.core.cuts import from_text

    found = [from_text(text) for text in texts]
    return {cut.stream: cut for cut in found if cut is not None}
