"""Options that the processes of a cluster share, and the file that may hold them."""

from __future__ import annotations

import logging
import socket
import sys
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.cli.options import Command

_TABLES = ("store", "controller", "init")


def read_config(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Take a file's settings for the defaults of a command: those on top, and those of the table of its name."""
    if value is None:
        return None
    try:
        found = tomllib.loads(value.read_text())
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{value} cannot be read: {error}", ctx, param) from None
    tables = {name: content for name, content in found.items() if isinstance(content, dict)}
    for name in tables:
        if name not in _TABLES:
            raise click.BadParameter(f"{value}: there is no table [{name}], but {', '.join(_TABLES)}", ctx, param)
    top = {name: content for name, content in found.items() if name not in tables}
    own = tables.get(ctx.info_name or "", {})
    known = {option.name for option in ctx.command.params if option.name != "config"}
    defaults: dict[str, Any] = {}
    # What is on top is for all commands: each takes what it has an option for.
    for settings, strict in ((top, False), (own, True)):
        for name, content in settings.items():
            option = name.replace("-", "_")
            if option not in known:
                if strict or option not in _SHARED:
                    near = get_close_matches(option, known, n=1)
                    proposal = f"; did you mean {near[0].replace('_', '-')}?" if near else ""
                    raise click.BadParameter(f"{value}: {ctx.info_name} has no setting {name!r}{proposal}", ctx, param)
                continue
            defaults[option] = content
    ctx.default_map = {**(ctx.default_map or {}), **defaults}
    return value


# What may stand on top of a file for all commands.
_SHARED = {
    "cluster", "containers", "log", "index", "storage", "lease", "machine", "host", "advertise", "memory", "log_level",
    "scaling_windows", "scaling_cool_down",
}  # fmt: skip

config_option = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=read_config,
    help="A TOML file with these options, without the dashes; those of one command in a table: [store], [controller], "
    "[init].  The command line wins.",
)

cluster_option = click.option(
    "--cluster",
    required=True,
    envvar="SARIT_CLUSTER",
    show_envvar=True,
    metavar="URL",
    help="zookeeper://HOST:PORT,HOST:PORT/NAME: the servers of ZooKeeper, and the name of the cluster.",
)

machine_option = click.option(
    "--machine", default=socket.gethostname, metavar="NAME", help="What fails together.  [default: the host name]"
)

log_level_option = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="How much to log, on standard error.",
)


def address_options(port: int, what: str) -> Callable[[Command], Command]:
    """`--host`, `--port` and `--advertise`."""

    def add(command: Command) -> Command:
        command = click.option("--advertise", metavar="HOST", help="The address that clients get.  [default: --host]")(
            command
        )
        command = click.option("--port", type=click.IntRange(0, 65535), default=port, show_default=True, help=what)(
            command
        )
        return click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")(command)

    return add


def log_to_standard_error(level: str) -> None:
    """Log as the processes of a node do."""
    logging.basicConfig(
        level=level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if level == "info":
        for name in ("grpclib", "sarit.client"):  # a line for each cancelled call, and for each connection that ends
            logging.getLogger(name).setLevel(logging.WARNING)
