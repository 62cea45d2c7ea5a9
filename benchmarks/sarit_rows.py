"""The rows measured on Sarit: one function per row, each on a fresh node, returning raw figures."""

from __future__ import annotations

import json
import statistics
import time
from typing import TYPE_CHECKING, Any, Final

from benchmarks import spark_growth, spark_registry, spark_rows
from benchmarks.harness import Load, SaritNode, affordable_events, load
from benchmarks.killed_store import killed_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.scale import Scale

RATE: Final = 1_000_000
LOW_RATE: Final = 10_000
EVENT_STORED_BYTES: Final = 108
IDLE_SECONDS: Final = 2.0
INGEST_BYTES_PER_S: Final = 50_000_000
BACKLOG_BYTES: Final = 10_000_000_000
QUICK_BACKLOG_BYTES: Final = 1_000_000_000
# What the rows fast-1 and fast-16 may write in their 135 s each, on a fast disk.
FAST_ROW_BYTES: Final = 60_000_000_000
PROCESS_TURNS: Final = 3
IDLE_CPU_SECONDS: Final = 0.05  # in a second
TURNS_SEGMENTS: Final = 50_000


def _node(directory: Path, **streams: int) -> SaritNode:
    node = SaritNode(directory).start()
    names = {f"bench/{name}": segments for name, segments in streams.items()}
    load("sarit_admin", {"controller": node.endpoint, "streams": names})
    return node


def _write(node: SaritNode, stream: str, **options: Any) -> dict[str, Any]:
    return load("sarit_write", {"controller": node.endpoint, "stream": f"bench/{stream}", **options})


def start(directory: Path, scale: Scale) -> dict[str, Any]:
    """Start on an empty directory, by the `sarit` command; memory after two idle seconds.  Medians of three."""
    seconds, memory = [], []
    for attempt in range(3):
        node = SaritNode(directory / str(attempt)).start(plain=True)
        try:
            time.sleep(IDLE_SECONDS)
            seconds.append(node.start_seconds)
            memory.append(node.memory_mb())
        finally:
            node.stop()
    return {"start_s": round(statistics.median(seconds), 2), "idle_mb": round(statistics.median(memory))}


def _open_loop(segments: int) -> Callable[[Path, Scale], dict[str, Any]]:
    def measure(directory: Path, scale: Scale) -> dict[str, Any]:
        with _node(directory, s=segments) as node:
            return _write(node, "s", rate=RATE, seconds=scale.seconds(30))

    return measure


def _fast(segments: int) -> Callable[[Path, Scale], dict[str, Any]]:
    def measure(directory: Path, scale: Scale) -> dict[str, Any]:
        with _node(directory, s=segments, many=segments, keyed=segments) as node:
            # Of one disk: what it may take is divided as the seconds are.
            most = affordable_events(directory, EVENT_STORED_BYTES, 1 / 9)
            long = {"seconds": scale.seconds(60), "events": 4 * most}
            found = _write(node, "s", **long)
            found["memory_mb"] = round(node.memory_mb())
            report = node.report()
            found["flushed_bytes"] = report["chunk_bytes"]
            found["checkpoints"] = report["checkpoints"]
            found["write_many"] = _write(node, "many", many=True, **long)
            # The better of its generators counts, as for each peer.
            found["best"] = max(found["write_many"], dict(found), key=lambda run: run["events_per_s"])
            found["with_keys"] = _write(node, "keyed", seconds=scale.seconds(15), keys=5000, events=most)
            return found

    return measure


def processes(directory: Path, scale: Scale) -> dict[str, Any]:
    """One process and two, in turn: bulk at full speed, then many small writers; what each costs the node's processors.

    Medians of the turns."""
    found: dict[str, list[dict[str, float]]] = {"1": [], "2": []}
    for turn in range(1 if scale.quick else PROCESS_TURNS):
        for count in (1, 2):
            with SaritNode(directory / f"{turn}-{count}", count).start(plain=True) as node:
                load("sarit_admin", {"controller": node.endpoint, "streams": {"bench/bulk": 16, "bench/small": 16}})
                wait_idle(node)  # the spare process loads its program
                found[str(count)].append(_process_turn(node, directory, scale))
    medians = {
        f"{name}_{count}": round(statistics.median(one[name] for one in found[count]), 3)
        for count in found
        for name in found[count][0]
    }
    ratios = {
        "bulk_ratio": medians["bulk_events_per_s_2"] / medians["bulk_events_per_s_1"],
        "small_ratio": medians["appends_per_s_2"] / medians["appends_per_s_1"],
    }
    return medians | ratios | {"turns": found}


def wait_idle(node: SaritNode) -> None:
    """Until it has done what follows a start or a load."""
    before, now = -1.0, node.cpu_seconds()
    while now - before > IDLE_CPU_SECONDS:
        time.sleep(1)
        before, now = now, node.cpu_seconds()


