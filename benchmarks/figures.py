"""The figures with a goal: their path in the raw results, goal and aim, and the table."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SARIT: Final = "sarit"
WHY_CHARACTERS: Final = 160
NOISY_PERCENT: Final = 10.0
DRAWINGS: Final = 400


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a row; `path`: its path in the raw result of the row; `least`: the goal; `aim`: the aim beyond
    it."""

    row: str
    path: str
    what: str
    unit: str
    least: float
    aim: float
    higher: bool = False

    def judged(self, value: float) -> str:
        """`aim met`, `goal met` or `MISSED`."""
        if (value >= self.aim) if self.higher else (value <= self.aim):
            return "aim met"
        return "goal met" if ((value >= self.least) if self.higher else (value <= self.least)) else "MISSED"


def _rate(row: str, path: str, what: str, least: float, aim: float) -> Figure:
    return Figure(row, path, what, "/s", least, aim, higher=True)


FIGURES: Final = (
    Figure("open-1", "p95_ms", "1 M events/s open loop, 1 segment: ack p95", "ms", 10, 5),
    Figure("open-16", "p95_ms", "1 M events/s open loop, 16 segments: ack p95", "ms", 10, 5),
    _rate("fast-1", "events_per_s", "unthrottled with flushing, 1 segment", 2e6, 4e6),
    _rate("fast-16", "events_per_s", "unthrottled with flushing, 16 segments", 2e6, 4e6),
    _rate("fast-1", "write_many.events_per_s", "the same in lists of 1,000, 1 segment", 2e6, 4e6),
    _rate("fast-16", "write_many.events_per_s", "the same in lists of 1,000, 16 segments", 2e6, 4e6),
    Figure("latency", "ack.p50_ms", "10 k events/s: ack p50", "ms", 3, 1.5),
    Figure("latency", "ack.p95_ms", "10 k events/s: ack p95", "ms", 5, 2.5),
    Figure("latency", "ack.p99_ms", "10 k events/s: ack p99", "ms", 10, 5),
    Figure("latency", "end_to_end.p50_ms", "10 k events/s: end to end p50", "ms", 4, 2),
    Figure("latency", "end_to_end.p99_ms", "10 k events/s: end to end p99", "ms", 10, 5),
    _rate("catch-up", "arrow.events_per_s", "catch-up read, Arrow batches", 3e6, 6e6),
    _rate("catch-up", "events.events_per_s", "catch-up read, one event at a time", 1e6, 2e6),
    Figure("checkpoints", "commit_p99_ms", "checkpoint (index commit) p99", "ms", 100, 20),
    Figure("checkpoints", "during_checkpoints.p99_ms", "ack p99 during flush cycles", "ms", 20, 10),
    _rate("streams", "streams_per_s", "create streams", 200, 1000),
    Figure("streams-100k", "memory_mb", "100,000 streams held: memory", "MB", 1074, 500),
    Figure("turns", "longest_turn_ms", "50,000 dirty segments: longest turn of the loop, CPU", "ms", 20, 10),
    Figure("turns", "long_turns", "the same: turns of more than 20 ms", "", 0, 0),
    Figure("turns", "append.p99_ms", "the same, 10 k appends/s: ack p99", "ms", 30, 15),
    Figure("backlog", "gain", "backlog read while 50 MB/s comes in: reader / ingest", "x", 1.01, 2, higher=True),
    Figure("backlog", "ingest_beside.p95_ms", "ingest ack p95 beside the backlog reader", "ms", 20, 10),
    Figure("start", "start_s", "start on an empty directory", "s", 2, 1),
    Figure("start", "idle_mb", "idle memory", "MB", 250, 150),
    Figure("processes", "bulk_ratio", "two processes / one, on two cores: bulk writes", "x", 0.95, 1.0, higher=True),
    Figure("processes", "small_ratio", "the same: 200 writers of one small append", "x", 1.0, 1.2, higher=True),
    Figure("killed-store", "back_s_worst", "kill -9 of one store of three: it serves again after", "s", 3, 1.5),
    Figure("killed-store", "others_ms_worst", "the same: longest wait for the other stores' acks", "ms", 1000, 100),
    _rate("transactions", "commits_per_s", "transactions, one client, 10 open, 4 segments", 200, 500),
    _rate("transactions", "one_segment.commits_per_s", "transactions, one client, 10 open, 1 segment", 200, 500),
    Figure("transactions", "commit.p95_ms", "the same on 4 segments, commit alone: p95", "ms", 50, 15),
    Figure("transactions", "one_segment.commit.p95_ms", "the same on 1 segment, commit alone: p95", "ms", 50, 15),
    Figure("transactions", "paced.whole.p95_ms", "transaction at 100/s, begin to COMMITTED: p95", "ms", 50, 25),
    Figure("transactions", "paced.commit.p95_ms", "transaction at 100/s, commit alone: p95", "ms", 50, 15),
    Figure("scaling", "scale_ms_worst", "1 -> 16 segments at 100 k events/s: worst of 5", "ms", 1000, 100),
    Figure("scaling", "stall_ms_worst", "longest stall of acknowledgements meanwhile", "ms", 100, 50),
    _rate("tables", "puts.per_s", "table puts in batches, one client", 10_000, 30_000),
    _rate("tables", "gets.per_s", "table gets in batches, one client", 20_000, 40_000),
    Figure("tables", "paced_puts.p95_ms", "table puts at 1 k/s: p95", "ms", 10, 5),
    Figure("tables", "paced_gets.p95_ms", "table gets at 1 k/s: p95", "ms", 10, 5),
    _rate("synchronizer", "updates_per_s", "synchronizer, conditional updates, one process", 500, 1000),
    _rate("synchronizer", "competing.updates_per_s", "synchronizer, conditional updates, four compete", 500, 1000),
    Figure("groups", "share", "group of 16 readers over 16 segments / 16 plain readers", "x", 0.9, 1.0, higher=True),
    Figure("groups", "beyond_timeout_s", "a reader dies: taken over beyond its time-out, worst of 3", "s", 2, 1),
    Figure("many-segments", "round.p95_ms", "one event to each of 5,000 segments, all acked: p95", "ms", 1000, 500),
    Figure(
        "many-clients",
        "steady_written_mb_per_s",
        "1,000 writers, 1,000 readers, of 100 MB/s asked: acked",
        "MB/s",
        99,
        99.9,
        higher=True,
    ),
    Figure("many-clients", "steady_read_mb_per_s", "the same: read", "MB/s", 99, 99.9, higher=True),
    Figure(
        "many-clients",
        "written_mb_per_s",
        "the same, cold start and the last ack included",
        "MB/s",
        97,
        99.5,
        higher=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Sarit against peers: how many times as good (higher is better, whatever the unit).

    `path` leads to the figure of both, unless `mine` leads to Sarit's."""

    row: str
    path: str
    what: str
    higher: bool
    least: float | None = None
    aim: float | None = None
    peers: tuple[str, ...] = ("kafka", "pravega")
    mine: str = ""


RATIOS: Final = (
    Ratio("fast-1", "events_per_s", "unthrottled, 1 segment, best of each", True, 3, 3, mine="best.events_per_s"),
    Ratio("fast-16", "events_per_s", "unthrottled, 16 segments, best of each", True, 3, 3, mine="best.events_per_s"),
    Ratio("fast-1", "events_per_s", "unthrottled, 1 segment, write(event)", True),
    Ratio("fast-16", "events_per_s", "unthrottled, 16 segments, write(event)", True),
    Ratio(
        "fast-1",
        "by_sarits_client.events_per_s",
        "unthrottled, 1 segment, Sarit's client on both",
        True,
        peers=("pravega",),
        mine="events_per_s",
    ),
    Ratio(
        "fast-16",
        "by_sarits_client.events_per_s",
        "unthrottled, 16 segments, Sarit's client on both",
        True,
        peers=("pravega",),
        mine="events_per_s",
    ),
    Ratio("official", "write.events_per_s", "official Python client, write", True, 2, 4, ("pravega",)),
    Ratio("official", "read.events_per_s", "official Python client, read", True, 1, 1.3, ("pravega",)),
    Ratio("spark", "events_per_s", "Spark batch count", True, 3, 5, ("kafka",)),
    Ratio("spark-stream", "events_per_s", "Spark streaming, history in 8 micro-batches", True, 1.5, 3, ("kafka",)),
    Ratio("spark-tail", "p50_ms", "Spark micro-batch at 10 k events/s: p50", False, 1, 1.5, ("kafka",)),
    Ratio(
        "spark-sink",
        "at_least_once.large.rows_per_s",
        "Spark sink, at least once, large batch",
        True,
        1,
        1.5,
        ("kafka",),
    ),
    Ratio(
        "spark-sink",
        "at_least_once.small.rows_per_s",
        "Spark sink, at least once, batches of 10 k",
        True,
        1,
        1.5,
        ("kafka",),
    ),
    Ratio(
        "spark-sink",
        "at_least_once.large.rows_per_s",
        "Spark sink, exactly once, against Kafka's at least once",
        True,
        peers=("kafka",),
        mine="exactly_once.large.rows_per_s",
    ),
    Ratio("latency", "ack.p50_ms", "10 k events/s: ack p50", False),
    Ratio("latency", "ack.p95_ms", "10 k events/s: ack p95", False),
    Ratio("latency", "ack.p99_ms", "10 k events/s: ack p99", False),
    Ratio("latency", "end_to_end.p50_ms", "10 k events/s: end to end p50", False),
    Ratio("latency", "end_to_end.p99_ms", "10 k events/s: end to end p99", False),
    Ratio("catch-up", "events.events_per_s", "catch-up read, one event at a time", True),
)


def certain_range(figure: Callable[[Callable[[Sequence[Any]], list[Any]]], float]) -> tuple[float, float]:
    """The two values between which a figure is in 95 of 100 drawings.

    `figure` computes it with the drawing it is given: as many of some values as there are, with repetition."""
    drawn = random.Random(1)
    found = sorted(figure(lambda values: drawn.choices(values, k=len(values))) for _ in range(DRAWINGS))
    return found[DRAWINGS * 25 // 1000], found[DRAWINGS * 975 // 1000]


def value_of(results: dict[str, Any], system: str, row: str, path: str) -> float | None:
    """A figure of a system, None where it was not measured."""
    found: Any = results.get(system, {}).get("rows", {}).get(row)
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            return None
        found = found[name]
    return float(found)


def _noisy(results: dict[str, Any], row: str, systems: tuple[str, ...]) -> str:
    """A remark after a verdict when other processes took much CPU while one of `systems` was measured."""
    most = max(value_of(results, system, row, "noise.others_cpu_during_percent") or 0.0 for system in systems)
    return f" (noisy: others {most:.0f} %)" if most > NOISY_PERCENT else ""


def shown(value: float, unit: str = "") -> str:
    """A figure formatted for people."""
    if unit == "/s":
        return (
            f"{value / 1e6:.2f} M/s" if value >= 1e6 else f"{value / 1e3:.0f} k/s" if value >= 1e4 else f"{value:.0f}/s"
        )
    return f"{value:.2f} {unit}" if value < 100 else f"{value:.0f} {unit}"


def ratios(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Sarit against each measured peer; the verdict counts the better one, and durable peers only."""
    rows = []
    for ratio in RATIOS:
        mine = value_of(results, SARIT, ratio.row, ratio.mine or ratio.path)
        theirs = {peer: value_of(results, peer, ratio.row, ratio.path) for peer in ratio.peers}
        known = {peer: value for peer, value in theirs.items() if value}
        if not mine or not known:
            continue
        times = {peer: round(mine / value if ratio.higher else value / mine, 2) for peer, value in known.items()}
        worst = min(times.values())
        verdict = ""
        if ratio.least is not None and ratio.aim is not None:
            verdict = "aim met" if worst >= ratio.aim else "goal met" if worst >= ratio.least else "MISSED"
        rows.append({"what": ratio.what, "sarit": mine, "peers": known, "times": times,
                     "goal": ratio.least, "aim": ratio.aim, "verdict": verdict,
                     "noise": _noisy(results, ratio.row, (SARIT, *known))})  # fmt: skip
    return rows


def judged(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Every figure that was measured, against its goal and aim."""
    rows = []
    for figure in FIGURES:
        value = value_of(results, SARIT, figure.row, figure.path)
        if value is not None:
            rows.append({"what": figure.what, "value": value, "unit": figure.unit, "goal": figure.least,
                         "aim": figure.aim, "verdict": figure.judged(value),
                         "noise": _noisy(results, figure.row, (SARIT,))})  # fmt: skip
    return rows


def table(results: dict[str, Any]) -> str:
    """Ratios first, then absolute figures, then what was not measured and why, then the noise."""
    lines = ["", "Sarit against its peers (same machine, same run; higher is better for Sarit)"]
    for row in ratios(results):
        goal = f"goal {row['goal']:g}, aim {row['aim']:g}" if row["goal"] else ""
        against = "  ".join(f"{times:.2f} x {peer}" for peer, times in row["times"].items())
        lines.append(f"  {row['what']:<52} {against:<36} {goal:<20} {row['verdict']}{row['noise']}")
    if len(lines) == 2:
        lines.append("  no peer was measured")
    lines += ["", f"  {'figure':<56} {'measured':>12} {'goal':>12} {'aim':>12}"]
    for row in judged(results):
        columns = " ".join(f"{shown(row[name], row['unit']):>12}" for name in ("value", "goal", "aim"))
        lines.append(f"  {row['what']:<56} {columns}  {row['verdict']}{row['noise']}")
    for found in results.values():
        if isinstance(found, dict) and "rows" in found:
            for row, why in found["failed"].items():
                lines.append(
                    f"  not measured: {found['name']}, {row}: {why.strip().splitlines()[-1][-WHY_CHARACTERS:]}"
                )
            noises = [row["noise"] for row in found["rows"].values() if "noise" in row]
            if noises:
                before = [one["others_cpu_percent"] for one in noises]
                during = [one["others_cpu_during_percent"] for one in noises]
                lines.append(
                    f"  noise on {found['name']}: others took {min(before):.0f} to {max(before):.0f} % of CPU before "
                    f"and {min(during):.0f} to {max(during):.0f} % during the rows"
                )
    return "\n".join(lines)
