"""The rows of Spark jobs, the same for Sarit's connector and for Spark's own Kafka connector.

A `SparkSide` says how one system is filled, paced and named in options; the rows are functions of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from benchmarks.harness import load

if TYPE_CHECKING:
    from benchmarks.harness import Load
    from benchmarks.scale import Scale

SPARK_EVENTS: Final = 10_000_000
QUICK_SPARK_EVENTS: Final = 4_000_000
STREAM_BATCHES: Final = 8
TAIL_RATE: Final = 10_000
SINK_ROWS: Final = 4_000_000
QUICK_SINK_ROWS: Final = 1_000_000
SMALL_BATCH_ROWS: Final = 10_000
SMALL_BATCHES: Final = 30
SEGMENTS: Final = 4
JOB_SECONDS: Final = 600.0


class SparkSide(Protocol):
    """One system behind Spark."""

    def make(self, stream: str, segments: int) -> None: ...
    def fill(self, stream: str, events: int) -> None: ...
    def writer(self, stream: str, rate: int, seconds: float) -> Load: ...
    def job(self, stream: str, guarantee: str = "") -> dict[str, Any]: ...
    def start_of(self, where: str) -> dict[str, str]: ...
    def limit(self, events: int) -> dict[str, str]: ...


def count(side: SparkSide, scale: Scale) -> dict[str, Any]:
    """A batch count and sum of lengths, 4 segments."""
    side.make("spark", SEGMENTS)
    side.fill("spark", QUICK_SPARK_EVENTS if scale.quick else SPARK_EVENTS)
    return _run(side.job("spark"), mode="count", start=side.start_of("earliest"))


def stream(side: SparkSide, scale: Scale) -> dict[str, Any]:
    """History in 8 micro-batches, as fast as it goes."""
    events = QUICK_SPARK_EVENTS if scale.quick else SPARK_EVENTS
    side.make("stream", SEGMENTS)
    side.fill("stream", events)
    limits = side.limit(events // STREAM_BATCHES)
    return _run(side.job("stream"), mode="stream", limits=limits, start=side.start_of("earliest"))


def tail(side: SparkSide, scale: Scale) -> dict[str, Any]:
    """Micro-batches at the tail while 10,000 events a second come in."""
    from benchmarks.harness import Load

    seconds = scale.seconds(40, 25)
    side.make("tail", SEGMENTS)
    job = side.job("tail")
    job["options"] |= side.start_of("latest")
    query = Load("spark_job", job | {"mode": "tail", "seconds": seconds})
    try:
        query.wait_ready(120)
        writer = side.writer("tail", TAIL_RATE, seconds)
        found = query.result(JOB_SECONDS)
        writer.result(JOB_SECONDS)
        return found
    finally:
        query.end()


def sink(side: SparkSide, scale: Scale, guarantees: tuple[str, ...]) -> dict[str, Any]:
    """A large batch write and a stream of small micro-batches, for each guarantee."""
    found: dict[str, Any] = {}
    for guarantee in guarantees:
        side.make(f"large{len(found)}", SEGMENTS)
        side.make(f"small{len(found)}", SEGMENTS)
        rows = QUICK_SINK_ROWS if scale.quick else SINK_ROWS
        large = _run(side.job(f"large{len(found)}", guarantee), mode="sink", rows=rows)
        small = _run(
            side.job(f"small{len(found)}", guarantee), mode="stream sink", rows=SMALL_BATCH_ROWS, batches=SMALL_BATCHES
        )
        found[guarantee.replace("-", "_")] = {"large": large, "small": small}
    return found


def _run(job: dict[str, Any], *, start: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return load("spark_job", job | {"options": job["options"] | (start or {})} | more, JOB_SECONDS)
