"""`sarit config`: check, show and write the options of the processes of Sarit."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Final

import click

from sarit.cli.config_file import ConfigFile
from sarit.cli.config_report import effective, example, without_secrets
from sarit.cli.configured_commands import (
    CONFIG_VARIABLE,
    DEFAULT_CONFIG,
    ConfigError,
    configured_commands,
    read_config,
    start_check,
    unknown_variables,
    used_file,
)
from sarit.cli.options import Commands, format_option, show_rows
from sarit.cli.options import show as show_result
from sarit.core.errors import SaritError

PROCESSES: Final = ("standalone", "store", "controller", "worker")

for_option = click.option(
    "--for",
    "command",
    type=click.Choice(PROCESSES),
    help="The command that is meant.  [default: store, controller and worker if there is a cluster, else standalone]",
)


@click.group(cls=Commands)
def config() -> None:
    """Check and show the options of nodes: flags, variables, and the file."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--config", "named", type=click.Path(path_type=Path), metavar="FILE", help="The same as FILE.")
@for_option
@format_option
def check(file: Path | None, named: Path | None, command: str | None, output: str) -> None:
    """Check FILE, and the variables of this environment, as a process would that starts here.

    Without FILE: the file that SARIT_CONFIG names, or /etc/sarit/sarit.toml.  Ends with code 2 if something is wrong.
    """
    if file and named:
        raise click.UsageError(f"two files are given, {file} and {named}: give one")
    path = file or named or _usual_file()
    found = read_config(path) if path is not None else ConfigFile("no file")
    names = [command] if command else meant_commands(found)
    for name in names:
        given = ["--config", str(path)] if path is not None else []
        run_check(name, given, required=command is not None)
    for text in unknown_variables(os.environ):
        click.echo(f"sarit: {text}", err=True)
    checked = None if path is None else found.path
    show_result(output, {"file": checked, "checked": names}, f"{found.path}: checked for {', '.join(names)}")


@config.command(context_settings={"ignore_unknown_options": True})
@for_option
@format_option
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def show(command: str | None, output: str, options: tuple[str, ...]) -> None:
    """Print the value of every option that a process would start with here, and where each is from.

    OPTIONS are those of the process, as --config FILE or --memory 2G.  Secrets are not printed.
    """
    if options and options[0] in PROCESSES:
        raise click.UsageError(f"name the command by an option: --for {options[0]}")
    name = command or meant_command(options)
    ctx = parse(name, list(options), required=False)
    rows = effective(ctx, os.environ)
    if output == "json":
        fields = [
            {"option": row.option, "variable": row.variable, "value": row.value, "origin": row.origin} for row in rows
        ]
        click.echo(json.dumps({"command": name, "file": used_file(ctx), "options": fields}))
        return
    show_rows("text", [{"option": row.option, "value": row.text, "origin": row.origin} for row in rows],
              ["option", "value", "origin"])  # fmt: skip


@config.command("example")
def print_example() -> None:
    """Print a file with every option, its meaning, and its default, as comments."""
    click.echo(example(), nl=False)


def _usual_file() -> Path | None:
    if named := os.environ.get(CONFIG_VARIABLE):
        return Path(named)
    return DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None


def named_file(options: tuple[str, ...]) -> ConfigFile:
    """Return the file that the options name, or the usual one."""
    path = _usual_file()
    for number, option in enumerate(options):
        name, _, value = option.partition("=")
        if name == "--config":
            path = Path(value or options[number + 1 : number + 2][0]) if value or options[number + 1 :] else None
    return ConfigFile("") if path is None else read_config(path)


def meant_commands(file: ConfigFile) -> list[str]:
    """Return the commands that a file is for: those of its tables, and those of a cluster if it has one."""
    tables = [name for name in PROCESSES if name in file.tables]
    has_cluster = bool(os.environ.get("SARIT_CLUSTER")) or any(setting.option == "cluster" for setting in file.settings)
    if has_cluster:
        tables += ["store", "controller", "worker"]
    return [name for name in PROCESSES if name in tables] or ["standalone"]


def meant_command(options: tuple[str, ...]) -> str:
    """Return the first command that the usual file and the variables mean and that has the options given.

    An operator of a cluster has SARIT_CLUSTER set and examines a node, too: --data-dir is of a node alone."""
    meant = meant_commands(named_file(options))
    given = {option.partition("=")[0] for option in options if option.startswith("--")}
    commands = configured_commands()
    for name in (*meant, *(other for other in PROCESSES if other not in meant)):
        if given <= {option for param in commands[name].params for option in (*param.opts, *param.secondary_opts)}:
            return name
    return meant[0]


def parse(name: str, args: list[str], *, required: bool) -> click.Context:
    """Return the context of a command with these arguments; `required`: with all that it needs.  Raises
    ClickException."""
    command = configured_commands()[name]
    if not required:
        command = copy.copy(command)
        command.params = [copy.copy(param) for param in command.params]
        for param in command.params:
            param.required = False
    return command.make_context(name, args)


def run_check(name: str, args: list[str], *, required: bool) -> None:
    """Check what a process would start with.  Raises ConfigError, ClickException."""
    ctx = parse(name, args, required=required)
    if "cluster" in ctx.params and ctx.params["cluster"] is None:
        return  # the flag says it later
    start_check(ctx)
    try:
        with ctx:
            ctx.command.invoke(ctx)
    except SaritError as error:
        raise ConfigError(without_secrets(str(error))) from None
