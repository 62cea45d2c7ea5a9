"""The `sarit` command: one module per noun, loaded on use.

Exit codes: 0 done, 1 the work failed, 2 the command line is wrong or needs an extra, 130 interrupted.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

import click

from sarit.cli.options import Commands
from sarit.core.errors import SaritError
from sarit.core.extras import MissingExtra
from sarit.env.process_end import end_process
from sarit.env.standard_files import open_standard_files

# noun -> (module:attribute, one line of help); it is here so that `sarit --help` imports nothing else.
_NOUNS = {
    "standalone": ("sarit.cli.standalone:standalone", "Run a whole node: controller and segment store."),
    "store": ("sarit.cli.store:store", "Run a store of a cluster."),
    "controller": ("sarit.cli.controller:controller", "Run a controller of a cluster."),
    "worker": ("sarit.cli.worker:worker", "Run background jobs of a cluster."),
    "cluster": ("sarit.cli.cluster:cluster", "Make a cluster, print its members and containers, drain a store."),
    "scope": ("sarit.cli.scope:scope", "Create, list and delete scopes."),
    "stream": ("sarit.cli.stream:stream", "Create, list, inspect, scale, seal, truncate and delete streams."),
    "table": ("sarit.cli.table:table", "Create, list and delete tables; put, get, scan and remove entries."),
    "lake": ("sarit.cli.lake:lake", "List, inspect and maintain streams that are Iceberg tables."),
    "continuous": ("sarit.cli.continuous:continuous", "Ask queries about every new event of a stream."),
    "link": ("sarit.cli.link:link", "Copy streams to and from other installations; promote mirrors."),
    "schema": ("sarit.cli.schema.commands:schema", "List, show, add, check, delete, export and import schemas."),
    "txn": ("sarit.cli.txn:txn", "List, inspect, commit and abort transactions."),
    "group": ("sarit.cli.group:group", "Create, list, inspect, checkpoint, reset and delete reader groups."),
    "write": ("sarit.cli.write:write", "Write events from a file or standard input."),
    "read": ("sarit.cli.read:read", "Print a stream's events."),
    "search": ("sarit.cli.search:search", "Print the events of a stream that match a query."),
    "query": ("sarit.cli.query:query", "Answer a SELECT over streams."),
    "doctor": ("sarit.cli.doctor:doctor", "Examine this machine: limits, disks, ports, addresses, storage."),
    "top": ("sarit.cli.top:top", "Show what processes do now, live."),
    "user": ("sarit.cli.user:user", "Add, change, list and delete the users who may log in."),
    "acl": ("sarit.cli.acl:acl", "Give, take and list permissions."),
    "quota": ("sarit.cli.quota:quota", "Limit what scopes and users may use."),
    "tls": ("sarit.cli.tls:tls", "Make certificates for trials."),
    "export": ("sarit.cli.transfer.export_command:export", "Write the events of a stream to a file."),
    "import": ("sarit.cli.transfer.import_command:import_", "Write the events of a file to a stream, each once."),
    "verify": ("sarit.cli.verify:verify", "Check a node's data directory: index, chunks, log."),
    "repair": ("sarit.cli.verify:repair", "Repair the index of a stopped node as far as no guess is needed."),
    "backup": ("sarit.cli.backup:backup", "Back up a running node; list, verify and prune its backups."),
    "restore": ("sarit.cli.backup:restore", "Make a new node of a backup."),
    "bench": ("sarit.cli.bench:bench", "Measure write and read rates against a running node."),
    "context": ("sarit.cli.context:context", "Name the addresses of installations, and choose the one to ask."),
    "config": ("sarit.cli.config:config", "Check and show the options of nodes: flags, variables, and the file."),
    "completion": ("sarit.cli.completion:completion", "Print the completion script of a shell."),
}


class _Nouns(Commands):
    """A group that imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _NOUNS:
            return None
        module, _, attribute = _NOUNS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; its module is imported by now, and Ctrl-C is its own from here on."""
        found = super().resolve_command(ctx, args)
        hear_interrupts()
        return found

    def invoke(self, ctx: click.Context) -> object:
        """Return a closed output pipe, as with `head`, is not an error."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            sys.stdout = None  # otherwise flushing it at exit fails the process
            return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table above: no command is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _NOUNS.items()])


@click.group(cls=_Nouns, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="sarit", prog_name="sarit")
@click.option("-v", "--verbose", is_flag=True, help="Print each call, with the id under which servers log it.")
def cli(verbose: bool) -> None:
    """Durable, append-only, elastic streams."""
    if verbose:
        client_log = logging.getLogger("sarit.client")
        client_log.setLevel(logging.DEBUG)
        for handler in client_log.handlers:
            handler.setLevel(logging.DEBUG)


class _ToStandardError(logging.Handler):
    """Prints what the client or a backup warns of, as that it waits for a node, for the person at the terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record of the log as a line."""
        text = record.getMessage()
        if text.startswith("waiting"):
            text += "; Ctrl-C ends"
        with suppress(OSError):  # nobody reads it
            click.echo(f"sarit: {text}", err=True)


def _print_error(error: Exception) -> None:
    """Print an error as one line; as a JSON line for a process that logs these."""
    logs = sys.modules.get("sarit.process.observation.logs")
    if logs is not None and logs.logs_json():
        logging.getLogger("sarit").critical("%s", error)
    else:
        click.echo(f"sarit: {error}", err=True)


def hear_interrupts() -> None:
    """Have Ctrl-C raise KeyboardInterrupt from now on, if `entry.py` ended that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> NoReturn:
    """Run the command, as the entry point of the console script."""
    open_standard_files()
    for name in ("sarit.client", "sarit.ops.backup"):
        log = logging.getLogger(name)
        log.addHandler(_ToStandardError(logging.WARNING))
        log.propagate = False
    end_process(_run())


def _run() -> int:
    """Return the exit code."""
    try:
        # None: colors on a terminal (https://no-color.org).
        color = False if os.environ.get("NO_COLOR") else None
        cli.main(prog_name="sarit", standalone_mode=False, color=color)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (SaritError, OSError) as error:
        _print_error(error)
        return 2 if isinstance(error, MissingExtra) else 1
    except click.exceptions.Exit as error:
        return error.exit_code
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 0


if __name__ == "__main__":
    main()
