"""Rows of the client contract: transactions, scaling, tables, synchronizers, groups, many clients; see
`sarit_rows.py`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from benchmarks.harness import Load, SaritNode, load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.scale import Scale

# Concurrent transactions: enough to keep the node busy, few enough to end in time.
OPEN: Final = 10
SCALE_RATE: Final = 100_000
SCALE_TRIES: Final = 5
TABLE_RATE: Final = 1_000
MANY_CLIENTS: Final = 1_000
MANY_PROCESSES: Final = 2
MANY_RATE_BYTES: Final = 100_000_000
MANY_EVENT_BYTES: Final = 1_000
MANY_INTERVAL_SECONDS: Final = 0.1
# When 500 clients free memory at once, the allocator returns it and gets new pages later: 20 % of a writer's time.
MANY_ALLOCATOR: Final = {"MALLOC_TRIM_THRESHOLD_": str(256 << 20), "MALLOC_TOP_PAD_": str(4 << 20)}
MANY_NICE: Final = 5
MANY_SEGMENTS: Final = 5_000
GROUP_READERS: Final = 16
GROUP_EVENTS: Final = 24_000_000
QUICK_GROUP_EVENTS: Final = 8_000_000
QUIET_SECONDS: Final = 3.0


def _node(directory: Path, **streams: int) -> SaritNode:
    node = SaritNode(directory).start()
    load("sarit_admin", {"controller": node.endpoint, "streams": {f"bench/{s}": count for s, count in streams.items()}})
    return node


def transactions(directory: Path, scale: Scale) -> dict[str, Any]:
    """Begin, write, commit until it can be read: OPEN at once, at full speed; then 100 a second, open loop."""
    seconds = scale.seconds(20)
    with _node(directory, one=1, fast=4, steady=4) as node:
        options = {"controller": node.endpoint, "seconds": seconds}
        found = load("sarit_transactions", options | {"stream": "bench/fast", "open": OPEN})
        found["one_segment"] = load("sarit_transactions", options | {"stream": "bench/one", "open": OPEN})
        found["paced"] = load("sarit_transactions", options | {"stream": "bench/steady", "rate": 100})
        return found


def scaling(directory: Path, scale: Scale) -> dict[str, Any]:
    """1 -> 16 segments while a writer with keys writes; each attempt on a new stream, the first one cold."""
    with SaritNode(directory).start() as node:
        return load("sarit_scale", {"controller": node.endpoint, "rate": SCALE_RATE, "tries": SCALE_TRIES})


def tables(directory: Path, scale: Scale) -> dict[str, Any]:
    """One client: puts and gets in batches at full speed; then each at 1 k/s in open loop."""
    with SaritNode(directory).start() as node:
        return load("sarit_table", {"controller": node.endpoint, "seconds": scale.seconds(15), "rate": TABLE_RATE})


def synchronizer(directory: Path, scale: Scale) -> dict[str, Any]:
    """Conditional updates of one state by one process, then by four concurrent ones."""
    seconds = scale.seconds(15)
    with _node(directory) as node:
        options = {"controller": node.endpoint, "seconds": seconds}
        load("sarit_admin", {"controller": node.endpoint, "streams": {"sync/none": 1}})
        found = load("sarit_synchronizer", options | {"stream": "sync/alone"})
        found["competing"] = load("sarit_synchronizer", options | {"stream": "sync/four", "processes": 4})
        return found


def groups(directory: Path, scale: Scale) -> dict[str, Any]:
    """16 readers of a group over 16 segments beside 16 plain readers of one segment each; the death of a reader."""
    events = QUICK_GROUP_EVENTS if scale.quick else GROUP_EVENTS
    found: dict[str, Any] = {}
    with _node(directory, g=GROUP_READERS, d=8) as node:
        options = {
            "controller": node.endpoint, "stream": "bench/g", "group": "bench/group", "readers": GROUP_READERS,
            "events": events,
        }  # fmt: skip
        for mode in ("group", "plain"):
            go = directory / f"go-{mode}"
            readers = Load("sarit_group", options | {"mode": mode, "go": str(go)})
            try:
                readers.wait_ready()
                if mode == "group":  # its readers share the segments before there is anything to read
                    writing = {"controller": node.endpoint, "stream": "bench/g", "seconds": 600, "many": True}
                    load("sarit_write", writing | {"events": events})
                time.sleep(QUIET_SECONDS)
                go.touch()
                found[mode] = readers.result(300)
            finally:
                readers.end()
        found["share"] = round(found["group"]["events_per_s"] / found["plain"]["events_per_s"], 2)
        death = options | {"mode": "death", "stream": "bench/d", "group": "bench/mortal", "readers": 3, "segments": 8}
        tries = [load("sarit_group", death | {"group": f"bench/mortal-{n}", "timeout": 5}, 180) for n in range(3)]
        found["deaths"] = tries
        found["beyond_timeout_s"] = max(one["beyond_timeout_s"] for one in tries)
        return found


def many_segments(directory: Path, scale: Scale) -> dict[str, Any]:
    """Writers to 5,000 segments at once: every segment takes an event in every round."""
    count = 500 if scale.quick else MANY_SEGMENTS
    with SaritNode(directory).start() as node:
        options = {"controller": node.endpoint, "segments": count, "seconds": scale.seconds(20)}
        found = load("sarit_many_segments", options)
        found["memory_mb"] = round(node.memory_mb())
        return found


def many_clients(directory: Path, scale: Scale) -> dict[str, Any]:
    """1,000 writers and 1,000 readers, each with its own client, each pair on its own stream, 100 MB/s in total.

    Two processes of each; they share the machine's CPUs with the node, which has priority."""
    seconds = scale.seconds(60, 10)
    clients = MANY_CLIENTS // 10 if scale.quick else MANY_CLIENTS
    per_turn = int(MANY_RATE_BYTES * MANY_INTERVAL_SECONDS / clients / MANY_EVENT_BYTES)
    with SaritNode(directory).start() as node:
        load("sarit_admin", {"controller": node.endpoint, "many": clients})
        go = directory / "go"
        options = {
            "controller": node.endpoint, "scope": "many", "count": clients // MANY_PROCESSES, "seconds": seconds,
            "interval": MANY_INTERVAL_SECONDS, "event_bytes": MANY_EVENT_BYTES, "per_turn": per_turn, "go": str(go),
            "nice": MANY_NICE,
        }  # fmt: skip
        loads: dict[str, list[Load]] = {"write": [], "read": []}
        try:
            for role in ("write", "read"):
                for number in range(MANY_PROCESSES):
                    one = options | {"role": role, "first": number * clients // MANY_PROCESSES}
                    loads[role].append(Load("sarit_many_clients", one, MANY_ALLOCATOR))
            for under_way in (*loads["write"], *loads["read"]):
                under_way.wait_ready(120)
            cpu = node.cpu_seconds()
            go.touch()
            found = {role: [under_way.result(300) for under_way in some] for role, some in loads.items()}
            spent = node.cpu_seconds() - cpu
        finally:
            for under_way in (*loads["write"], *loads["read"]):
                under_way.end()
        took = max(one["seconds"] for one in found["write"])
        return {
            "writers": clients, "readers": clients, "asked_mb_per_s": MANY_RATE_BYTES / 1e6,
            "written_mb_per_s": _sum("mb_per_s", found["write"]), "read_mb_per_s": _sum("mb_per_s", found["read"]),
            "steady_written_mb_per_s": _sum("steady_mb_per_s", found["write"]),
            "steady_read_mb_per_s": _sum("steady_mb_per_s", found["read"]),
            "ack_p95_ms": max(one["p95_ms"] for one in found["write"]),
            "end_to_end_p95_ms": max(one["p95_ms"] for one in found["read"]),
            "node_cpu_percent": round(100 * spent / took), "memory_mb": round(node.memory_mb()), **found,
        }  # fmt: skip


def _sum(name: str, found: list[dict[str, Any]]) -> float:
    return round(sum(float(one[name]) for one in found), 1)


CONTRACT_ROWS: Final[dict[str, Callable[[Path, Scale], dict[str, Any]]]] = {
    "transactions": transactions,
    "scaling": scaling,
    "tables": tables,
    "synchronizer": synchronizer,
    "groups": groups,
    "many-segments": many_segments,
    "many-clients": many_clients,
}
