"""Which columns the payloads of a stream have: chosen once as a text, and opened by that text, always the same ones.

    binary                        payloads as they are: one column `value`
    json                          JSON documents, whose columns are inferred from a sample
    schema                        by the schemas in a registry: the columns of the subject's latest version
    auto                          schema, if the stream has the property schema-header and its subject a version; else
                                  binary

A text that names what was chosen is kept where rows are written again after a failure, while a newer version may have
been registered.  It is JSON: {"value": "binary"}, {"value": "schema", "subject": ..., "header": ..., "version": ...},
{"value": "json", "columns": [[NAME, TYPE], ...]}, where a TYPE is the name of a simple type, {"struct": [[NAME, TYPE],
...]} or {"list": TYPE}.  Of a registry with Pravega's API over HTTP, which names no versions, `version` is null: the
latest one when the text is opened.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sarit.core.errors import Corrupt, Invalid, NotFound
from sarit.core.properties import CONFLUENT, NO_HEADER, SCHEMA_HEADER
from sarit.schemas.column_types import LOCAL_TIMESTAMP, TIMESTAMP
from sarit.serializers.headers import default_subject
from sarit.serializers.limits import MAX_COLUMN_CHOICE_CHARS
from sarit.serializers.payload_columns import PayloadColumns, binary_columns, json_columns, registered_columns
from sarit.serializers.schema import JSON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sarit.core.names import StreamName
    from sarit.serializers.schema_source import SchemaSource

    Sample = Callable[[], Iterable[bytes | None]]

BINARY: Final = "binary"
DOCUMENTS: Final = "json"
SCHEMA: Final = "schema"
AUTO: Final = "auto"
CHOICES: Final = (AUTO, SCHEMA, DOCUMENTS, BINARY)
RESERVED: Final = "sarit"  # the column of tables with the position of an event
_APART: Final = f"{RESERVED}_"
_SIMPLE: Final[Mapping[str, pa.DataType]] = {
    "bool": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "binary": pa.binary(), "date": pa.date32(), "time": TIMESTAMP,
}  # fmt: skip
_NAMES: Final = {**{kind: name for name, kind in _SIMPLE.items()}, LOCAL_TIMESTAMP: "time"}


def columns_of_stream(
    properties: Mapping[str, str],
    stream: StreamName,
    source: SchemaSource | None,
    choice: str,
    sample: Sample | None = None,
) -> PayloadColumns:
    """Return the columns of a stream's payloads, as chosen now.  Raises as `choose_columns`."""
    return open_columns(choose_columns(properties, stream, source, choice, sample), source)


def choose_columns(
    properties: Mapping[str, str],
    stream: StreamName,
    source: SchemaSource | None,
    choice: str,
    sample: Sample | None = None,
    known: pa.Schema | None = None,
) -> str:
    """Return a text that names the columns of a stream's payloads.  Blocks.

    `source`: None: there is no registry.  `sample`: returns payloads to infer the columns of JSON from.  `known`: the
    columns that the payloads of a table had so far; those of JSON are added to them.

    Raises Invalid (the stream does not fit the choice, no columns can be made), NotFound (the subject), UnusableSchema,
    and what the source raises."""
    if choice not in CHOICES:
        raise Invalid(f"values are one of {', '.join(CHOICES)}, not {choice[:20]}")
    header = properties.get(SCHEMA_HEADER)
    if choice == DOCUMENTS:
        return _inferred(stream, header, sample, known)
    if choice == BINARY or (choice == AUTO and (source is None or header is None)):
        return json.dumps({"value": BINARY})
    if source is None:
        raise Invalid("values by schema need a schema registry: start one beside the node, or choose binary or json")
    if header is None:
        raise Invalid(
            f"stream {stream} does not say what its events begin with: set it with `sarit stream update {stream} "
            f"--property {SCHEMA_HEADER}={CONFLUENT}` (or pravega, or none), or choose binary or json"
        )
    try:
        return _registered(stream, source, header)
    except NotFound:
        if choice == AUTO:
            return json.dumps({"value": BINARY})
        raise


