"""`sarit txn`: transactions of a stream, by their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import sarit
from sarit.cli.names import STREAM
from sarit.cli.options import Commands, controller_option, format_option, show, show_rows

if TYPE_CHECKING:
    from sarit.core.names import StreamName


@click.group(cls=Commands)
def txn() -> None:
    """List ended transactions; inspect, commit or abort one by its id."""


@txn.command("list")
@click.argument("stream", type=STREAM)
@controller_option
@format_option
def list_transactions(stream: StreamName, controller: str, output: str) -> None:
    """List the latest completed transactions of SCOPE/STREAM (some hundreds) with their outcomes.

    Open transactions are known only to their writers: use `status` with the id.
    """
    with sarit.connect(controller) as client:
        found = list(client.transactional_writer(stream).completed())
    rows = [{"transaction": str(transaction), "status": status.name.lower()} for transaction, status in found]
    show_rows(output, rows, ["transaction", "status"])


@txn.command()
@click.argument("stream", type=STREAM)
@click.argument("transaction")
@controller_option
@format_option
def status(stream: StreamName, transaction: str, controller: str, output: str) -> None:
    """Print the state of TRANSACTION of SCOPE/STREAM: open, committing, committed, aborting, aborted or unknown."""
    with sarit.connect(controller) as client:
        found = client.transactional_writer(stream).status(transaction).name.lower()
    show(output, {"transaction": transaction, "status": found}, found)


@txn.command()
@click.argument("stream", type=STREAM)
@click.argument("transaction")
@controller_option
@format_option
def commit(stream: StreamName, transaction: str, controller: str, output: str) -> None:
    """Commit TRANSACTION of SCOPE/STREAM; returns when its events can be read.  Events that its writer has not
    flushed are lost."""
    with sarit.connect(controller) as client:
        client.transactional_writer(stream).commit(transaction)
    show(output, {"transaction": transaction, "status": "committed"}, f"transaction {transaction} committed")


@txn.command()
@click.argument("stream", type=STREAM)
@click.argument("transaction")
@controller_option
@format_option
def abort(stream: StreamName, transaction: str, controller: str, output: str) -> None:
    """Abort TRANSACTION of SCOPE/STREAM: its events are dropped."""
    with sarit.connect(controller) as client:
        client.transactional_writer(stream).abort(transaction)
    show(output, {"transaction": transaction, "status": "aborted"}, f"transaction {transaction} aborted")
