"""`sarit table`: key-value tables and their entries.

Keys are given as text: PRIMARY and, for tables that have them, --secondary.  Bytes that are not text are printed, and
accepted, in base64 (`--base64`).
"""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Any

import click

import sarit
from sarit.cli.names import SCOPE, TABLE
from sarit.cli.options import Commands, confirm, controller_option, format_option, show, show_rows, yes_option
from sarit.client.tables.layout import IN_BASE64
from sarit.core.errors import NotFound

if TYPE_CHECKING:
    from sarit.client.tables.layout import Entry, Key
    from sarit.core.names import StreamName

secondary_option = click.option("--secondary", help="The secondary key, when the table has them.")
base64_option = click.option("--base64", "encoded", is_flag=True, help="Keys and values are given in base64.")
version_option = click.option("--version", type=click.IntRange(0), help="Only if the key has this version.")


@click.group(cls=Commands)
def table() -> None:
    """Create, list and delete tables; put, get, scan and remove their entries."""


@table.command()
@click.argument("name", type=TABLE)
@click.option("--primary-bytes", type=click.IntRange(1), required=True, help="The length of primary keys.")
@click.option("--secondary-bytes", type=click.IntRange(0), default=0, show_default=True,
              help="The length of secondary keys; 0: there are none.")  # fmt: skip
@click.option(
    "--partitions", type=click.IntRange(1), default=1, show_default=True, help="How many; cannot be changed later."
)
@click.option("--create-scope", is_flag=True, help="Create the scope, too, if it is missing.")
@controller_option
@format_option
def create(
    name: StreamName,
    primary_bytes: int,
    secondary_bytes: int,
    partitions: int,
    create_scope: bool,
    controller: str,
    output: str,
) -> None:
    """Create SCOPE/TABLE; succeeds when it exists, and does not change it."""
    with sarit.connect(controller) as client:
        if create_scope:
            client.create_scope(name.scope)
        created = client.tables.create(
            name, primary_key_bytes=primary_bytes, secondary_key_bytes=secondary_bytes, partitions=partitions
        )
    said = "created" if created else "exists already, unchanged"
    show(output, {"table": str(name), "created": created}, f"table {name} {said}")


@table.command("list")
@click.argument("scope", type=SCOPE)
@controller_option
@format_option
def list_tables(scope: str, controller: str, output: str) -> None:
    """List the tables of SCOPE."""
    with sarit.connect(controller) as client:
        found = [(name, client.table(name).config()) for name in client.tables.list(scope)]
    rows = [
        {
            "table": str(name),
            "partitions": config.partitions,
            "primary_bytes": config.primary_key_bytes,
            "secondary_bytes": config.secondary_key_bytes,
        }
        for name, config in found
    ]
    show_rows(output, rows, ["table", "partitions", "primary_bytes", "secondary_bytes"])


@table.command()
@click.argument("name", type=TABLE)
@click.argument("primary")
@click.argument("value", required=False)
@secondary_option
@base64_option
@version_option
@click.option("--insert", is_flag=True, help="Only if the key is absent.")
@controller_option
@format_option
def put(
    name: StreamName,
    primary: str,
    value: str | None,
    secondary: str | None,
    encoded: bool,
    version: int | None,
    insert: bool,
    controller: str,
    output: str,
) -> None:
    """Set the VALUE of key PRIMARY; without VALUE, read it from standard input.  Prints the new version."""
    if insert and version is not None:
        raise click.UsageError("an absent key has no version: give --insert or --version")
    key = _key(primary, secondary, encoded)
    content = sys.stdin.buffer.read() if value is None else _bytes(value, encoded)
    with sarit.connect(controller) as client:
        target = client.table(name)
        if insert:
            made = target.insert(key, content)
        elif version is not None:
            made = target.replace(key, content, version)
        else:
            made = target.put(key, content)
    show(output, {"version": made}, str(made))


@table.command()
@click.argument("name", type=TABLE)
@click.argument("primary")
@secondary_option
@base64_option
@controller_option
@format_option
def get(name: StreamName, primary: str, secondary: str | None, encoded: bool, controller: str, output: str) -> None:
    """Print the raw value of key PRIMARY; with --format json also its version."""
    with sarit.connect(controller) as client:
        entry = client.table(name).get(_key(primary, secondary, encoded))
    if entry is None:
        raise NotFound(f"table {name} has no key {primary}" + (f" / {secondary}" if secondary else ""))
    if output == "json":
        click.echo(json.dumps(_row(entry)))
    else:
        click.echo(entry.value)


