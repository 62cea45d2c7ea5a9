"""`sarit scope`: name spaces of streams."""

from __future__ import annotations

import click

import sarit
from sarit.cli.names import SCOPE
from sarit.cli.options import Commands, confirm, controller_option, format_option, show, show_rows, yes_option


@click.group(cls=Commands)
def scope() -> None:
    """Create, list and delete scopes."""


@scope.command()
@click.argument("name", type=SCOPE, metavar="NAME")
@controller_option
@format_option
def create(name: str, controller: str, output: str) -> None:
    """Create scope NAME; succeeds when it exists."""
    with sarit.connect(controller) as client:
        created = client.create_scope(name)
    show(output, {"scope": name, "created": created}, f"scope {name} {'created' if created else 'exists already'}")


@scope.command("list")
@controller_option
@format_option
def list_scopes(controller: str, output: str) -> None:
    """List all scopes."""
    with sarit.connect(controller) as client:
        rows = [{"scope": name} for name in client.list_scopes()]
    show_rows(output, rows, ["scope"])


@scope.command()
@click.argument("name", type=SCOPE, metavar="NAME")
@click.option("--recursive", is_flag=True, help="Also delete every stream, reader group and table in it.")
@yes_option
@controller_option
@format_option
def delete(name: str, recursive: bool, yes: bool, controller: str, output: str) -> None:
    """Delete scope NAME."""
    confirm(f"delete scope {name} and everything in it?", yes=yes or not recursive)
    with sarit.connect(controller) as client:
        client.delete_scope(name, recursive=recursive)
    show(output, {"scope": name, "deleted": True}, f"scope {name} deleted")
