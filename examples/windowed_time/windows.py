"""Means of each hour by the time of the *measurement*, however late and mixed the readings of many stations arrive.

    python examples/windowed_time/windows.py weather/readings

Events are `station,minute,value`.  The stream ends when it is sealed; until then the program follows it.

* Each station's writer notes its time (`note_time`).  The controller makes watermarks from the notes of all writers.
  The reader's time window shows that nothing older than `lower` will arrive.
* An hour is reported when its end is not later than `lower`: then it is complete.  A reading that is late against its
  own station's note is the station's mistake.  It is counted, not dropped silently.
* A station that ends closes its writer, and does not delay watermarks any more.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import sarit

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH: Final = 60  # minutes
POLL_SECONDS: Final = 0.2


@dataclass
class Hours:
    """Readings by hour, until their hour is over."""

    open: dict[int, list[float]] = field(default_factory=dict)
    reported: int = -1
    late: int = 0

    def add(self, event: bytes) -> None:
        """Add a reading."""
        _, minute, value = event.decode().split(",")
        hour = int(minute) // WIDTH
        if hour <= self.reported:
            self.late += 1
        else:
            self.open.setdefault(hour, []).append(float(value))

    def close(self, before: int | None) -> list[tuple[int, int, float]]:
        """The hours that end at minute `before` or earlier (None: all): hour, count of readings, their mean."""
        over = sorted(hour for hour in self.open if before is None or (hour + 1) * WIDTH <= before)
        found = [(hour, len(values), sum(values) / len(values)) for hour in over if (values := self.open.pop(hour))]
        if before is not None:
            self.reported = max(self.reported, before // WIDTH - 1)
        return found


def run(client: sarit.Client, stream: str, report: Callable[[int, int, float], None]) -> int:
    """Report each hour once, as soon as it is over; return the number of readings that came too late."""
    hours = Hours()
    windows = client.stream(stream).time_windows()
    with client.reader(stream) as reader:
        while True:
            events = reader.read_events(timeout=POLL_SECONDS)
            ended = not events and is_over(client, stream, reader.position())
            for event in events:
                hours.add(event)
            lower = windows.at(reader.position()).lower
            for found in hours.close(None) if ended else hours.close(lower) if lower is not None else ():
                report(*found)
            if ended:
                return hours.late


def is_over(client: sarit.Client, stream: str, position: sarit.StreamCut) -> bool:
    """Whether the stream is sealed, and was read to its end."""
    info = client.stream_info(stream)
    return info.sealed and info.tail == position


def main() -> None:
    """Print each mean when its hour is complete."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controller", help="HOST:PORT; without it SARIT_CONTROLLER, or the context in use")
    parser.add_argument("stream")
    options = parser.parse_args()
    with sarit.connect(options.controller, wait=60) as client:
        late = run(
            client,
            options.stream,
            lambda hour, count, mean: print(f"hour {hour}: {mean:.1f} from {count} readings", flush=True),
        )
        print(late, "readings too late")


if __name__ == "__main__":
    main()
