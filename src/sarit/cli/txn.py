"""`sarit txn`: transactions of a stream, by their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import sarit
from sarit.cli.options import STREAM, controller_option, format_option, show, show_rows

if TYPE_CHECKING:
    from sarit.core.names import StreamName


@click.group()
def txn() -> None:
    """List ended transactions; tell, commit or abort one by its id."""


@txn.command("list")
@click.argument("stream", type=STREAM)
@controller_option
@format_option
def list_transactions(stream: StreamName, controller: str, output: str) -> None:
    """List the transactions of SCOPE/STREAM that ended last (some hundreds), and how.

    Those that are open are known to their writers alone: ask for them by id.
    """
    with sarit.connect(controller) as client:
        found = client.transactional_writer(stream).completed()
    rows = [{"transaction": str(transaction), "status": status.name.lower()} for transaction, status in found]
    show_rows(output, rows, ["transaction", "status"])


@txn.command()
@click.argument("stream", type=STREAM)
@click.argument("transaction")
@controller_option
@format_option
def status(stream: StreamName, transaction: str, controller: str, output: str) -> None:
    """Tell where TRANSACTION of SCOPE/STREAM is: open, committing, committed, aborting, aborted or unknown."""
    with sarit.connect(controller) as client:
        found = client.transactional_writer(stream).status(transaction).name.lower()
    show(output, {"transaction": transaction, "status": found}, found)


@txn.command()
@click.argument("stream", type=STREAM)
@click.argument("transaction")
@controller_option
@format_option
def commit(stream: StreamName, transaction: str, controller: str, output: str) -> None:
    """Commit TRANSACTION of SCOPE/STREAM; returns when its events can be read.  What its writer has not flushed is
    lost."""
    with sarit.connect(controller) as client:
        client.transactional_writer(stream).commit(transaction)
    show(output, {"transaction": transaction, "status": "committed"}, f"transaction {transaction} committed")


@txn.command()
@click.argument("stream", type=STREAM)
@click.argument("transaction")
@controller_option
@format_option
def abort(stream: StreamName, transaction: str, controller: str, output: str) -> None:
    """Abort TRANSACTION of SCOPE/STREAM: its events are forgotten."""
    with sarit.connect(controller) as client:
        client.transactional_writer(stream).abort(transaction)
    show(output, {"transaction": transaction, "status": "aborted"}, f"transaction {transaction} aborted")
