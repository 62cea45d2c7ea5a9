"""Bounds of serializers and of the client of a schema registry, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import MIB

REGISTRY_REQUEST_SECONDS: Final = 10.0  # the most that one request to a schema registry takes
# The most bytes of an answer of a registry: a schema of 1 MiB in which every character is escaped has six.
MAX_REGISTRY_ANSWER_BYTES: Final = 8 * MIB
MAX_CACHED_SCHEMAS: Final = 1000  # schemas by id that one client of a registry keeps
COMMON_SCHEMAS: Final = 8  # of which a decoder of events keeps the readers at hand, before all that it keeps
MAX_CACHED_REGISTRATIONS: Final = 1000  # registrations, by subject and text, that it keeps
MAX_MESSAGE_INDEXES: Final = 32  # the most levels of a Protobuf message within others
HEADER_BYTES: Final = 5  # of an event's header that names a schema, before the message indexes of Protobuf
UNKNOWN_SCHEMA_SECONDS: Final = 30.0  # how long an id that the registry does not know is not asked for again
MAX_DECOMPRESSED_EVENT_BYTES: Final = 64 * MIB  # the most bytes of an event that its codec has compressed
MAX_AVRO_LEVELS: Final = 200  # the most types within each other of an Avro schema that events are coded with
# The most characters of the text that names the columns of a stream's payloads: it is stored with each batch of rows.
MAX_COLUMN_CHOICE_CHARS: Final = 40_000
