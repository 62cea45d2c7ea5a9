"""Spark looks for modules named `pyspark_*` with a `DefaultSource`: this one makes `format("sarit")` known."""

from __future__ import annotations

from sarit.spark.data_source import SaritSource as DefaultSource

__all__ = ["DefaultSource"]
