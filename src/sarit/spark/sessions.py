"""Spark sessions whose Python workers find Sarit, and a check that they do.

Spark asks its Python workers which data sources exist.  Workers run the program that `PYSPARK_PYTHON` names where the
driver (or the Connect server) starts, else `python3` of PATH.  If that Python has no Sarit, Spark says
`DATA_SOURCE_NOT_FOUND` without the reason.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from sarit.core.extras import require

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

    import pyarrow as pa
    from pyspark.sql import SparkSession

WORKER_PYTHON: Final = "PYSPARK_PYTHON"
DRIVER_PYTHON: Final = "PYSPARK_DRIVER_PYTHON"

log = logging.getLogger("sarit.spark")

# The environment variables that Spark sets for its streaming readers when a query starts.
STREAMING_NAMES: Final = ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_LOCAL_DIRS", "SPARK_PYTHON_RUNTIME")

_ADVICE: Final = (
    "install Sarit there, at the same path on all machines, and set PYSPARK_PYTHON to that Python before Spark starts "
    "(for Spark Connect: before its server starts)"
)


def session(
    name: str = "sarit",
    settings: Mapping[str, object] | None = None,
    *,
    master: str | None = None,
    remote: str | None = None,
) -> SparkSession:
    """Return a Spark session whose Python workers run this interpreter, so that they find Sarit; one per process.

    Spark starts its workers as `python3` of PATH.  Outside an activated environment that is another Python, without
    Sarit, and Spark says `DATA_SOURCE_NOT_FOUND`.  If `PYSPARK_PYTHON` is set, it is kept, and must have Sarit.

    `settings`: options of Spark, as `{"spark.sql.shuffle.partitions": 2}`.  `master`: a cluster, as
    `spark://host:7077`.  `remote`: a Spark Connect server, as `sc://host:15002`, which chooses the Python of its
    workers.  Raises MissingExtra (no PySpark here), ImportError (no Sarit in the Python of `PYSPARK_PYTHON`), Invalid
    (PySpark is too old), ValueError (both a master and a remote).
    """
    require("spark", "sarit.spark")
    from pyspark.sql import SparkSession

    from sarit.spark import versions

    versions.check(versions.version())
    if master is not None and remote is not None:
        raise ValueError("give a master or a remote, not both: a Connect server has a master of its own")
    builder = SparkSession.builder.appName(name)
    if remote is not None:
        builder = builder.remote(remote)
    else:
        choose_python(os.environ)
    if master is not None:
        builder = builder.master(master)
    for option, value in (settings or {}).items():
        builder = builder.config(option, str(value).lower() if isinstance(value, bool) else str(value))
    spark = builder.getOrCreate()
    if remote is None:
        name_environment(spark)
    return spark


def name_environment(spark: SparkSession) -> None:
    """Make it safe that two streaming queries of one driver start at the same moment.

    Spark keeps one map of environment variables for each data source, and all queries put the same names into it,
    without a lock.  Two concurrent first puts can leave the map with a wrong size; from then on every job fails (`Task
    not serializable`, `Illegal size 5 of collection`) until the driver ends.  So this puts the names into the map
    first: a put of a present name does not change the size."""
    try:
        manager = spark._jsparkSession.sessionState().dataSourceManager()
        variables = manager.lookupDataSource("sarit").dataSourceCls().envVars()
        for name in STREAMING_NAMES:
            variables.putIfAbsent(name, "")
    except Exception as error:  # not a public interface of Spark, so another version may lack it
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            log.warning(
                "Spark does not find Sarit: its JVM was started by an earlier session with another Python, or its one "
                "look for data sources failed on a busy machine. End this process and start again: %s", _ADVICE
            )  # fmt: skip
            return
        log.debug("the environment of Spark's streaming readers has no names yet: %s", error)


def choose_python(environment: MutableMapping[str, str]) -> None:
    """Set `PYSPARK_PYTHON` to this interpreter if it is not set.  Raises ImportError: the Python it names has no Sarit.

    Spark prefers `PYSPARK_DRIVER_PYTHON` for data sources, even in executors.  If it names no Python with Sarit (as
    `jupyter`), it is replaced, too: it is not needed any more when the driver runs."""
    python = environment.setdefault(WORKER_PYTHON, sys.executable)
    reason = _why_not(python, environment)
    if reason:
        raise ImportError(
            f"{WORKER_PYTHON} is {python}, which cannot import Sarit's connector ({reason}): unset it, or set it to a "
            f"Python with Sarit, as {sys.executable}"
        )
    driver = environment.get(DRIVER_PYTHON)
    if driver is not None and _why_not(driver, environment):
        environment[DRIVER_PYTHON] = python


def _why_not(python: str, environment: Mapping[str, str]) -> str:
    """Return why a program is no Python with the connector; "": it is one."""
    if python == sys.executable:
        return ""
    try:
        probe = [python, "-c", "import pyspark_sarit"]
        done = subprocess.run(probe, capture_output=True, text=True, env=dict(environment), check=False)
    except OSError as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2] or f"it ended with {done.returncode}"


def check(spark: SparkSession, tasks: int = 2) -> None:
    """Check that the driver's and the executors' Python find Sarit, by a job of `tasks` tasks.

    Works with Spark Connect, too; needs no node.  Raises ImportError, which says what to do."""
    from pyspark.errors import PySparkException

    try:
        spark.read.format("sarit").option("metadata", "streams").load()
    except PySparkException as error:
        if error.getCondition() != "DATA_SOURCE_NOT_FOUND":
            raise
        raise ImportError(f"the Python of Spark's driver does not find Sarit: {_ADVICE}") from error
    try:
        spark.range(0, tasks, 1, tasks).mapInArrow(_import_sarit, "id long").collect()
    except PySparkException as error:
        if "ModuleNotFoundError" not in str(error):
            raise
        raise ImportError(f"the Python of Spark's executors does not find Sarit: {_ADVICE}") from error


def _import_sarit(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyspark_sarit

    assert pyspark_sarit.__all__
    yield from batches
