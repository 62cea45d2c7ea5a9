"""Schemas from files: their text, their type by the name of the file, and the schemas that they refer to."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sarit.schemas.limits import MAX_SCHEMA_BYTES
from sarit.serializers.schema import AVRO, JSON, PROTOBUF, Schema, SchemaReference

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TYPES: Final = {"avro": AVRO, "json": JSON, "protobuf": PROTOBUF}
_TYPE_OF_SUFFIX: Final = {".avsc": AVRO, ".proto": PROTOBUF}


class ReferenceType(click.ParamType):  # type: ignore[type-arg]  # generic in some releases only
    """NAME=SUBJECT:VERSION on the command line."""

    name = "NAME=SUBJECT:VERSION"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> SchemaReference:
        """Parse, or fail as a usage error."""
        if isinstance(value, SchemaReference):
            return value
        name, _, rest = str(value).partition("=")
        subject, _, version = rest.rpartition(":")
        # A subject in a context has colons itself.
        if not name or not subject or not (version.isascii() and version.isdigit() and len(version) < 10):
            self.fail(f"{value} is no reference: write NAME=SUBJECT:VERSION, as common.proto=common:1", param, ctx)
        return SchemaReference(name, subject, int(version))


def schema_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """FILE, `--type` and `--reference`, of commands that take a schema."""
    for option in (
        click.option(
            "--reference", "references", type=ReferenceType(), multiple=True,
            help="The version of another subject that the schema calls NAME; more than once.",
        ),
        click.option(
            "--type", "kind", type=click.Choice(list(TYPES), case_sensitive=False),
            help="What the schema is.  [default: avro for FILE.avsc, protobuf for FILE.proto]",
        ),
        click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True)),
    ):  # fmt: skip
        command = option(command)
    return command


def read_schema(file: str, kind: str | None, references: Sequence[SchemaReference]) -> Schema:
    """Return the schema in a file.  Raises UsageError (its type is not known), ClickException (it is no text)."""
    chosen = TYPES[kind] if kind else _TYPE_OF_SUFFIX.get(Path(file).suffix)
    if chosen is None:
        raise click.UsageError(f"{file}: the name does not say what the schema is: give --type {', '.join(TYPES)}")
    if file == "-":
        data = sys.stdin.buffer.read(MAX_SCHEMA_BYTES + 1)
    else:
        with Path(file).open("rb") as source:
            data = source.read(MAX_SCHEMA_BYTES + 1)
    if len(data) > MAX_SCHEMA_BYTES:
        raise click.ClickException(f"{file} has more than {MAX_SCHEMA_BYTES:,} bytes, the most that a schema may have")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file} is no text in UTF-8: byte {error.start} is wrong") from None
    if not text.strip():
        raise click.ClickException(f"{file} is empty: a schema has a text")
    return Schema(text, chosen, tuple(references))


def pretty(schema: Schema) -> str:
    """Return the text of a schema for people: JSON on several lines."""
    try:
        return json.dumps(json.loads(schema.text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return schema.text.rstrip("\n")
