"""How fast one process commits a stream into an Iceberg table, and what that costs the writers of the stream.

python -m benchmarks.lake [--on worker | node] [--events N] [--ingest MB] [--event BYTES] [--pairs N] [--seconds S]

First, N events are written to four segments, and a committer of its own process takes them from the head into a table
of a SQLite catalog, as `sarit worker` does: events a second, from the first look at the stream to the last commit.

Then one writer sends events at a fixed rate all the time, open loop: one that is late counts from when it was due.  In
one turn of each pair, drawn which, a committer follows the stream, with a commit every few seconds: in that process,
or with `--on node` as a job in the process of the node.  The figure is the
median of p95 of the turns beside it, to the median of those without.  Everything shares this machine and one disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import sarit
from benchmarks.figures import certain_range
from benchmarks.harness import ROOT, Load, SaritNode, load
from sarit.core.limits import EVENT_HEADER_BYTES
from sarit.lake.settings import IcebergSettings

if TYPE_CHECKING:
    from sarit.core.cuts import StreamCut

STREAM: Final = "bench/s"
SEGMENTS: Final = 4
MB: Final = 1_000_000
BETWEEN_SECONDS: Final = 6.0
"""After a turn: the last commit ends meanwhile."""
WARM_UP_SECONDS: Final = 15.0
KEPT_PART: Final = 0.97
"""Of the rate: a turn that was slower says how much more there was to do than could be done, and nothing else."""


def _catalog(directory: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{directory}/c.db", "warehouse": f"file://{directory}/warehouse"}


async def commit(
    controller: str, directory: Path, table: str, chosen: dict[str, Any], *, whole: bool
) -> dict[str, Any]:
    """Commit until all that is there now is in the table (`whole`), or until cancelled.  Returns counts."""
    import sarit.aio
    from sarit.core.names import StreamName
    from sarit.env.real import real_env
    from sarit.lake.catalogs import Catalogs
    from sarit.lake.committer import Committer
    from sarit.lake.pyiceberg_tables import PyIcebergTables
    from sarit.process.jobs.stream_source import StreamSource
    from tests.lake_columns import BinaryChoice

    async def save(state: bytes, held: StreamCut | None) -> None:
        pass

    env = real_env()
    worker = env.threads.worker("lake")
    settings = IcebergSettings(f"lake.bench.{table}", value="binary", **chosen)
    async with await sarit.aio.connect(controller) as client:
        source = StreamSource(client.session, StreamName.parse(STREAM), env.clock)
        tables = PyIcebergTables(Catalogs({"lake": _catalog(directory)}), "lake")
        committer = Committer(settings, source, tables, BinaryChoice(), save, env, worker)
        began = time.monotonic()
        try:
            if whole:
                while committer.state.cut is None or await source.bytes_behind(committer.state.cut):
                    await committer.step()
                    while committer.state.intent is not None:
                        await committer.step()
            else:
                await committer.run()
        except asyncio.CancelledError:
            pass
        seconds = time.monotonic() - began
    await worker.close()
    counted = committer.statistics
    return {"rows": counted.rows, "commits": counted.commits, "files": counted.files, "seconds": seconds}


def serve(controller: str, directory: Path) -> None:
    """Commit as lines of standard input say: "whole TABLE", or "follow TABLE" until the line "end"."""

    async def follow(table: str) -> dict[str, Any]:
        chosen = {"start": "tail", "interval_seconds": 3}
        task = asyncio.ensure_future(commit(controller, directory, table, chosen, whole=False))
        await asyncio.to_thread(sys.stdin.readline)
        task.cancel()
        return await task

    import pyiceberg.io.pyarrow  # noqa: F401  # loaded before the first turn

    while line := sys.stdin.readline():
        how, table = line.split()
        work = (
            follow(table)
            if how == "follow"
            else commit(controller, directory, table, {"interval_seconds": 0}, whole=True)
        )
        print(json.dumps(asyncio.run(work)), flush=True)


class NodeCommitter:
    """A job of the node itself, which commits in the process that serves the writers."""

    def __init__(self, controller: str) -> None:
        self._client = sarit.connect(controller)
        self._began = 0.0
        self._answer: dict[str, Any] = {}

    def say(self, line: str) -> None:
        """Create a job ("follow TABLE"), or end it ("end")."""
        stream = self._client.stream(STREAM)
        if line == "end":
            (job,) = stream.jobs()
            if job.problem:
                raise SystemExit(f"the job failed: {job.problem}")
            self._answer = {"rows": int(job.state.get("rows", "0")), "seconds": time.monotonic() - self._began}
            stream.delete_job("iceberg")
            return
        settings = IcebergSettings(f"lake.bench.{line.split()[1]}", value="binary", start="tail", interval_seconds=3)
        self._began = time.monotonic()
        stream.create_job("iceberg", settings.encode())

    def answer(self) -> dict[str, Any]:
        """Return what the job counted."""
        return self._answer

    def end(self) -> None:
        """End the client."""
        self._client.close()


class CommitterProcess:
    """A process that commits on demand."""

    def __init__(self, controller: str, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.lake", "--serve", controller, "--dir", str(directory)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip

    def say(self, line: str) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Return what the committer counted."""
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def end(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()


Committing: TypeAlias = "CommitterProcess | NodeCommitter"


def measure(options: argparse.Namespace) -> None:
    """Run, and print."""
    directory = Path(tempfile.mkdtemp(prefix="lake-", dir=options.dir))
    (directory / "warehouse").mkdir()
    catalogs = directory / "catalogs.toml"
    catalogs.touch(mode=0o600)
    lines = [f"{name} = {json.dumps(text)}" for name, text in _catalog(directory).items()]
    catalogs.write_text("\n".join(["[lake]", *lines, ""]))
    node = SaritNode(directory / "site", 1, "--catalogs", str(catalogs)).start(plain=True)
    whole = CommitterProcess(node.endpoint, directory)
    committer = NodeCommitter(node.endpoint) if options.on == "node" else whole
    try:
        load("sarit_admin", {"controller": node.endpoint, "streams": {STREAM: SEGMENTS}})
        writing = {"controller": node.endpoint, "stream": STREAM, "event_bytes": options.event}
        load("sarit_write", writing | {"seconds": 600, "events": options.events, "many": True})
        print(f"load of the machine {os.getloadavg()[0]:.1f}", flush=True)
        whole.say("whole first")
        found = whole.answer()
        print(f"  {found['rows'] / found['seconds']:,.0f} events/s of {options.event} bytes into the table: "
              f"{found['rows']:,} in {found['seconds']:.1f} s, {found['commits']} commits, {found['files']} files",
              flush=True)  # fmt: skip
        if options.pairs:
            _show(*_turns(node.endpoint, options, directory, committer, writing))
    finally:
        for each in {whole, committer}:
            each.end()
        Load.end_all()
        node.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _turns(
    controller: str, options: argparse.Namespace, directory: Path, committer: Committing, writing: dict[str, Any]
) -> tuple[list[bool], list[dict[str, Any]], float, list[dict[str, Any]]]:
    """Which turns had a committer, what the writer says of each turn, the part of its rate that it kept, and what was
    committed."""
    rate = options.ingest * MB // (options.event + EVENT_HEADER_BYTES)
    turns = [beside for _ in range(options.pairs) for beside in random.sample((True, False), 2)]
    seconds = WARM_UP_SECONDS + len(turns) * (options.seconds + BETWEEN_SECONDS)
    spans, ask = directory / "spans.json", directory / "ask"
    asked = {"rate": rate, "seconds": seconds, "spans": str(spans), "ask": str(ask)}
    writer = Load("sarit_write", writing | asked)
    first = time.monotonic() + WARM_UP_SECONDS
    begins = [first + number * (options.seconds + BETWEEN_SECONDS) for number in range(len(turns))]
    counts = []
    for number, (begin, beside) in enumerate(zip(begins, turns, strict=True)):
        if (late := time.monotonic() - begin) > 0:
            raise SystemExit(f"the last commit before turn {number + 1} came {late:.1f} s late: nothing is compared")
        time.sleep(-late)
        if beside:
            committer.say(f"follow turn{number}")
        time.sleep(options.seconds)
        if beside:
            committer.say("end")
            counts.append(committer.answer())
        print(f"turn {number + 1} of {len(turns)}", end="\r", file=sys.stderr, flush=True)
    new = spans.with_suffix(".new")
    new.write_text(json.dumps([(at, at + options.seconds) for at in begins]))
    new.rename(spans)
    found = writer.result(seconds)
    return turns, found["spans"], found["events_per_s"] / rate, counts


def _show(turns: list[bool], spans: list[dict[str, Any]], kept_part: float, counts: list[dict[str, Any]]) -> None:
    if kept_part < KEPT_PART:
        print(f"  only {kept_part:.0%} of the rate: take less")
    beside = [span["p95_ms"] for span, with_one in zip(spans, turns, strict=True) if with_one]
    alone = [span["p95_ms"] for span, with_one in zip(spans, turns, strict=True) if not with_one]
    low, high = certain_range(lambda draw: median(draw(beside)) / median(draw(alone)))
    rows = median(each["rows"] / each["seconds"] for each in counts)
    print(
        f"  p95 of ingest: {median(beside):.1f} ms beside a committer of {rows:,.0f} events/s, {median(alone):.1f} ms "
        f"without: {median(beside) / median(alone):.2f} times (95 %: {low:.2f} to {high:.2f})"
    )


def main() -> None:
    """Measure, or commit for another process that measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=("worker", "node"), default="worker", help="where the stream is followed")
    parser.add_argument("--events", type=int, default=6_000_000, help="that are committed from the head")
    parser.add_argument("--ingest", type=int, default=17, help="MB of appends in a second beside the committer")
    parser.add_argument("--event", type=int, default=100, help="bytes of an event")
    parser.add_argument("--pairs", type=int, default=7, help="of turns, one with a committer; 0: none")
    parser.add_argument("--seconds", type=int, default=12, help="of each turn")
    parser.add_argument("--dir", type=Path, default=None, help="on the disk to be measured")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.dir)
    else:
        measure(options)


if __name__ == "__main__":
    main()
