"""A declarative pipeline of Spark: two tables and a sink, described and not scheduled, from a stream of departures.

It fills the stream `flights/departures`, runs `spark-pipelines run` on a copy of this project, and compares the events
of `flights/late` with what plain Python finds.  `spark-pipelines` is Spark's own command, and uses Spark Connect.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # the root of the repository

import sarit
from examples.pipelines import inputs, program
from sarit.spark.sessions import choose_python

PROJECT = Path(__file__).resolve().parent
DAYS = 2
LATE_MINUTES = 120


def run(controller: str, directory: Path, options: list[str]) -> int:
    """Fill, run, compare; the number of late departures.  `options` are those of spark-submit."""
    flights = inputs.departures(DAYS)
    with sarit.connect(controller, wait=60) as client:
        client.create_scope("flights")
        client.create_stream("flights/departures", segments=2)
        client.create_stream("flights/late")
        with client.writer("flights/departures") as writer:
            writer.write_many([flight.body for flight in flights], [flight.key for flight in flights])
        submit(directory, controller, options)
        found = sorted(json.loads(event)["flight"] for event in client.reader("flights/late", end="tail"))
    records = [json.loads(flight.body) for flight in flights]
    wanted = sorted(one["flight"] for one in records if (one["dep_delay"] or 0) >= LATE_MINUTES)
    program.expect("late departures", found, wanted)
    return len(found)


def submit(directory: Path, controller: str, options: list[str]) -> None:
    """Run the pipeline in a copy of the project, which has its storage beside it."""
    project = directory.resolve() / "project"
    shutil.rmtree(project, ignore_errors=True)
    shutil.copytree(PROJECT, project)
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///tmp/departures-storage", (project / "storage").as_uri()))
    environment = os.environ | {"SARIT_CONTROLLER": controller}
    environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    choose_python(environment)
    command = [Path(sys.executable).with_name("spark-pipelines"), "run", "--spec", spec, *options]
    subprocess.run(command, cwd=project, env=environment, check=True)


def main() -> None:
    """Parse the command line, start what is not there, and run."""
    parser = program.command_line("declarative", __doc__)
    parser.add_argument("--remote", default="local[2]", help="a Spark Connect server (local[2]: one of its own, 15002)")
    given = parser.parse_args()
    options = ["--remote", given.remote]
    with ExitStack() as stack:
        late = run(program.serve(stack, given.controller, given.data), given.data, options)
    print(f"{late} departures were {LATE_MINUTES} minutes late or more")


if __name__ == "__main__":
    main()
