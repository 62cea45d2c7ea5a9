"""Bounds of schemas and codecs."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import MIB

# -- command line and Spark --------------------------------------------------------------------
MAX_JSON_BATCH_BYTES: Final = 256 * MIB  # the most bytes of payloads that are decoded at once
MAX_JSON_TEXT_LEVELS: Final = 200  # the most arrays and objects within each other of JSON in a column of texts
MAX_AVRO_FIELDS: Final = 10_000  # the most fields of an Avro schema that become columns, with those within others
MAX_JSON_FIELDS: Final = 10_000  # the most properties of a JSON Schema that become columns, with those within others

# -- columns of JSON without a schema ----------------------------------------------------------
INFERRED_SAMPLE_EVENTS: Final = 1000  # the most events whose columns are inferred together
INFERRED_SAMPLE_BYTES: Final = 16 * MIB  # the most bytes of them
MAX_INFERRED_COLUMNS: Final = 1000  # the most columns that are inferred, with those within others
MAX_INFERRED_NAMES: Final = 200  # the most names of an object that is a struct: one with more is text
MAX_INFERRED_LEVELS: Final = 12  # the most structs and lists within each other: what is deeper is text
MAX_INFERRED_NAME_CHARS: Final = 255  # the most characters of the name of a column
MAX_INFERRED_TEXT_CHARS: Final = 16_384  # the most characters of all names of columns that are inferred together

# -- registry ----------------------------------------------------------------------------------
MAX_SCHEMA_BYTES: Final = 1 * MIB  # the most bytes of a schema's text together with its references
MAX_SCHEMA_LEVELS: Final = 128  # the most arrays and objects within each other in a schema's text
MAX_SCHEMA_NAMES: Final = 10_000  # the most records, enums and fixed types of an Avro schema and its references
MAX_SCHEMA_REFERENCES: Final = 200  # the most references of a schema, with those of its references
MAX_SCHEMA_STEPS: Final = 1_000_000  # the most steps of one comparison of schemas: two seconds of a processor
MAX_SCHEMA_ALTERNATIVES: Final = 256  # the most combinations of alternatives that are compared one by one
MAX_TELLING_LEVELS: Final = 6  # how deep two alternatives of a JSON Schema are searched for what tells them apart
MAX_INCOMPATIBILITIES: Final = 100  # the most reasons that one comparison of schemas lists
MAX_FIXED_BYTES: Final = (1 << 31) - 1  # the most bytes of a fixed type, as in Avro's Java library
MAX_PROTOBUF_LEVELS: Final = 31  # the most messages within each other in a Protobuf schema, as in protoc
MAX_PROTOBUF_TOKENS: Final = 400_000  # the most names, numbers and symbols of a Protobuf schema: a second
MAX_PROTOBUF_MEMBERS: Final = 50_000  # the most fields, values of enums and methods of a file of Protobuf
MAX_PROTOBUF_COLUMNS: Final = 10_000  # the most columns of a Protobuf message, with those within others
MAX_PROTOBUF_NAME: Final = 512  # the most characters of a full name in Protobuf

# -- documents for people ----------------------------------------------------------------------
MAX_DOCUMENT_LEVELS: Final = 100  # the most levels of arrays and objects of an event that is shown as JSON
MAX_DOCUMENT_VALUES: Final = 100_000  # the most values of an event that is shown as JSON
MAX_SHOWN_DECIMAL_BYTES: Final = 1024  # the most bytes of a decimal that is shown as a number: others take long
