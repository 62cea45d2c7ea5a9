"""The commands of `sarit` that files for operators hold."""

from __future__ import annotations

import os
import re
from unittest.mock import patch

import click

from sarit.cli.main import cli

VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}|\$(\w+)")


def expand(text: str, values: dict[str, str]) -> str:
    """Replace `${NAME}`, `$NAME` and `${NAME:-default}`, as compose and systemd do.  Raises KeyError for others."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[3]
        return values[name] if name in values else found[2] if found[2] is not None else _unknown(name)

    return VARIABLE.sub(value, text)


def _unknown(name: str) -> str:
    raise KeyError(name)


def parse(arguments: list[str], environ: dict[str, str] | None = None) -> dict[str, object]:
    """The options that `sarit` takes from a command line, without running it.  Raises click.UsageError."""
    command: click.Command = cli
    context = click.Context(cli, info_name="sarit")
    rest = list(arguments)
    with patch.dict(os.environ, environ or {}):
        while isinstance(command, click.Group):
            name = rest.pop(0)
            found = command.get_command(context, name)
            if found is None:
                raise click.UsageError(f"no command {name!r}")
            command = found
        parsed = command.make_context(command.name, rest)
    return parsed.params
