"""How the cost of Spark jobs grows: with segments, with the size of events, with the size of micro-batches and writes.

One Spark does all of it, so that each figure is of warm processes: the median of some runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from benchmarks.harness import SaritNode, load

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.scale import Scale

SEGMENTS: Final = (1, 8, 64, 512)
SEGMENT_EVENTS: Final = 1_000_000
EVENT_BYTES: Final = (100, 1_000, 10_000, 100_000, 1_000_000)
STREAM_BYTES: Final = 200_000_000
BATCH_EVENTS: Final = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
QUICK_PART: Final = 10
PARTITIONS: Final = 4
JOB_SECONDS: Final = 1400.0


def growth(directory: Path, scale: Scale) -> dict[str, Any]:
    """Seconds and processor seconds of Spark for each."""
    part = QUICK_PART if scale.quick else 1
    by_segments = {f"bench/segments{count}": count for count in SEGMENTS}
    by_size = {f"bench/bytes{size}": size for size in EVENT_BYTES}
    batches = [size for size in BATCH_EVENTS if size * part <= BATCH_EVENTS[-1]]
    with SaritNode(directory).start() as node:
        streams = by_segments | dict.fromkeys([*by_size, "bench/batches", "bench/out"], PARTITIONS)
        load("sarit_admin", {"controller": node.endpoint, "streams": streams})
        filled = {stream: [SEGMENT_EVENTS // part, 100] for stream in by_segments}
        filled |= {stream: [max(1, STREAM_BYTES // part // size), size] for stream, size in by_size.items()}
        filled["bench/batches"] = [batches[-1], 100]
        load("sarit_fill", {"controller": node.endpoint, "streams": filled})
        job = {
            "mode": "growth", "format": "sarit", "column": "event", "key": "routing_key",
            "options": {"controller": node.endpoint}, "reads": [*by_segments, *by_size], "follow": list(by_segments),
            "batches": {"stream": "bench/batches", "sizes": batches},
            "writes": {"stream": "bench/out", "sizes": batches},
        }  # fmt: skip
        return load("spark_job", job, JOB_SECONDS)
