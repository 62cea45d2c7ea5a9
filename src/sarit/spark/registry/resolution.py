"""What a query's driver finds at the registry, once: the header of its events, the schema of its columns, the schema
of its rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Conflict, Invalid, NotFound
from sarit.core.properties import CONFLUENT, NO_HEADER, SCHEMA_HEADER
from sarit.schemas.json_columns import json_schema_of
from sarit.serializers.headers import default_subject
from sarit.serializers.schema import AVRO, JSON, PROTOBUF, Schema
from sarit.serializers.schema_source import WrittenSchema
from sarit.spark.client import CLIENTS, connect
from sarit.spark.formats.avro_schema import load_schema, written_schema
from sarit.spark.formats.options import default_mode
from sarit.spark.formats.types import arrow_schema
from sarit.spark.registry.access import REGISTRIES
from sarit.spark.registry.options import Registered

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructType

    from sarit.client.blocking.client import Client
    from sarit.core.names import StreamName
    from sarit.spark.formats.options import FormatOptions
    from sarit.spark.registry.options import RegistryOptions
    from sarit.spark.sink.options import WriteOptions
    from sarit.spark.source.options import ReadOptions

_READ: Final = (AVRO, JSON, PROTOBUF)


def resolve_read(read: ReadOptions, formats: FormatOptions) -> FormatOptions:
    """Return the options of a read with the header of its events and the schema of its columns.

    Raises NotFound (a stream, the subject, its version), Invalid, Unavailable, and what the registry refuses."""
    registry = formats.registry
    assert registry is not None, "the query has a registry"
    header = _header_of_streams(read, registry)
    subject = registry.subject or _subject_of_streams(read)
    found = _columns_of(registry, formats, subject, header)
    if found.format not in _READ:
        raise Invalid(f"subject {subject} has schemas of {found.format}, which are not read with the header {header}")
    form = found.format.lower()
    if formats.format and formats.format != form:
        raise Invalid(f"option format is {formats.format}, and subject {subject} has schemas of {found.format}")
    registered = Registered(found.format, found.text, subject, header, found.references, found.message)
    return replace(formats, format=form, mode=formats.mode or default_mode(form), registered=registered)


def _columns_of(registry: RegistryOptions, formats: FormatOptions, subject: str, header: str) -> WrittenSchema:
    if formats.avro_schema is not None:
        return WrittenSchema(AVRO, json.dumps(load_schema(formats.avro_schema)))
    try:
        found = REGISTRIES.get((registry.target, header)).version(subject, registry.version)
    except NotFound as error:
        raise NotFound(f"subject {subject} gives no columns: {error}; name another one with option subject") from None
    if header == NO_HEADER and found.format != JSON and registry.version is None:
        raise Invalid(
            f"events without a header (schema-header {NO_HEADER}) do not say which version they are: name the one that "
            'all of them are with .option("schemaVersion", "1")'
        )
    return found


def _header_of_streams(read: ReadOptions, registry: RegistryOptions) -> str:
    """Return the header of all events.  Raises Invalid: the streams do not say it, or say different ones."""
    if read.selection.pattern:
        if registry.header is None:
            raise Invalid(
                "with streamPattern, streams may come whose headers nobody checked: say what all events begin with, "
                f'by .option("schemaHeader", "{CONFLUENT}")'
            )
        return registry.header
    with connect(read.target) as client:
        said = {str(name): client.stream(name).properties().get(SCHEMA_HEADER) for name in read.selection.names}
    found = {_agreed(name, one, registry.header) for name, one in said.items()}
    if len(found) > 1:
        named = ", ".join(f"{name} {one}" for name, one in said.items())
        raise Invalid(f"the streams have different headers, so one query cannot read them: {named}")
    return found.pop()


def _agreed(stream: str, said: str | None, wanted: str | None) -> str:
    """Return the header that a stream's property or the option names.  Raises Invalid: none does, or they differ."""
    if said is None and wanted is None:
        raise Invalid(
            f"stream {stream} does not say what its events begin with, and nobody can tell from the bytes: set it with "
            f"`sarit stream update {stream} --property {SCHEMA_HEADER}={CONFLUENT}` (or pravega, or none), or give "
            f'.option("schemaHeader", "{CONFLUENT}")'
        )
    if said is not None and wanted is not None and said != wanted:
        raise Invalid(
            f"option schemaHeader is {wanted}, and stream {stream} says {said} (property {SCHEMA_HEADER}): leave the "
            "option away, or correct the property"
        )
    return said or wanted or ""


def _subject_of_streams(read: ReadOptions) -> str:
    if read.selection.pattern or len(read.selection.names) > 1:
        raise Invalid('several streams: name the subject that gives their columns with .option("subject", "NAME")')
    return default_subject(read.stream)


def registration(
    write: WriteOptions, registry: RegistryOptions, formats: FormatOptions
) -> Callable[[StructType], bytes]:
    """Return a function that registers the schema of a write's columns and returns the header of its events."""

    def register(fields: StructType) -> bytes:
        if write.stream is None:
            raise Invalid('option schemaRegistry is for writes to one stream: give .option("stream", "SCOPE/STREAM")')
        schema = _schema_of(formats, fields)
        subject = registry.subject or default_subject(write.stream)
        with CLIENTS.sharing(write.target) as client:
            header = _header_of_sink(client, write.stream, write, registry.header)
        access = REGISTRIES.get((registry.target, header))
        try:
            return access.header(subject, schema, add=registry.register)
        except Conflict as error:
            raise Conflict(f"the columns are no next version of subject {subject}: {error}") from None
        except NotFound as error:
            raise NotFound(
                f"subject {subject} does not have the schema of these columns ({error}): register it, give avroSchema, "
                "or leave registerSchemas away"
            ) from None

    return register


def _schema_of(formats: FormatOptions, fields: StructType) -> Schema:
    columns = arrow_schema(fields)
    if formats.format == JSON.lower():
        return Schema(json_schema_of(columns), JSON)
    if formats.format == PROTOBUF.lower():
        raise Invalid("the connector does not write Protobuf: give format avro or json")
    return Schema(json.dumps(written_schema(formats.avro_schema, columns, registered=True)), AVRO)


def _header_of_sink(client: Client, stream: StreamName, write: WriteOptions, wanted: str | None) -> str:
    """Return the header of the events to write; a new or empty stream that does not say it gets it."""
    if write.create is not None:
        client.create_stream(stream, scaling=write.create.scaling, retention=write.create.retention)
    said = client.stream(stream).properties().get(SCHEMA_HEADER)
    if said is None and client.cut(stream, "head") == client.cut(stream, "tail"):
        said = wanted or CONFLUENT
        client.stream(stream).set_properties({SCHEMA_HEADER: said})
    return _agreed(str(stream), said, wanted)
