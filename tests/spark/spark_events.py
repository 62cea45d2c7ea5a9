"""What Spark's event log says about the work of the queries of a chain.  Pure.

A driver that is killed takes the end of its log with it: all numbers are lower bounds.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

LOST = ("ExecutorLostFailure", "ExceptionFailure", "FetchFailed")


@dataclass
class SparkEvents:
    """Over all logs that were added; `queries`: id -> name.

    `partitions`: (query, micro-batch) -> tasks of the stage that reads; the last attempt counts.  `copies` and
    `copies_won`: speculative tasks by (query, "read" or "write"); a stage that does both counts as "write".  `lost`:
    tasks that failed, by reason.  `late`: writing tasks that had a copy and ended after it, or were ended by Spark."""

    queries: Mapping[str, str]
    partitions: dict[tuple[str, int], int] = field(default_factory=dict)
    copies: Counter[tuple[str, str]] = field(default_factory=Counter)
    copies_won: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)

    def add(self, lines: Iterable[str]) -> None:
        """The log of one application."""
        stages: dict[int, tuple[str, str]] = {}
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the last line of a driver that was killed
            match event["Event"]:
                case "SparkListenerStageSubmitted":
                    self._stage(event, stages)
                case "SparkListenerTaskStart" if event["Task Info"]["Speculative"]:
                    self.copies[stages.get(event["Stage ID"], ("?", "?"))] += 1
                case "SparkListenerTaskEnd":
                    self._task(event, stages)

    def _stage(self, event: Mapping[str, Any], stages: dict[int, tuple[str, str]]) -> None:
        info, properties = event["Stage Info"], event.get("Properties", {})
        name = self.queries.get(properties.get("sql.streaming.queryId", ""))
        if name is None:
            return
        reads = not info["Parent IDs"]
        if reads:
            self.partitions[name, int(properties["streaming.sql.batchId"])] = info["Number of Tasks"]
        # `clean` has no shuffle: one stage reads and writes.
        stages[info["Stage ID"]] = name, "read" if reads and name != "clean" else "write"

    def _task(self, event: Mapping[str, Any], stages: Mapping[int, tuple[str, str]]) -> None:
        reason = event["Task End Reason"]["Reason"]
        if reason in LOST:
            self.lost[reason] += 1
        if reason == "Success" and event["Task Info"]["Speculative"]:
            self.copies_won[stages.get(event["Stage ID"], ("?", "?"))] += 1


def runs(numbers: Iterable[int]) -> str:
    """Numbers with the length of each run of equal ones: `2 (5 times), 8 (3 times)`."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][0] == number:
            found[-1] = number, found[-1][1] + 1
        else:
            found.append((number, 1))
    return ", ".join(f"{number} ({times} times)" if times > 1 else str(number) for number, times in found)


def submitted(log: Path, queries: Mapping[str, str]) -> set[tuple[str, int]]:
    """(query, micro-batch) of which a driver has given a stage to its executors."""
    events = SparkEvents(queries)
    with log.open(errors="replace") as lines:
        events.add(line for line in lines if '"SparkListenerStageSubmitted"' in line)
    return set(events.partitions)


def read_logs(directory: Path, queries: Mapping[str, str]) -> SparkEvents:
    """All logs of a directory."""
    events = SparkEvents(queries)
    for path in sorted(directory.rglob("events_*")):
        with path.open(errors="replace") as lines:
            events.add(lines)
    return events
