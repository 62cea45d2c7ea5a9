"""Registers `format("sarit")` with Spark, which looks for a `DefaultSource` in all modules named `pyspark_*`."""

from __future__ import annotations

from sarit.core.extras import require

try:
    from sarit.spark import versions

    if versions.is_supported(versions.version()):
        from sarit.spark.data_source import SaritSource as DefaultSource
    else:
        from sarit.spark.too_old import TooOldSource as DefaultSource  # type: ignore[assignment]
except ModuleNotFoundError:
    require("spark", "the data source of Spark")
    raise

__all__ = ["DefaultSource"]
