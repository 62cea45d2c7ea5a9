"""The data source `format("sarit")` for a PySpark that is too old: its only use is to raise an error that says so.

Without any data source, Spark says `DATA_SOURCE_NOT_FOUND`, and logs the reason only as a warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from sarit.spark import versions

if TYPE_CHECKING:
    from collections.abc import Mapping


class TooOldSource(DataSource):
    """A data source that refuses every use.  This module must not import what PySpark 4.0 lacks."""

    @classmethod
    def name(cls) -> str:
        """Return the name to give to `format`."""
        return "sarit"

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises Invalid: PySpark is too old."""
        versions.check(versions.version())
