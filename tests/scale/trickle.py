"""Many segments that trickle: one small append to each in every round, then a restart, and a read of each.

It must hold: resident memory within `--memory` and 300 MiB, a bound on the inlined extents of a segment, and an index
whose files are not much larger than what they hold.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from sarit.core.limits import MIB
from sarit.index import keys
from sarit.index.limits import FREE_INDEX_BYTES, MAX_INDEX_WAL_FILE_BYTES
from sarit.store.tiering.compaction import MAX_SMALL_EXTENTS
from tests.scale.trickle_life import Life

ROOT: Final = Path(__file__).resolve().parents[2]
# The program itself, the load's own objects, and what the allocator does not give back.
SLACK_BYTES: Final = 300 * MIB


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run."""

    segments: int
    rounds: int
    event_bytes: int
    memory_bytes: int
    containers: int = 4


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one life of the node, and what its index holds after it."""

    name: str
    peak_mib: float
    seconds: float
    joined: int
    inlined: int
    most_inlined: int
    content_mib: float
    index_mib: float


def run_trickle(directory: Path, plan: Plan) -> list[Result]:
    """Append rounds; restart, read each segment, append some more.  Raises CalledProcessError."""
    more = max(1, plan.rounds // 5)
    first = Life(
        str(directory / "data"), plan.segments, 0, plan.rounds, plan.event_bytes, plan.memory_bytes, plan.containers,
        read=False,
    )  # fmt: skip
    again = replace(first, first_round=plan.rounds, rounds=more, read=True)
    lives = {"appends": first, "restart, a read of each, appends": again}
    return [_run(name, directory, life) for name, life in lives.items()]


def _run(name: str, directory: Path, life: Life) -> Result:
    figures = directory / "figures.json"
    command = [sys.executable, "-m", "tests.scale.trickle_life", json.dumps(asdict(life)), str(figures)]
    subprocess.run(command, cwd=ROOT, check=True)
    counts: list[int] = []
    content = files = 0
    for number in range(life.containers):
        path = Path(life.directory) / "index" / f"container-{number}.db"
        with closing(sqlite3.connect(path)) as index:
            span = keys.kind_range(keys.INLINED)
            query = "SELECT count(*) FROM entries WHERE k>=? AND k<? GROUP BY substr(k,2,8)"
            counts += [count for (count,) in index.execute(query, span)]
            content += index.execute("SELECT sum(length(k)+length(v)) FROM entries").fetchone()[0]
        files += path.stat().st_size
    measured = json.loads(figures.read_text())
    return Result(
        name, measured["peak_mib"], measured["seconds"], measured["joined"], sum(counts), max(counts, default=0),
        content / MIB, files / MIB,
    )  # fmt: skip


def violations(plan: Plan, result: Result) -> list[str]:
    """What does not hold."""
    wrong = []
    most_memory = (plan.memory_bytes + SLACK_BYTES) / MIB
    if result.peak_mib > most_memory:
        wrong.append(f"{result.peak_mib:.0f} MiB of memory, {most_memory:.0f} are allowed")
    if result.most_inlined > MAX_SMALL_EXTENTS:
        wrong.append(f"a segment has {result.most_inlined} inlined extents, {MAX_SMALL_EXTENTS} are allowed")
    # SQLite's pages are not full: a third more.
    most_index = 1.5 * result.content_mib + plan.containers * (FREE_INDEX_BYTES + MAX_INDEX_WAL_FILE_BYTES) / MIB
    if result.index_mib > most_index:
        wrong.append(f"the index has {result.index_mib:.0f} MiB for {result.content_mib:.0f} of content")
    return wrong


def summary(plan: Plan, results: list[Result]) -> str:
    """For people."""
    lines = [
        f"{plan.segments} segments, {plan.rounds} rounds of {plan.event_bytes} bytes each, "
        f"--memory {plan.memory_bytes // MIB}M"
    ]
    for result in results:
        lines.append(
            f"{result.name}: {result.seconds:.0f} s, {result.peak_mib:.0f} MiB at most, {result.joined} extents "
            f"joined, {result.inlined} inlined left (at most {result.most_inlined} of a segment), index "
            f"{result.index_mib:.0f} MiB for {result.content_mib:.0f}"
        )
        lines += [f"  VIOLATION: {wrong}" for wrong in violations(plan, result)]
    return "\n".join(lines)
