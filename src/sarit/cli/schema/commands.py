"""`sarit schema`: the schemas of a registry, by subject and version."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from sarit.cli.options import (
    Commands,
    confirm,
    count_of,
    format_option,
    registry_option,
    show_fields,
    show_rows,
    yes_option,
)
from sarit.cli.options import show as show_result
from sarit.cli.schema.compatibility import compatibility
from sarit.cli.schema.files import pretty, read_schema, schema_options
from sarit.cli.schema.registry import open_registry
from sarit.cli.schema.subjects import SUBJECT
from sarit.cli.schema.transfer import versions_of
from sarit.cli.schema.transfer_commands import export, import_
from sarit.core.errors import Conflict, NotFound

if TYPE_CHECKING:
    from sarit.serializers.registry_client import RegistryClient
    from sarit.serializers.schema import Schema, SchemaReference, SchemaVersion


class VersionType(click.ParamType):  # type: ignore[type-arg]  # generic in some releases only
    """A version on the command line: its number, or `latest`."""

    name = "version"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return how usage lines name it."""
        return "N|latest"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as it is, or fail as a usage error."""
        text = str(value)
        if text != "latest" and not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
            self.fail(f"{text} is no version: give a number from 1 on, or latest", param, ctx)
        return text


VERSION = VersionType()


@click.group(cls=Commands)
def schema() -> None:
    """List, show, add, check and delete the schemas of a registry; export and import all of them.

    The registry is Sarit's own (`sarit standalone --registry on`) or another one with Confluent's API.
    """


schema.add_command(compatibility)
schema.add_command(export)
schema.add_command(import_)


@schema.command("list")
@click.option("--prefix", default="", help="How the names of the subjects begin.")
@click.option("--subject", type=SUBJECT, help="List the versions of this one.")
@click.option("--latest", is_flag=True, help="With the latest version of each subject: one call of the registry each.")
@click.option("--deleted", is_flag=True, help="Those that were deleted softly, too.")
@registry_option
@format_option
def list_schemas(prefix: str, subject: str | None, latest: bool, deleted: bool, registry: str, output: str) -> None:
    """List the subjects, or with --subject the versions of one."""
    client = open_registry(registry)
    marked = ["deleted"] if deleted else []
    if subject is not None:
        if prefix or latest:
            raise click.UsageError("--subject lists the versions of one subject: leave --prefix and --latest away")
        show_rows(output, _versions(client, subject, deleted=deleted), ["version", "id", "type", *marked])
        return
    left = set(client.subjects(prefix)) if deleted else set()
    rows: list[dict[str, Any]] = []
    for name in client.subjects(prefix, deleted=deleted):
        row: dict[str, Any] = {"subject": name}
        if latest:
            row |= _row(_latest(client, name, deleted=deleted))
        rows.append(row | ({"deleted": name not in left} if deleted else {}))
    show_rows(output, rows, ["subject", *(["version", "id", "type"] if latest else []), *marked])


def _versions(client: RegistryClient, subject: str, *, deleted: bool) -> list[dict[str, Any]]:
    found = versions_of(client, subject, deleted=deleted)
    return [_row(one.held) | ({"deleted": one.deleted} if deleted else {}) for one in found]


def _latest(client: RegistryClient, subject: str, *, deleted: bool) -> SchemaVersion:
    if not deleted:
        return client.latest(subject)
    return client.version(subject, max(client.versions(subject, deleted=True)), deleted=True)


def _row(found: SchemaVersion) -> dict[str, Any]:
    return {"version": found.version, "id": found.id, "type": found.schema.format}


@schema.command()
@click.argument("subject", type=SUBJECT, required=False)
@click.option("--version", type=VERSION, help="Which version.  [default: latest]")
@click.option("--id", "schema_id", type=click.IntRange(0), help="The schema that events with this id have.")
@click.option("--deleted", is_flag=True, help="Also if it was deleted softly.")
@click.option("--text", "only_text", is_flag=True, help="Print the text of the schema as it is, and nothing else.")
@registry_option
@format_option
def show(
    subject: str | None, version: str | None, schema_id: int | None, deleted: bool, only_text: bool, registry: str,
    output: str,
) -> None:  # fmt: skip
    """Print a version of SUBJECT, or the schema of an id."""
    if (subject is None) == (schema_id is None):
        raise click.UsageError("give a SUBJECT, or --id")
    if only_text and output == "json":
        raise click.UsageError("--text prints the schema alone: leave --format json away")
    client = open_registry(registry)
    if subject is None:
        if version is not None or deleted:
            raise click.UsageError("an id has one schema, for ever: leave --version and --deleted away")
        assert schema_id is not None
        found = client.schema_by_id(schema_id)
        row: dict[str, Any] = {"id": schema_id, "type": found.format}
        row["subjects"] = [f"{name}:{number}" for name, number in client.holders(schema_id)]
    else:
        held = client.version(subject, version or "latest", deleted=deleted)
        found = held.schema
        row = {"subject": held.subject, **_row(held)}
    if only_text:
        click.echo(found.text, nl=not found.text.endswith("\n"))
        return
    row |= _references(found)
    if output == "json":
        show_fields(output, {**row, "schema": found.text})
        return
    show_fields(output, row)
    click.echo(f"\n{pretty(found)}")


def _references(schema: Schema) -> dict[str, list[str]]:
    if not schema.references:
        return {}
    return {"references": [f"{one.name}={one.subject}:{one.version}" for one in schema.references]}


@schema.command()
@click.argument("subject", type=SUBJECT)
@schema_options
@click.option("--normalize", is_flag=True, help="Texts that differ in form alone are one schema.")
@registry_option
@format_option
def add(
    subject: str, file: str, kind: str | None, references: tuple[SchemaReference, ...], normalize: bool, registry: str,
    output: str,
) -> None:  # fmt: skip
    """Add the schema in FILE to SUBJECT as its next version; "-" is standard input.

    Succeeds when the subject has the schema, and does not change it then.  A schema that the compatibility of the
    subject does not allow is refused, with the reasons."""
    given = read_schema(file, kind, references)
    client = open_registry(registry)
    try:
        before = client.lookup(subject, given, normalize=normalize)
    except NotFound:
        before = None
    if before is None:
        try:
            client.register(subject, given, normalize=normalize)
        except Conflict as error:
            raise _explained(client, subject, given, error) from None
    found = before or client.lookup(subject, given, normalize=normalize)
    report = {"subject": subject, **_row(found), "created": before is None}
    said = "" if before is None else " already"
    show_result(output, report, f"{subject} has it as version {found.version}{said}: schema id {found.id}")


def _explained(client: RegistryClient, subject: str, given: Schema, error: Conflict) -> Conflict:
    """Return the refusal of a schema with its reasons, and what to do."""
    reasons = client.check(subject, given, "all")
    if not reasons:  # the registry refused something else than the change of the schema
        return error
    _print_reasons(reasons)
    return Conflict(
        f"{subject} does not allow this schema, by its compatibility {client.compatibility(subject)}: change the "
        f"schema, give it a subject of its own, or allow it with `sarit schema compatibility set`"
    )


def _print_reasons(reasons: list[str]) -> None:
    for reason in reasons:
        click.echo(f"- {reason}", err=True)


@schema.command()
@click.argument("subject", type=SUBJECT)
@schema_options
@click.option("--version", type=VERSION, help="Compare with this version alone.")
@registry_option
@format_option
def check(
    subject: str, file: str, kind: str | None, references: tuple[SchemaReference, ...], version: str | None,
    registry: str, output: str,
) -> None:  # fmt: skip
    """Say whether SUBJECT would take the schema in FILE; changes nothing.  Exits with 1 if it would not."""
    given = read_schema(file, kind, references)
    client = open_registry(registry)
    reasons = client.check(subject, given, version or "all")
    level = client.compatibility(subject)
    if output == "text":
        _print_reasons(reasons)
    said = "not compatible" if reasons else "compatible"
    report = {"subject": subject, "compatible": not reasons, "compatibility": level, "reasons": reasons}
    show_result(output, report, f"{said} with {subject} ({level})")
    if reasons:
        sys.exit(1)


@schema.command()
@click.argument("subject", type=SUBJECT)
@click.option("--version", type=VERSION, help="This version alone, not all of them.")
@click.option("--permanent", is_flag=True, help="For ever: of what is deleted softly already.")
@yes_option
@registry_option
@format_option
def delete(subject: str, version: str | None, permanent: bool, yes: bool, registry: str, output: str) -> None:
    """Delete SUBJECT or one of its versions.

    A soft deletion hides a version: nobody writes by it any more, and events that have its id can still be read.  A
    permanent deletion, which a soft one must precede, ends that."""
    what = f"version {version} of {subject}" if version is not None else f"all versions of {subject}"
    events = "for ever: events that have their ids cannot be read any more" if permanent else "softly"
    confirm(f"delete {what}, {events}?", yes=yes)
    deleted = open_registry(registry).delete(subject, version, permanent=permanent)
    text = f"{count_of(len(deleted), 'version')} of {subject} deleted {'for ever' if permanent else 'softly'}"
    show_result(output, {"subject": subject, "versions": deleted, "permanent": permanent}, text)
