"""The Spark connector: `format("sarit")`, sessions, views of a scope, the lag of a query, Avro schemas."""

from __future__ import annotations

from sarit.spark.formats.avro_schema import avro_schema
from sarit.spark.sessions import check, session
from sarit.spark.source.lag import Lag, StreamLag, lag
from sarit.spark.tables.catalog import register

__all__ = ["Lag", "StreamLag", "avro_schema", "check", "lag", "register", "session"]
