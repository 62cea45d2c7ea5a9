"""`sarit write --schema`: lines of JSON as events, by the latest schema of a subject, with its header."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Invalid
from sarit.core.properties import CONFLUENT, PRAVEGA, SCHEMA_HEADER
from sarit.serializers.avro_format import AvroSerializer
from sarit.serializers.json_format import JsonSerializer
from sarit.serializers.registration import bound_encoder
from sarit.serializers.schema import AVRO, JSON

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.core.names import StreamName

_SERIALIZERS: Final[Mapping[str, Any]] = {AVRO: AvroSerializer, JSON: JsonSerializer}


def line_encoder(stream: StreamName, properties: Mapping[str, str], subject: str, url: str) -> Callable[[bytes], bytes]:
    """Return a function from a line of JSON to an event; it raises Invalid for one that does not fit the schema.

    Raises UsageError (the events of the stream have no such header), NotFound, Unavailable."""
    from sarit.cli.schema.registry import open_registry

    header = properties.get(SCHEMA_HEADER)
    if header != CONFLUENT:
        advice = "write them by Pravega's serializers" if header == PRAVEGA else (
            f"readers learn it from the property: sarit stream update {stream} --property {SCHEMA_HEADER}={CONFLUENT}"
        )  # fmt: skip
        raise click.UsageError(f"--schema puts an id of a schema before events, which those of {stream} lack: {advice}")
    registry = open_registry(url)
    kind = registry.latest(subject).schema.format
    if kind not in _SERIALIZERS:
        raise click.UsageError(f"the schema of {subject} is of the format {kind}: --schema knows {AVRO} and {JSON}")
    serializer = _SERIALIZERS[kind](None, registry=registry, subject=subject, use_latest=True)
    encode = bound_encoder(serializer, stream, properties)

    def encode_line(line: bytes) -> bytes:
        try:
            value = parse_json(line)
        except ValueError as error:
            raise Invalid(f"it is no JSON document: {error}") from None
        return encode(value)

    return encode_line
