"""Options that the processes of a cluster share."""

from __future__ import annotations

import functools
import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sarit.cli.configured_commands import config_option, parsed_again, unknown_variables
from sarit.cli.option_types import CLUSTER_URL, Advertise, Host, Memory, Name
from sarit.coordination.zookeeper_client import ZOOKEEPER_VARIABLE
from sarit.store.limits import SCRUB_BYTES_PER_SECOND

__all__ = ["address_options", "catalogs_option", "cluster_option", "config_option", "jobs_option",
           "log_in_at_zookeeper", "log_options", "machine_option", "reload_of", "scrub_option", "shown_options",
           "start_logs", "zookeeper_option"]  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.cli.options import Command
    from sarit.process.reload import Reload
    from sarit.process.shown_option import ShownOption


def log_in_at_zookeeper(path: Path | None) -> None:
    """Have each session of this process with ZooKeeper log in by a file, and those of child processes, too."""
    if path is not None:
        os.environ[ZOOKEEPER_VARIABLE] = str(path.absolute())


def zookeeper_option(command: Command) -> Command:
    """Add `--zookeeper-auth`, which is in force when the command runs."""

    @functools.wraps(command)
    def call(**options: Any) -> Any:
        log_in_at_zookeeper(options.pop("zookeeper_auth"))
        return command(**options)

    option = click.option(
        "--zookeeper-auth",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar=ZOOKEEPER_VARIABLE,
        show_envvar=True,
        metavar="FILE",
        help="How to log in at ZooKeeper: USER:PASSWORD in the first line of the file; what is made there is for this "
        "user alone.  [default: no log-in]",
    )
    made: Any = option(call)
    result: Command = made
    return result


def cluster_option(command: Command) -> Command:
    """Add `--cluster` and `--zookeeper-auth`."""
    option = click.option(
        "--cluster",
        type=CLUSTER_URL,
        required=True,
        envvar="SARIT_CLUSTER",
        show_envvar=True,
        metavar="URL",
        help="zookeeper://HOST:PORT,HOST:PORT/NAME: the servers of ZooKeeper, and the name of the cluster.",
    )
    made: Any = option(zookeeper_option(command))
    result: Command = made
    return result


scrub_option = click.option(
    "--scrub",
    type=Memory(),
    metavar="SIZE",
    default=SCRUB_BYTES_PER_SECOND,
    help="Bytes of long-term storage to read in a second to find damage, as 8M; 0: none.  [default: 8M]",
)


catalogs_option = click.option(
    "--catalogs",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Iceberg catalogs that streams can be tables of, by name: TOML, with the properties of PyIceberg below each "
    "[NAME], credentials included.  Needs sarit[lake].  [default: no catalogs]",
)


jobs_option = click.option(
    "--jobs",
    type=click.Choice(["on", "off"]),
    default="on",
    show_default=True,
    help="Whether this process runs background jobs of streams, as those that commit them to tables.",
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
                "--advertise",
                type=Advertise(1),
                metavar="HOST[:PORT]",
                help="The address that clients and the other processes get.  [default: --host and --port]",
            ),
            click.option("--port", type=click.IntRange(0, 65535), default=port, show_default=True, help=what),
            click.option("--host", type=Host(), default="127.0.0.1", show_default=True, help="Address to listen on."),
        ):
            command = option(command)
        return command

    return add


def start_logs(level: str, form: str) -> None:
    """Log as the processes of a node do; variables that are like options are warned of."""
    from sarit.process.observation.logs import LogSettings, set_up_logs

    set_up_logs(LogSettings(level, form))
    for text in unknown_variables(os.environ):
        logging.getLogger("sarit.process").warning("%s", text)


def shown_options() -> tuple[ShownOption, ...]:
    """Return the options of the command that runs, without secrets."""
    from sarit.cli.config_report import effective
    from sarit.process.shown_option import ShownOption

    rows = effective(click.get_current_context(), os.environ)
    return tuple(ShownOption(row.option, row.text, row.origin) for row in rows)


def reload_of(options: tuple[ShownOption, ...]) -> Reload:
    """Return what the running command does at SIGHUP; `options`: its own."""
    from sarit.cli.time_options import times_of
    from sarit.core.errors import Invalid
    from sarit.process.observation.logs import LogSettings
    from sarit.process.reload import LiveSettings, ReadOptions, Reload

    ctx = click.get_current_context()

    def read() -> ReadOptions:
        try:
            again = parsed_again(ctx)
            with again:
                again.command.invoke(again)
                found = again.params
                times = times_of(
                    found["scaling_windows"], found["scaling_cool_down"], found.get("retention_interval"),
                    found.get("watermark_interval"),
                )  # fmt: skip
                logs = LogSettings(found["log_level"], found["log_format"])
                return ReadOptions(shown_options(), LiveSettings(logs, times, found.get("scrub")))
        except click.ClickException as error:
            raise Invalid(error.format_message().replace("\n", "; ")) from None

    return Reload(options, read)
