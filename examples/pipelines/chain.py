"""A chain of two jobs through an intermediate stream, exactly once from end to end, killed at random while it runs.

    python examples/pipelines/chain.py [--controller HOST:PORT] [--data DIR] [--kills 3]
    python examples/pipelines/chain.py jobs --controller HOST:PORT [--data DIR]          # the two jobs alone

`clean` drops cancelled flights, and passes the others on by airline.  `total` keeps the miles flown by each airline,
and writes a line for each flight.  A line that was lost, doubled or out of order would change all later ones.

The first command writes the flights, starts the second one as a process of its own, and kills it with its Spark, again
and again.  The jobs continue from their checkpoints.  Each line also names the micro-batch and the task that wrote it,
and how many lines that task wrote: whoever reads the output can see that it comes whole.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))  # the root of the repository

import sarit
import sarit.spark
from examples.flights.query import root_cause
from examples.pipelines import inputs, program

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping

    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


FLIGHTS: Final = "airlines/flights"
CLEAN: Final = "airlines/clean"
TOTALS: Final = "airlines/totals"
DAYS: Final = 3
EVENTS_PER_BATCH: Final = 500
# How long a Python worker waits for its JVM to answer, which may be slow on a busy machine.
PATIENT: Final = "spark.python.authenticate.socketTimeout=120s"


def events_of(days: int) -> list[inputs.Event]:
    """Flights {"n", "airline", "miles", "flown"}, numbered in order, by airline."""
    events = []
    for number, event in enumerate(inputs.departures(days)):
        flight = json.loads(event.body)
        fields = {"airline": flight["carrier"], "miles": flight["distance"], "flown": flight["dep_delay"] is not None}
        events.append(inputs.Event(json.dumps({"n": number, **fields}), flight["carrier"]))
    return events


def totals_of(events: Iterable[inputs.Event]) -> dict[str, list[tuple[int, int]]]:
    """Airline -> its (n, miles so far), in order: what the chain must write."""
    found: dict[str, list[tuple[int, int]]] = {}
    for flight in (json.loads(event.body) for event in events):
        if flight["flown"]:
            lines = found.setdefault(flight["airline"], [])
            lines.append((flight["n"], flight["miles"] + (lines[-1][1] if lines else 0)))
    return found


def mistakes(found: Mapping[str, list[tuple[int, int]]], wanted: Mapping[str, list[tuple[int, int]]]) -> list[str]:
    """What is wrong with the lines that were found, one text per airline."""
    wrong = []
    for airline in sorted(found.keys() | wanted.keys()):
        is_there, right = found.get(airline, []), wanted.get(airline, [])
        if is_there == right:
            continue
        at = next((at for at, pair in enumerate(zip(is_there, right, strict=False)) if pair[0] != pair[1]), len(right))
        lost, more = Counter(right) - Counter(is_there), Counter(is_there) - Counter(right)
        wrong.append(
            f"{airline}: {len(is_there)} lines instead of {len(right)}, {lost.total()} missing, {more.total()} extra, "
            f"line {at} is {is_there[at : at + 1]} instead of {right[at : at + 1]}"
        )
    return wrong


def create_streams(client: sarit.Client, segments: int = 2) -> None:
    """The streams of the chain; `segments`: of the first one."""
    client.create_scope("airlines")
    client.create_stream(FLIGHTS, segments=segments)
    client.create_stream(CLEAN, segments=2)
    client.create_stream(TOTALS, segments=2)


def clean(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """The first job: without cancelled flights."""
    from pyspark.sql import functions as f

    flights = read(spark, FLIGHTS, options).select(
        "event", f.from_json("event", "airline string, flown boolean").alias("flight")
    )
    flown = flights.where("flight.flown").selectExpr("event", "flight.airline as routing_key")
    return write(flown, CLEAN, options)


def total(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """The second job: miles so far of each airline."""
    from pyspark.sql import functions as f
    from pyspark.sql.streaming.state import GroupStateTimeout

    flights = read(spark, CLEAN, options).select(
        f.from_json("event", "n long, airline string, miles long").alias("flight")
    )
    columns = "n long, airline string, miles long"
    totals = (
        flights.select("flight.*")
        .groupBy("airline")
        .applyInPandasWithState(add_miles, columns, "miles long", "append", GroupStateTimeout.NoTimeout)
    )
    return write(totals.mapInArrow(lines, "event string, routing_key string"), TOTALS, options)


def add_miles(key: tuple[str], flights: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """The flights of one airline in a micro-batch, with the miles until then; the state is their sum."""
    import pandas as pd

    # A shuffle promises no order within a micro-batch; earlier micro-batches have the earlier flights.
    found = pd.concat(flights).sort_values("n")
    before = state.get[0] if state.exists else 0
    found["miles"] = found["miles"].cumsum() + before
    state.update((int(found["miles"].iloc[-1]),))
    yield found[["n", "airline", "miles"]]


def lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The lines of a task, each with the micro-batch, the task, and the number of its lines."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    found = [row for batch in batches for row in batch.to_pylist()]
    writer = {"batch": int(context.getLocalProperty("streaming.sql.batchId")), "task": context.partitionId()}
    events = [json.dumps(row | writer | {"lines": len(found)}) for row in found]
    columns = [pa.array(events, pa.string()), pa.array([row["airline"] for row in found], pa.string())]
    yield pa.RecordBatch.from_arrays(columns, names=["event", "routing_key"])


def read(spark: SparkSession, stream: str, options: argparse.Namespace) -> Any:
    """A stream as a streaming frame with one column, `event`."""
    source = spark.readStream.format("sarit").schema("event string").option("controller", options.controller)
    return source.option("stream", stream).option("maxEventsPerTrigger", EVENTS_PER_BATCH).load()


def write(frame: Any, stream: str, options: argparse.Namespace) -> StreamingQuery:
    """Start a query that writes a frame into a stream; its checkpoint is named after the stream."""
    sink = frame.writeStream.format("sarit").queryName(stream.partition("/")[2]).outputMode("append")
    sink = sink.option("controller", options.controller).option("stream", stream).options(**options.sink)
    checkpoint = options.data.resolve() / "checkpoints" / stream.partition("/")[2]
    return sink.option("checkpointLocation", str(checkpoint)).start()


def jobs(options: argparse.Namespace, settings: Mapping[str, object] = program.SETTINGS) -> None:
    """Run both jobs until standard input ends, then until everything is processed.  A job that fails is started again.

    What kills a task may also fail its job, as when Spark gives up on a micro-batch; its checkpoint has the rest."""
    spark = sarit.spark.session("chain", settings)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    running = {start: start(spark, options) for start in (clean, total)}
    print("both jobs run", flush=True)
    while True:
        drained = False
        try:
            if ended.is_set():
                for query in running.values():  # in the order of the chain
                    query.processAllAvailable()
                drained = True
            else:
                spark.streams.awaitAnyTermination(0.3)
        except Exception as error:
            print(f"a job failed: {root_cause(error)[:300]}", flush=True)
        if drained and all(query.isActive for query in running.values()):
            break
        spark.streams.resetTerminated()
        for start, query in running.items():
            if not query.isActive:
                running[start] = start(spark, options)
    for query in running.values():
        query.stop()
    spark.stop()


class Jobs:
    """The jobs as a process of their own, in a session of their own (`setsid`), to be killed with all they started."""

    def __init__(self, controller: str, directory: Path, *options: str) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "jobs", "--controller", controller]
        self._log = (directory / "jobs.log").open("ab")
        self.process = subprocess.Popen(
            [*command, "--data", str(directory), "--spark", PATIENT, *options],
            stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, start_new_session=True,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip

    def kill(self) -> None:
        """Kill -9 for all of it."""
        for pid in session_processes(self.process.pid):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def drain(self, timeout: float | None = None) -> int:
        """Let them process what is there; the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(timeout)
        self._log.close()
        return code