@table.command()
@click.argument("name", type=TABLE)
@click.argument("primary")
@secondary_option
@base64_option
@version_option
@controller_option
@format_option
def remove(
    name: StreamName,
    primary: str,
    secondary: str | None,
    encoded: bool,
    version: int | None,
    controller: str,
    output: str,
) -> None:
    """Remove key PRIMARY; succeeds when it is absent (unless --version is given)."""
    with sarit.connect(controller) as client:
        client.table(name).remove(_key(primary, secondary, encoded), version)
    show(output, {"removed": True}, "removed")


@table.command()
@click.argument("name", type=TABLE)
@click.argument("primary", required=False)
@click.option("--first", help="The first key of the range, or how it begins.")
@click.option("--last", help="The last key of the range, or how it begins.")
@click.option("--prefix", help="How the keys begin.")
@click.option("--limit", type=click.IntRange(1), help="Stop after this number of entries.")
@click.option("--keys-only", is_flag=True, help="Leave out the values.")
@base64_option
@controller_option
@format_option
def scan(
    name: StreamName,
    primary: str | None,
    first: str | None,
    last: str | None,
    prefix: str | None,
    limit: int | None,
    keys_only: bool,
    encoded: bool,
    controller: str,
    output: str,
) -> None:
    """Print entries in the order of their keys: all, or those of key PRIMARY; with --format json one per line.

    The options of the range are about secondary keys when PRIMARY is given, else about primary ones.  Keys and values
    that are not text on one line are printed as base64:, followed by that; in JSON, as primary_base64 and so on.
    """
    where, low, high, start = (
        None if text is None else _bytes(text, encoded) for text in (primary, first, last, prefix)
    )
    with sarit.connect(controller) as client:
        target = client.table(name)
        ask = target.scan_keys if keys_only else target.scan
        entries = ask(where, first=low, last=high, prefix=start)
        for count, entry in enumerate(entries, 1):
            click.echo(
                json.dumps(_row(entry, with_value=not keys_only)) if output == "json" else _line(entry, not keys_only)
            )
            if count == limit:
                break


@table.command()
@click.argument("name", type=TABLE)
@yes_option
@controller_option
@format_option
def delete(name: StreamName, yes: bool, controller: str, output: str) -> None:
    """Delete SCOPE/TABLE with all it holds."""
    confirm(f"delete table {name} and everything in it?", yes=yes)
    with sarit.connect(controller) as client:
        client.tables.delete(name)
    show(output, {"table": str(name), "deleted": True}, f"table {name} deleted")


def _key(primary: str, secondary: str | None, encoded: bool) -> Key:
    first = _bytes(primary, encoded)
    return first if secondary is None else (first, _bytes(secondary, encoded))


def _bytes(text: str, encoded: bool) -> bytes:
    if not encoded:
        return text.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise click.UsageError(f"{text[:60]!r} is not base64") from None


def _row(entry: Entry, *, with_value: bool = True) -> dict[str, Any]:
    row: dict[str, Any] = {}
    parts = {"primary": entry.primary} | ({"secondary": entry.secondary} if entry.secondary else {})
    for name, part in (parts | ({"value": entry.value} if with_value else {})).items():
        try:
            row[name] = part.decode()
        except UnicodeDecodeError:
            row[f"{name}_base64"] = base64.b64encode(part).decode()
    return row | {"version": entry.version}


def _line(entry: Entry, with_value: bool) -> str:
    """Return an entry as one line, of which each field tells whether it is base64."""
    parts = [entry.primary, *([entry.secondary] if entry.secondary else []), *([entry.value] if with_value else [])]
    return "\t".join([*map(_field, parts), str(entry.version)])


def _field(part: bytes) -> str:
    try:
        text = part.decode()
    except UnicodeDecodeError:
        text = ""
    plain = text.isprintable() and not text.startswith(IN_BASE64) and (text or not part)
    return text if plain else IN_BASE64 + base64.b64encode(part).decode()