def _registered(stream: StreamName, source: SchemaSource, header: str) -> str:
    subject = default_subject(stream)
    found = source.version(subject, None)
    if header == NO_HEADER and found.format != JSON:
        raise Invalid(
            f"events of {stream} have no header ({SCHEMA_HEADER} is {NO_HEADER}), so they do not say which version of "
            f"{subject} they are: choose binary"
        )
    return json.dumps({"value": SCHEMA, "subject": subject, "header": header, "version": found.version})


def _inferred(stream: StreamName, header: str | None, sample: Sample | None, known: pa.Schema | None) -> str:
    from sarit.schemas.json_inference import infer_json
    from sarit.serializers.widening import grown

    if header not in (None, NO_HEADER):
        raise Invalid(
            f"events of {stream} begin with a header ({SCHEMA_HEADER} is {header}), so they are no JSON documents: "
            "choose schema or auto"
        )
    if sample is None:
        raise Invalid("the columns of JSON are inferred from events, and none were given")
    try:
        found = infer_json(sample())
    except Invalid:
        if known is None:
            raise
        found = pa.schema([])
    # A member `sarit` is the column `sarit_`, so a member of that name is none.
    found = pa.schema([one for one in found if one.name.lower() != _APART])
    if known is None:
        return _documents(found)
    known = pa.schema([one.with_name(one.name[:-1]) if one.name.lower() == _APART else one for one in known])
    text = _documents(grown(known, found))
    return text if len(text) <= MAX_COLUMN_CHOICE_CHARS else _documents(known)


def _documents(columns: pa.Schema) -> str:
    return json.dumps({"value": DOCUMENTS, "columns": [_written(one) for one in columns]})


def open_columns(chosen: str, source: SchemaSource | None) -> PayloadColumns:
    """Return the columns that a text names.  Blocks.

    Raises Corrupt: it is no such text; Invalid, NotFound (the version was deleted), UnusableSchema, and what the source
    raises."""
    try:
        found = json.loads(chosen)
        value = found["value"]
        documents = pa.schema([_read(one) for one in found["columns"]]) if value == DOCUMENTS else None
        named = (str(found["subject"]), str(found["header"]), _number(found["version"])) if value == SCHEMA else None
        if documents is named is None and value != BINARY:
            raise ValueError
    except (ValueError, LookupError, TypeError, RecursionError):
        raise Corrupt("the text that names the columns of values is damaged") from None
    if documents is not None:
        return _apart(json_columns(documents))
    if named is None:
        return binary_columns()
    if source is None:
        raise Invalid("the values were decoded by a schema registry, which is not there any more: start it again")
    subject, header, version = named
    return _apart(registered_columns(source, subject, header, version=version))


def _number(version: Any) -> int | None:
    return None if version is None else int(version)


def _apart(columns: PayloadColumns) -> PayloadColumns:
    """Return columns of which none has the name of the position of an event: it gets an underscore."""
    taken = {name.lower() for name in columns.schema.names}
    if RESERVED not in taken:
        return columns
    fields = []
    for field in columns.schema:
        name = field.name
        while name.lower() == RESERVED or (name != field.name and name.lower() in taken):
            name += "_"
        fields.append(field.with_name(name))
    return columns.renamed(pa.schema(fields))


def _written(field: pa.Field) -> list[Any]:
    return [field.name, _type_written(field.type)]


def _type_written(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {"struct": [_written(one) for one in kind]}
    if pa.types.is_list(kind):
        return {"list": _type_written(kind.value_type)}
    if kind not in _NAMES:
        raise Invalid(f"JSON is not inferred as {kind}: the table was not made of inferred columns")
    return _NAMES[kind]


def _read(written: Any) -> pa.Field:
    name, kind = written
    return pa.field(str(name), _type_read(kind))


def _type_read(written: Any) -> pa.DataType:
    if isinstance(written, str):
        return _SIMPLE[written]
    if "list" in written:
        return pa.list_(pa.field("element", _type_read(written["list"])))
    return pa.struct([_read(one) for one in written["struct"]])


__all__ = ["AUTO", "BINARY", "CHOICES", "DOCUMENTS", "SCHEMA", "choose_columns", "columns_of_stream", "open_columns"]
