"""What `format("sarit")` is with a PySpark that is too old: an error that says so.

Without a class to be found, Spark says `DATA_SOURCE_NOT_FOUND`, and the reason in a warning of its log alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from sarit.spark import versions

if TYPE_CHECKING:
    from collections.abc import Mapping


class TooOldSource(DataSource):
    """Refuses every use.  It must not import what PySpark 4.0 lacks."""

    @classmethod
    def name(cls) -> str:
        """Return the name to give to `format`."""
        return "sarit"

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises Invalid."""
        versions.check(versions.version())
