"""Payloads of events as columns: one machine for tables, queries, loaders and the Spark connector.

    columns = registered_columns(source, "shop.orders", "confluent")
    rows = columns.read(payloads)       # rows.columns as columns.schema; rows.bad: those that could not be decoded

A reader never raises because of what a payload holds: its row is marked, and `problem` says what is wrong with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sarit.core.properties import NO_HEADER
from sarit.schemas.column_types import check_columns
from sarit.schemas.payloads import Rows

if TYPE_CHECKING:
    from sarit.schemas.payloads import PayloadReader
    from sarit.serializers.schema_source import SchemaSource

VALUE: Final = "value"  # the column of payloads that are left as they are


class PayloadColumns:
    """Decodes payloads to the columns of `schema`.  May be pickled, if the source of its schemas is."""

    def __init__(self, schema: pa.Schema, reader: PayloadReader) -> None:
        self.schema = schema
        self._reader = reader

    def __repr__(self) -> str:
        return f"<PayloadColumns {', '.join(self.schema.names)}>"

    def renamed(self, schema: pa.Schema) -> PayloadColumns:
        """Return the same columns by other names."""
        return PayloadColumns(schema, self._reader)

    def read(self, payloads: pa.Array) -> Rows:
        """Decode binary payloads, one row each; a null payload is bad.

        With a registry, raises Unavailable, Forbidden, Unauthenticated: the registry did not tell."""
        return self._reader.read(payloads)

    def problem(self, payload: bytes) -> str:
        """Return what is wrong with a bad payload."""
        return self._reader.problem(payload)


def binary_columns(name: str = VALUE) -> PayloadColumns:
    """Return the one column of payloads that are left as they are."""
    return PayloadColumns(pa.schema([pa.field(name, pa.binary())]), _BinaryReader())


def json_columns(schema: pa.Schema, time_zone: str = "UTC") -> PayloadColumns:
    """Return the columns of JSON documents.  `time_zone`: of times that name none.

    Raises Invalid for a column of a type that JSON does not have, and for an unknown zone."""
    from sarit.schemas.json_reader import JsonReader

    check_columns(schema)
    return PayloadColumns(schema, JsonReader(schema, time_zone))


def registered_columns(
    source: SchemaSource,
    subject: str,
    header: str,
    wanted: pa.Schema | None = None,
    *,
    version: int | None = None,
    time_zone: str = "UTC",
) -> PayloadColumns:
    """Return the columns of payloads that name their schemas, or, with the header `none`, all have one version.

    `version`: of the subject, that gives the columns; None: the latest one.  `wanted`: some of its columns; None: all.
    Blocks.  Raises NotFound (the subject, its version), Invalid (a schema without columns, a column that it does not
    have), UnusableSchema, and what the source raises."""
    from sarit.serializers.registered_reader import RegisteredReader, columns_of_schema, plain_reader

    own = source.version(subject, version)
    columns = columns_of_schema(own) if wanted is None else wanted
    if header == NO_HEADER:
        return PayloadColumns(columns, plain_reader(own, columns, time_zone))
    return PayloadColumns(columns, RegisteredReader(source, own, subject, header, columns, time_zone))


class _BinaryReader:
    """Leaves payloads as they are."""

    def read(self, payloads: pa.Array) -> Rows:
        """Return the payloads; a null one is bad."""
        return Rows([payloads.cast(pa.binary())], payloads.is_null().to_numpy(zero_copy_only=False).astype(np.bool_))

    def problem(self, payload: bytes | None) -> str:
        """Return what is wrong with a payload."""
        return "there is no payload" if payload is None else "nothing is wrong with it"
