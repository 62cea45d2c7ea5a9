"""The Spark connector: `format("sarit")`, and a session whose workers find it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from sarit.spark.source.lag import Lag, StreamLag, lag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

__all__ = ["Lag", "StreamLag", "lag", "session"]

WORKER_PYTHON = "PYSPARK_PYTHON"


def session(name: str = "sarit", settings: Mapping[str, object] | None = None) -> SparkSession:
    """A Spark session whose Python workers run this interpreter, so that they find Sarit; one per process.

    Spark starts its workers as `python3` of PATH.  Outside an activated environment that is another Python, without
    Sarit, and Spark says `DATA_SOURCE_NOT_FOUND`.  A `PYSPARK_PYTHON` of the environment is left as it is.

    `settings`: options of Spark, as `{"spark.sql.shuffle.partitions": 2}`.  Raises ImportError (PySpark is not
    installed).
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError("PySpark is not installed: install Sarit with its extra [spark], or pyspark 4.1") from error
    os.environ.setdefault(WORKER_PYTHON, sys.executable)
    builder = SparkSession.builder.appName(name)
    for option, value in (settings or {}).items():
        builder = builder.config(option, str(value))
    return builder.getOrCreate()
