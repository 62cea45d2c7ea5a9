"""Options and output shared by all commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from sarit.core.errors import Invalid
from sarit.core.names import EPOCH_DELIMITER, SegmentId, StreamName

Command = TypeVar("Command", bound=Callable[..., Any])

controller_option = click.option(
    "--controller",
    default="127.0.0.1:9090",
    envvar="SARIT_CONTROLLER",
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT",
    help="Where the controller listens.",
)

format_option = click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    envvar="SARIT_FORMAT",
    show_default=True,
    help="How to print the result.",
)


class StreamType(click.ParamType):  # type: ignore[type-arg]  # generic in some releases only
    """SCOPE/STREAM on the command line."""

    name = "SCOPE/STREAM"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> StreamName:
        """Parse, or fail as a usage error."""
        if isinstance(value, StreamName):
            return value
        try:
            return StreamName.parse(str(value))
        except Invalid as error:
            self.fail(str(error), param, ctx)


class SegmentType(click.ParamType):  # type: ignore[type-arg]  # generic in some releases only
    """NUMBER.#epoch.EPOCH on the command line, as `sarit stream info` prints it."""

    name = "SEGMENT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> SegmentId:
        """Parse, or fail as a usage error."""
        if isinstance(value, SegmentId):
            return value
        number, _, epoch = str(value).partition(EPOCH_DELIMITER)
        if not (number.isdecimal() and epoch.isdecimal()):
            self.fail(f"{value!r} is not NUMBER{EPOCH_DELIMITER}EPOCH, as 0{EPOCH_DELIMITER}0", param, ctx)
        return SegmentId(int(epoch), int(number))


STREAM = StreamType()
SEGMENT = SegmentType()


def show(output: str, value: object, text: str) -> None:
    """Print `value` as one JSON document, or `text` for people."""
    click.echo(json.dumps(value) if output == "json" else text)


def show_rows(output: str, rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
    """Print rows as a JSON list, or as columns for people."""
    if output == "json":
        click.echo(json.dumps(list(rows)))
        return
    cells = [[column.upper() for column in columns]] + [[str(row[column]) for column in columns] for row in rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    for line in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
