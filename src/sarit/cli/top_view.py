"""What `sarit top` shows: two scrapes of each process become rates, and rates become lines.  Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SAMPLE: Final = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SHOWN_STREAMS: Final = 10
_SHOWN_GROUPS: Final = 5
_WIDE: Final = 24  # of a bar, in characters

# What is shown of a process: name in JSON -> the counter whose rate it is.
_RATES: Final = {
    "append_bytes_per_second": "sarit_append_bytes_total",
    "append_events_per_second": "sarit_append_events_total",
    "read_bytes_per_second": "sarit_read_bytes_total",
    "throttled_per_second": "sarit_throttled_appends_total",
}
_GAUGES: Final = {
    "connections": "sarit_connections",
    "controller_connections": "sarit_controller_connections",
    "dirty_bytes": "sarit_dirty_bytes",
    "dirty_limit_bytes": "sarit_dirty_limit_bytes",
    "longest_loop_delay_seconds": "sarit_loop_longest_delay_seconds",
}


@dataclass(slots=True)
class Scrape:
    """The answer of a process to a scrape.  `at`: on a monotonic clock.  `error`: why it did not answer."""

    address: str
    at: float
    health: dict[str, Any] = field(default_factory=dict)
    samples: dict[str, list[tuple[dict[str, str], float]]] = field(default_factory=dict)
    error: str = ""

    def total(self, name: str) -> float | None:
        """Return the sum of a metric over its labels; None: the process does not have it."""
        found = self.samples.get(name)
        return None if found is None else sum(value for _, value in found)


def parse_metrics(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the samples of a scrape by name, with their labels."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for line in text.splitlines():
        if line.startswith("#") or (match := _SAMPLE.match(line)) is None:
            continue
        labels = {name: value.replace('\\"', '"') for name, value in _LABEL.findall(match["labels"] or "")}
        found.setdefault(match["name"], []).append((labels, float(match["value"])))
    return found


def summary(now: Scrape, before: Scrape | None) -> dict[str, Any]:
    """Return one process, as JSON has it.  Rates are None until there are two scrapes."""
    row: dict[str, Any] = {"address": now.address}
    if now.error:
        return {**row, "state": "away", "ready": False, "reasons": [{"code": "away", "part": "", "text": now.error}]}
    row.update(
        name=now.health.get("name", ""), state=now.health.get("state", ""), ready=now.health.get("ready", False),
        reasons=now.health.get("reasons", []),
    )  # fmt: skip
    containers = now.health.get("containers", [])
    row["containers_serving"] = sum(container["state"] == "serving" for container in containers)
    row["containers"] = sum(container["state"] != "absent" for container in containers)
    for name, metric in _RATES.items():
        row[name] = _rate(now, before, metric)
    for name, metric in _GAUGES.items():
        row[name] = now.total(metric)
    row["streams"] = _by_label(now, "sarit_stream_append_bytes_per_second", "stream", _SHOWN_STREAMS)
    row["groups"] = _by_label(now, "sarit_reader_group_lag_bytes", "group", _SHOWN_GROUPS)
    return row


def _rate(now: Scrape, before: Scrape | None, metric: str) -> float | None:
    new, old = now.total(metric), None if before is None else before.total(metric)
    if new is None or old is None or before is None or now.at <= before.at:
        return None
    # A counter that fell belongs to a process that has started again.
    return (new - old if new >= old else new) / (now.at - before.at)


def _by_label(scrape: Scrape, metric: str, label: str, most: int) -> dict[str, float]:
    values = [(labels.get(label, ""), value) for labels, value in scrape.samples.get(metric, ()) if value > 0]
    return dict(sorted(values, key=lambda pair: -pair[1])[:most])


def lines_of(rows: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """Return the screen, of at most `width` characters a line."""
    lines = [
        f"{'PROCESS':<22} {'STATE':<9} {'CONTAINERS':>10} {'WRITTEN/s':>10} {'EVENTS/s':>10} {'READ/s':>10} "
        f"{'CONN':>5} {'DELAY':>7}  DIRTY BYTES"
    ]
    streams: dict[str, float] = {}
    groups: dict[str, float] = {}
    wrong = []
    for row in rows:
        lines.append(_line_of(row))
        where = row["address"]
        for reason in row["reasons"]:
            part = f"{reason['part']}: " if reason["part"] else ""
            wrong.append(f"  {where}  {reason['code']}  {part}{reason['text']}")
        for stream, rate in row.get("streams", {}).items():
            streams[stream] = streams.get(stream, 0.0) + rate
        groups.update(row.get("groups", {}))
    if wrong:
        lines += ["", "WRONG", *wrong]
    if streams:
        busiest = sorted(streams.items(), key=lambda pair: -pair[1])[:_SHOWN_STREAMS]
        lines += ["", "BUSIEST STREAMS", *(f"  {size(rate) + '/s':>12}  {stream}" for stream, rate in busiest)]
    if groups:
        behind = sorted(groups.items(), key=lambda pair: -pair[1])[:_SHOWN_GROUPS]
        lines += ["", "LAG OF READER GROUPS", *(f"  {size(lag):>12}  {group}" for group, lag in behind)]
    return [line[:width] for line in lines]


def _line_of(row: Mapping[str, Any]) -> str:
    state = row["state"] if row["ready"] or row["state"] != "ready" else "not ready"
    if row["state"] == "away":
        return f"{row['address']:<22} away"
    containers = f"{row['containers_serving']}/{row['containers']}" if row["containers"] else "-"
    clients = [row[name] for name in ("connections", "controller_connections") if row[name] is not None]
    delay = row["longest_loop_delay_seconds"]
    dirty, limit = row["dirty_bytes"], row["dirty_limit_bytes"]
    bar = ""
    if dirty is not None and limit:
        full = min(_WIDE, round(_WIDE * dirty / limit))
        bar = f"{'#' * full}{'.' * (_WIDE - full)} {size(dirty)} of {size(limit)}"
    events = "-" if row["append_events_per_second"] is None else f"{row['append_events_per_second']:,.0f}"
    return (
        f"{row['address']:<22} {state:<9} {containers:>10} {size(row['append_bytes_per_second']):>10} {events:>10} "
        f"{size(row['read_bytes_per_second']):>10} {sum(clients):>5.0f} "
        f"{'-' if delay is None else f'{delay * 1000:.0f} ms':>7}  {bar}"
    ).rstrip()


def size(count: float | None) -> str:
    """Return a number of bytes for people."""
    if count is None:
        return "-"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
