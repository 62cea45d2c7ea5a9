"""`sarit scope`: name spaces of streams."""

from __future__ import annotations

import click

import sarit
from sarit.cli.options import controller_option, format_option, show, show_rows


@click.group()
def scope() -> None:
    """Create, list and delete scopes."""


@scope.command()
@click.argument("name")
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
        names = client.list_scopes()
    show_rows(output, [{"scope": name} for name in names], ["scope"])


@scope.command()
@click.argument("name")
@click.option("--recursive", is_flag=True, help="Also delete every stream, reader group and table in it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@controller_option
@format_option
def delete(name: str, recursive: bool, yes: bool, controller: str, output: str) -> None:
    """Delete scope NAME."""
    if recursive and not yes:
        click.confirm(f"delete scope {name} and everything in it?", abort=True, err=True)
    with sarit.connect(controller) as client:
        client.delete_scope(name, recursive=recursive)
    show(output, {"scope": name, "deleted": True}, f"scope {name} deleted")