def _process_turn(node: SaritNode, directory: Path, scale: Scale) -> dict[str, float]:
    most = affordable_events(directory, EVENT_STORED_BYTES, 1 / 4)
    cpu = node.cpu_seconds()
    bulk = _write(node, "bulk", many=True, seconds=scale.seconds(15), events=most)
    bulk_cpu = node.cpu_seconds() - cpu
    options = {"stream": "bench/small", "segments": 16, "connections": 200, "event_bytes": 100}
    small = Load("sarit_small_writers", options | {"controller": node.endpoint, "seconds": scale.seconds(10)})
    small.wait_ready(60)
    cpu = node.cpu_seconds()
    appends = small.result()
    small_cpu = node.cpu_seconds() - cpu
    return {
        "bulk_events_per_s": bulk["events_per_s"],
        "bulk_cpu_s_per_gb": bulk_cpu / (bulk["events"] * EVENT_STORED_BYTES / 1e9),
        "appends_per_s": appends["appends_per_s"],
        "append_p95_ms": appends["p95_ms"],
        "cpu_us_per_append": small_cpu / appends["appends"] * 1e6,
        "memory_mb": node.memory_mb(),
    }


def latency(directory: Path, scale: Scale) -> dict[str, Any]:
    """10 k events/s: acknowledgement, and end to end to a reader in another process."""
    seconds = scale.seconds(30)
    events = int(seconds * LOW_RATE)
    with _node(directory, ack=1, through=1) as node:
        ack = _write(node, "ack", rate=LOW_RATE, seconds=seconds)
        options = {"controller": node.endpoint, "stream": "bench/through", "mode": "follow", "events": events}
        reader = Load("sarit_read", options | {"skip": LOW_RATE})
        try:
            reader.wait_ready()
            writer = _write(node, "through", rate=LOW_RATE, seconds=seconds, stamp=True)
            return {"ack": ack, "end_to_end": reader.result(60), "ack_with_reader": writer}
        finally:
            reader.end()


def catch_up(directory: Path, scale: Scale) -> dict[str, Any]:
    """Read what was written before, from another process: as Arrow batches, and event by event."""
    events = 10_000_000 if scale.quick else 40_000_000
    with _node(directory, s=1) as node:
        _write(node, "s", seconds=120, events=events, many=True)
        found = {}
        for mode in ("arrow", "events"):
            options = {"controller": node.endpoint, "stream": "bench/s", "mode": mode}
            found[mode] = load("sarit_read", options)
        return found