def session_processes(leader: int) -> list[int]:
    """The processes of a session: Spark's Python workers leave their process group, but not their session."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and os.getsid(int(entry.name)) == leader:
                found.append(int(entry.name))
        except ProcessLookupError:
            continue  # it has just ended
    return found


def run(client: sarit.Client, controller: str, directory: Path, kills: int, seed: int) -> None:
    """Write the flights, kill the jobs some times, let them end, and check what they wrote."""
    rng = random.Random(seed)
    create_streams(client)
    events = events_of(DAYS)
    share = -(-len(events) // (kills + 1))
    for part in range(kills + 1):
        with client.writer(FLIGHTS) as writer:
            for event in events[part * share : (part + 1) * share]:
                writer.write(event.body, key=event.key)
        running = Jobs(controller, directory)
        if part < kills:
            wait_for_growth(client, running)
            time.sleep(rng.random() * 3)  # the kill comes at a random moment
            running.kill()
        elif code := running.drain():
            raise SystemExit(f"the jobs ended with {code}: see {directory}/jobs.log")
    found: dict[str, list[tuple[int, int]]] = {}
    for line in (json.loads(event) for event in client.reader(TOTALS, end="tail")):
        found.setdefault(line["airline"], []).append((line["n"], line["miles"]))
    if wrong := mistakes(found, totals_of(events)):
        raise SystemExit("the output is wrong:\n" + "\n".join(wrong))
    print(
        f"{sum(map(len, found.values()))} lines of {len(found)} airlines, each once and in order, after {kills} kills"
    )


def wait_for_growth(client: sarit.Client, running: Jobs) -> None:
    """Wait until the first job has written something."""
    before = sum(client.stream_cut_tail(CLEAN).positions.values())
    while sum(client.stream_cut_tail(CLEAN).positions.values()) == before:
        if running.process.poll() is not None:
            raise SystemExit("the jobs ended before they wrote anything: see jobs.log")
        time.sleep(0.1)


def main() -> None:
    """Both commands."""
    parser = program.command_line("chain", __doc__)
    parser.add_argument("what", nargs="?", choices=["jobs"], help="run the jobs alone, until standard input ends")
    parser.add_argument("--kills", type=int, default=3, help="how often the jobs are killed (3)")
    parser.add_argument("--seed", type=int, default=random.randrange(1000), help="decides the moments of the kills")
    parser.add_argument("--spark", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    parser.add_argument("--sink", action="append", default=[], metavar="NAME=VALUE", help="an option of the sinks")
    options = parser.parse_args()
    options.sink = dict(one.split("=", 1) for one in options.sink)
    if options.what == "jobs":
        if not options.controller:
            parser.error("jobs needs --controller")
        jobs(options, {**program.SETTINGS, **dict(one.split("=", 1) for one in options.spark)})
        return
    with ExitStack() as stack:
        controller = program.serve(stack, options.controller, options.data)
        client = stack.enter_context(sarit.connect(controller, wait=60))
        run(client, controller, options.data, options.kills, options.seed)


if __name__ == "__main__":
    main()
