"""Spark with Iceberg's runtime: answers queries, one a line (`engines.SqlProgram`).  Arguments: settings NAME=VALUE."""

from __future__ import annotations

import json
import os
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def main(*settings: str) -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Java prints is no answer
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.ui.showConsoleProgress", "false")
    for setting in settings:
        name, _, value = setting.partition("=")
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for line in sys.stdin:
        try:
            answer: dict[str, object] = {"rows": [list(row) for row in spark.sql(json.loads(line)).collect()]}
        except PySparkException as error:
            answer = {"error": str(error)[:2000]}
        print(json.dumps(answer, default=str), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
