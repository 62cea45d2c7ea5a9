"""`sarit read`: events to standard output."""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING

import click

import sarit
from sarit.cli.options import STREAM, controller_option, format_option
from sarit.core import cuts

if TYPE_CHECKING:
    from sarit.core.names import StreamName


@click.command()
@click.argument("name", type=STREAM)
@click.option("--from", "start", default="head", show_default=True, metavar="head|tail|CUT", help="Where to begin.")
@click.option("--follow", is_flag=True, help="Do not end at the tail: wait for more.")
@click.option("--limit", type=click.IntRange(1), help="End after so many events.")
@click.option("--skip-truncated", is_flag=True, help="Go on behind what was truncated instead of failing.")
@click.option("--print-cut", is_flag=True, help="At the end, print the cut reached on standard error.")
@controller_option
@format_option
def read(
    name: StreamName,
    start: str,
    follow: bool,
    limit: int | None,
    skip_truncated: bool,
    print_cut: bool,
    controller: str,
    output: str,
) -> None:
    """Print the events of SCOPE/STREAM, one a line; with --format json, one JSON document a line.

    A JSON document has the event as "event", or as "event_base64" when it is not UTF-8 text.
    Ends at the tail as it was when reading began, unless --follow.
    """
    count = 0
    out = sys.stdout.buffer
    with (
        sarit.connect(controller) as client,
        client.reader(name, start=start, end=None if follow else "tail", skip_truncated=skip_truncated) as reader,
    ):
        try:
            while limit is None or count < limit:
                most = 10_000 if limit is None else min(10_000, limit - count)
                events = reader.read_events(most)
                if not events:
                    break
                count += len(events)
                lines = [json.dumps(_document(event)).encode() for event in events] if output == "json" else events
                out.write(b"\n".join(lines) + b"\n")
                out.flush()
        except KeyboardInterrupt:
            pass
        if print_cut:
            click.echo(cuts.to_text(reader.position()), err=True)


def _document(event: bytes) -> dict[str, str]:
    try:
        return {"event": event.decode()}
    except UnicodeDecodeError:
        return {"event_base64": base64.b64encode(event).decode()}
