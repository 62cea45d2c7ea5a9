"""What each program of this directory needs around it: a command line, a node, a client, and a Spark session.

`main` takes care of all of them and calls the program's `run`.  Without `--controller` it starts a node of its own.
Nothing in here is needed in a pipeline of yours: it has a node already, and `sarit.spark.session()` makes the session.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # the root of the repository

import sarit
import sarit.spark
from examples.flights.node import Node
from examples.flights.query import root_cause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

SETTINGS: Mapping[str, object] = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pipeline runs.  `directory` is for checkpoints and files; a later run continues there."""

    spark: SparkSession
    client: sarit.Client
    controller: str
    directory: Path

    def checkpoint(self, query: str) -> str:
        """The checkpoint of one query."""
        return str(self.directory.resolve() / "checkpoints" / query)


def main(name: str, doc: str | None, run: Callable[[Place], None]) -> None:
    """Parse the command line, start what is not there, and run.  `name` is the directory's when none is given."""
    parser = command_line(name, doc)
    options = parser.parse_args()
    with ExitStack() as stack:
        controller = serve(stack, options.controller, options.data)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        spark = sarit.spark.session(name, SETTINGS)
        stack.callback(spark.stop)
        client = stack.enter_context(sarit.connect(controller, wait=60))
        run(Place(spark, client, controller, options.data))


def command_line(name: str, doc: str | None) -> argparse.ArgumentParser:
    """The options that all programs have."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controller", help="host:port of a node; without it the program starts one for itself")
    default = Path("pipelines-data") / name
    parser.add_argument("--data", type=Path, default=default, help=f"directory for checkpoints and files ({default})")
    return parser


def serve(stack: ExitStack, controller: str | None, directory: Path) -> str:
    """The address of the controller; a node that is started here ends with `stack`."""
    directory.mkdir(parents=True, exist_ok=True)
    return controller or stack.enter_context(Node(directory))


def finish(query: StreamingQuery) -> list[Mapping[str, Any]]:
    """Let a query process everything that is there, and stop it.  The progress of its micro-batches, oldest first.

    Raises StreamingQueryException when the query failed; its last line is the cause."""
    try:
        query.processAllAvailable()
        return list(query.recentProgress)
    except Exception as error:
        error.add_note(f"Spark failed: {root_cause(error)}")
        raise
    finally:
        query.stop()


def expect(what: str, found: object, wanted: object) -> None:
    """Exit with an error unless both are equal: every program checks its own result."""
    if found != wanted:
        raise SystemExit(f"{what}: {str(found)[:500]} was found, {str(wanted)[:500]} is right")
