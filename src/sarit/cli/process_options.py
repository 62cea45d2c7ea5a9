"""Options that the processes of a cluster share."""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING

import click

from sarit.cli.configured import config_option, unknown_variables
from sarit.cli.option_types import CLUSTER_URL, Host, Name

__all__ = ["address_options", "cluster_option", "config_option", "log_options", "machine_option", "shown_options",
           "start_logs"]  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.cli.options import Command
    from sarit.node.start_line import ShownOption

cluster_option = click.option(
    "--cluster",
    type=CLUSTER_URL,
    required=True,
    envvar="SARIT_CLUSTER",
    show_envvar=True,
    metavar="URL",
    help="zookeeper://HOST:PORT,HOST:PORT/NAME: the servers of ZooKeeper, and the name of the cluster.",
)

machine_option = click.option(
    "--machine",
    type=Name(),
    default=socket.gethostname,
    metavar="NAME",
    help="What fails together.  [default: the host name]",
)


def log_options(command: Command) -> Command:
    """`--log-level` and `--log-format`."""
    for option in (
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="Lines for people, or a JSON object on each line.",
        ),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            default="info",
            show_default=True,
            help="How much to log, on standard error.",
        ),
    ):
        command = option(command)
    return command


def address_options(port: int, what: str) -> Callable[[Command], Command]:
    """`--host`, `--port` and `--advertise`."""

    def add(command: Command) -> Command:
        for option in (
            click.option(
                "--advertise", type=Host(), metavar="HOST", help="The address that clients get.  [default: --host]"
            ),
            click.option("--port", type=click.IntRange(0, 65535), default=port, show_default=True, help=what),
            click.option("--host", type=Host(), default="127.0.0.1", show_default=True, help="Address to listen on."),
        ):
            command = option(command)
        return command

    return add


def start_logs(level: str, form: str) -> None:
    """Log as the processes of a node do; variables that are like options are warned of."""
    from sarit.node.logs import LogSettings, set_up_logs

    set_up_logs(LogSettings(level, form))
    for text in unknown_variables(os.environ):
        logging.getLogger("sarit.node").warning("%s", text)


def shown_options() -> tuple[ShownOption, ...]:
    """The options of the command that runs, without secrets."""
    from sarit.cli.config_report import effective
    from sarit.node.start_line import ShownOption

    rows = effective(click.get_current_context(), os.environ)
    return tuple(ShownOption(row.option, row.text, row.origin) for row in rows)
