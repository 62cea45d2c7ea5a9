"""Options and output shared by all commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sarit.cli.contexts import ContextName, take_context, take_controller, take_registry
from sarit.cli.near_names import NamedCommand
from sarit.cli.option_types import HttpPort
from sarit.client.core.addresses import CONTROLLER_VARIABLE, DEFAULT_ADDRESS
from sarit.client.core.contexts import CONTEXT_VARIABLE, DEFAULT_REGISTRY, REGISTRY_VARIABLE

if TYPE_CHECKING:
    from sarit.process.settings import RegistryConfig

Command = TypeVar("Command", bound=Callable[..., Any])


_context_option = click.option(
    "--context",
    type=ContextName(),
    envvar=CONTEXT_VARIABLE,
    is_eager=True,
    expose_value=False,
    callback=take_context,
    show_envvar=True,
    help="The context to ask instead: a name for an address (`sarit context`).",
)


def controller_option(command: Command) -> Command:
    """`--controller` and `--context`; the command gets the address as `controller`."""
    address = click.option(
        "--controller",
        default=DEFAULT_ADDRESS,
        envvar=CONTROLLER_VARIABLE,
        callback=take_controller,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT",
        help="Where the controller listens; several with commas, as HOST:PORT,HOST:PORT.",
    )
    return address(_context_option(command))


def registry_option(command: Command) -> Command:
    """`--registry` and `--context`; the command gets the URL as `registry`."""
    url = click.option(
        "--registry",
        metavar="URL",
        callback=take_registry,
        help=f"Where the schema registry is.  [env var: {REGISTRY_VARIABLE}; default: {DEFAULT_REGISTRY}]",
    )
    return url(_context_option(command))


format_option = click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    envvar="SARIT_FORMAT",
    show_default=True,
    help="How to print the result.",
)


def http_port_option(port: int, what: str) -> Callable[[Command], Command]:
    """`--http-port`; see `http_port_of`."""
    return click.option(
        "--http-port",
        type=HttpPort(),
        default=port,
        show_default=True,
        help=f"{what}  0 picks a free one; off: none.",
    )


def http_port_of(value: int) -> int | None:
    """None for `off`."""
    return None if value < 0 else value


def registry_options(command: Command) -> Command:
    """Add `--registry` and `--registry-port`; see `registry_of`."""
    for option in (
        click.option(
            "--registry-port",
            type=HttpPort(),
            default=8081,
            show_default=True,
            help="Port of the schema registry, if there is one, for clients of Confluent's and Pravega's.  0 picks a "
            "free one; off: it is at --http-port alone.",
        ),
        click.option(
            "--registry",
            type=click.Choice(["on", "off"]),
            default="off",
            show_default=True,
            help="Whether there is a schema registry: at --registry-port, and at --http-port under /registry/confluent "
            "and /v1/groups.",
        ),
    ):
        command = option(command)
    return command


def registry_of(registry: str, port: int) -> RegistryConfig | None:
    """Return the settings of the schema registry; None for `off`."""
    from sarit.process.settings import RegistryConfig

    return RegistryConfig(http_port_of(port)) if registry == "on" else None


yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


class Commands(click.Group):
    """A group of commands that proposes a near name for an unknown one, and lists commands with their help in full."""

    # `click.Group.group` makes groups of this class, too.
    group_class = type
    command_class = NamedCommand

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command as click does, with a proposal for a name that is not there."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not near or "Did you mean" in error.message:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one entry for each command, with the first paragraph of its help."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                paragraph, _, _ = (command.help or "").strip().partition("\n\n")
                rows.append((name, " ".join(paragraph.split())))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal, unless `yes`.  Raises click.Abort (refused), UsageError (there is no terminal to ask)."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question}  There is no terminal to ask on: give --yes to confirm.")
    click.confirm(question, abort=True, err=True)


def count_of(number: int, noun: str) -> str:
    """`1 event`, `2 events`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def show(output: str, value: object, text: str, *, err: bool = False) -> None:
    """Print `value` as one JSON document, or `text` for people; `err`: on standard error."""
    click.echo(json.dumps(value) if output == "json" else text, err=err)


def show_rows(output: str, rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
    """Print rows as a JSON list, or as columns for people."""
    if output == "json":
        click.echo(json.dumps(list(rows)))
        return
    cells = [[column.upper() for column in columns]] + [[str(row[column]) for column in columns] for row in rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    for line in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def show_fields(output: str, row: Mapping[str, object]) -> None:
    """Print one row as a JSON document, or a line for each field for people."""
    if output == "json":
        click.echo(json.dumps(row))
        return
    width = max(map(len, row)) + 2
    for name, value in row.items():
        text = (", ".join(map(str, value)) or "-") if isinstance(value, list) else str(value)
        click.echo(f"{name.replace('_', ' '):<{width}}{text}")
