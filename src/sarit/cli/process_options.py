"""Options that the processes of a cluster share."""

from __future__ import annotations

import logging
import socket
import sys
from typing import TYPE_CHECKING

import click

from sarit.cli.configured import config_option
from sarit.cli.option_types import CLUSTER_URL, Host, Name

__all__ = ["address_options", "cluster_option", "config_option", "log_level_option", "log_to_standard_error",
           "machine_option"]  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.cli.options import Command

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


def log_to_standard_error(level: str) -> None:
    """Log as the processes of a node do."""
    logging.basicConfig(
        level=level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if level == "info":
        for name in ("grpclib", "sarit.client"):  # a line for each cancelled call, and for each connection that ends
            logging.getLogger(name).setLevel(logging.WARNING)