def checkpoints(directory: Path, scale: Scale) -> dict[str, Any]:
    """Index commits under 500 k events/s on 16 segments of four containers, and acknowledgements during them.

    The node runs at its defaults, so a full 1,000 checkpoints take minutes: that is the `--long` run.
    """
    seconds = 600 if scale.long else scale.seconds(60, 10)
    windows, ask = directory / "windows.json", directory / "ask"
    with _node(directory, s=16) as node:
        options = {"controller": node.endpoint, "stream": "bench/s", "rate": RATE // 2, "seconds": seconds}
        writer = Load("sarit_write", options | {"windows": str(windows), "ask": str(ask)})
        try:
            end = time.monotonic() + seconds * 3 + 60
            while not ask.exists() and time.monotonic() < end and writer.running:
                time.sleep(0.1)
            report = node.report()
            temporary = windows.with_suffix(".new")
            temporary.write_text(json.dumps(report["cycles"]))
            temporary.rename(windows)
            found = writer.result(300)
        finally:
            writer.end()
        commits = sorted(report["commit_seconds"])
        found["checkpoints"] = len(commits)
        found["commit_p50_ms"] = round(commits[len(commits) // 2] * 1000, 2)
        found["commit_p99_ms"] = round(commits[int(len(commits) * 0.99)] * 1000, 2)
        found["commit_max_ms"] = round(commits[-1] * 1000, 2)
        return found


def official(directory: Path, scale: Scale) -> dict[str, Any]:
    """The official Python client on Sarit."""
    with SaritNode(directory).start() as node:
        return official_client(node.endpoint, scale)


def official_client(endpoint: str, scale: Scale) -> dict[str, Any]:
    """The official Python client: write, then read the same events by a reader group."""
    events = 500_000 if scale.quick else 2_000_000
    load("sarit_admin", {"controller": endpoint, "streams": {"official/s": 1}})
    options = {"endpoint": endpoint, "scope": "official", "stream": "s", "events": events}
    return {mode: load("official", options | {"mode": mode}, 180) for mode in ("write", "read")}


def streams(directory: Path, scale: Scale) -> dict[str, Any]:
    """Create streams, 16 at a time; with `--long`, 100,000 of them, and the memory that takes."""
    count = 100_000 if scale.long else 1000 if scale.quick else 3000
    with SaritNode(directory).start() as node:
        found = load("sarit_admin", {"controller": node.endpoint, "many": count}, 1200)
        time.sleep(IDLE_SECONDS)
        found["memory_mb"] = round(node.memory_mb())
        return found


def turns(directory: Path, scale: Scale) -> dict[str, Any]:
    """The longest turn of the event loop, with 50,000 dirty segments at each checkpoint; appends at 10,000 a second."""
    options = {"directory": str(directory / "data"), "segments": TURNS_SEGMENTS, "seconds": scale.seconds(30, 12)}
    return load("turns", options)


def backlog(directory: Path, scale: Scale) -> dict[str, Any]:
    """Read a backlog while 50 MB/s comes in: ingest alone, then with the reader; the reader's rate against ingest's."""
    stored = QUICK_BACKLOG_BYTES if scale.quick else BACKLOG_BYTES
    stored = min(stored, affordable_events(directory, 1, 1 / 2))  # the rest is for what comes in meanwhile
    seconds = scale.seconds(30)
    with _node(directory, s=1) as node:
        filled = _write(node, "s", seconds=600, events=stored // EVENT_STORED_BYTES, many=True)
        rate = INGEST_BYTES_PER_S // EVENT_STORED_BYTES
        alone = _write(node, "s", rate=rate, seconds=seconds)
        options = {"controller": node.endpoint, "stream": "bench/s", "mode": "arrow", "no_end": True}
        reader = Load("sarit_read", options | {"seconds": seconds})
        try:
            reader.wait_ready()
            beside = _write(node, "s", rate=rate, seconds=seconds)
            read = reader.result(120)
        finally:
            reader.end()
        return {
            "backlog_bytes": filled["events"] * EVENT_STORED_BYTES, "ingest_alone": alone, "ingest_beside": beside,
            "reader": read, "gain": round(read["events_per_s"] / rate, 2), "memory_mb": round(node.memory_mb()),
        }  # fmt: skip


class _SaritSide:
    """Streams of a node, for the rows of Spark jobs."""

    def __init__(self, node: SaritNode) -> None:
        self._node = node

    def make(self, stream: str, segments: int) -> None:
        """Create a stream."""
        load("sarit_admin", {"controller": self._node.endpoint, "streams": {f"bench/{stream}": segments}})

    def fill(self, stream: str, events: int) -> None:
        """Write that many events."""
        _write(self._node, stream, seconds=300, events=events, many=True)

    def writer(self, stream: str, rate: int, seconds: float) -> Load:
        """Begin to write `rate` events a second."""
        options = {"controller": self._node.endpoint, "stream": f"bench/{stream}", "rate": rate, "seconds": seconds}
        return Load("sarit_write", options)

    def job(self, stream: str, guarantee: str = "") -> dict[str, Any]:
        """The options of a source, or of a sink with a guarantee."""
        options = {"controller": self._node.endpoint, "stream": f"bench/{stream}"}
        options |= {"deliveryGuarantee": guarantee} if guarantee else {}
        return {"format": "sarit", "column": "event", "key": "routing_key", "options": options}

    def start_of(self, where: str) -> dict[str, str]:
        """Where a source begins."""
        return {"start": where}

    def limit(self, events: int) -> dict[str, str]:
        """The bound of a micro-batch."""
        return {"maxEventsPerTrigger": str(events)}


def _spark(row: Callable[[_SaritSide, Scale], dict[str, Any]]) -> Callable[[Path, Scale], dict[str, Any]]:
    def measure(directory: Path, scale: Scale) -> dict[str, Any]:
        with SaritNode(directory).start() as node:
            return row(_SaritSide(node), scale)

    return measure


ROWS: Final[dict[str, Callable[[Path, Scale], dict[str, Any]]]] = {
    "start": start,
    "open-1": _open_loop(1),
    "open-16": _open_loop(16),
    "fast-1": _fast(1),
    "fast-16": _fast(16),
    "processes": processes,
    "killed-store": lambda directory, scale: killed_store(directory, 2 if scale.quick else 9),
    "latency": latency,
    "catch-up": catch_up,
    "official": official,
    "checkpoints": checkpoints,
    "streams": streams,
    "turns": turns,
    "backlog": backlog,
    "spark": _spark(spark_rows.count),
    "spark-stream": _spark(spark_rows.stream),
    "spark-tail": _spark(spark_rows.tail),
    "spark-growth": spark_growth.growth,
    "spark-registry": spark_registry.registry,
    "spark-sink": _spark(lambda side, scale: spark_rows.sink(side, scale, ("at-least-once", "exactly-once"))),
}
