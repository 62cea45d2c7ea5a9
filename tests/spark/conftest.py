"""One Spark for all tests of this folder; without Java they are skipped, except in CI."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.spark import forked_python

# A JVM of a test lives for a minute: what its second compiler and its parallel collector do is not worth their time.
# Set when modules are imported: some hand the environment on to programs with a Spark of their own.
os.environ["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark():
    if shutil.which("java") is None and not os.environ.get("CI"):
        pytest.skip("Spark needs Java: install a JRE of version 17 or newer")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = forked_python.program()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Spark starts dozens of Python processes.  Without bytecode each compiles pandas again: 5 s of processor time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    session = (
        # A failed task is tried four times, as on a cluster.
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()
