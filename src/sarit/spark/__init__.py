"""The Spark connector: `format("sarit")`, a session whose workers find it, views of a scope, the lag of a query."""

from __future__ import annotations

from sarit.spark.sessions import check, session
from sarit.spark.source.lag import Lag, StreamLag, lag
from sarit.spark.tables.catalog import register

__all__ = ["Lag", "StreamLag", "check", "lag", "register", "session"]
