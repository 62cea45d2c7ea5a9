"""Sensors whose number changes write to a stream that scales by itself.

    python examples/iot_scaling/sensors.py --per-segment 1000 factory/sensors

The scaling policy sets how many events a second one segment should take.  In the morning segments above that rate
split; at night adjacent segments far below it merge.  Writers and readers need no change, and the readings of one
sensor stay in order.  With the default settings a stream scales after minutes of load, not after a short peak.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import sarit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TICK_SECONDS: Final = 0.1


@dataclass(frozen=True)
class Shift:
    """So many sensors, each so often a second, until `over` says so."""

    sensors: int
    readings_per_second: float
    over: Callable[[], bool]


def create(client: sarit.Client, stream: str, events_per_segment: int) -> None:
    """A stream that scales by events a second; a segment that is too hot becomes two."""
    client.create_scope(stream.partition("/")[0])
    policy = sarit.ScalingPolicy(sarit.ScaleType.EVENTS_PER_SECOND, events_per_segment, 2, min_segments=1)
    client.create_stream(stream, scaling=policy)


def measure(client: sarit.Client, stream: str, shifts: Iterable[Shift]) -> dict[str, int]:
    """Write readings `sensor,number` through all shifts; how many each sensor has written."""
    written: dict[str, int] = {}
    with client.writer(stream) as writer:
        for shift in shifts:
            due = 0.0
            while not shift.over():
                due += shift.readings_per_second * TICK_SECONDS
                for _ in range(int(due)):
                    for sensor in map("sensor{}".format, range(shift.sensors)):
                        number = written[sensor] = written.get(sensor, 0) + 1
                        writer.write(f"{sensor},{number}", key=sensor)
                due -= int(due)
                time.sleep(TICK_SECONDS)
    return written


def watch(client: sarit.Client, stream: str) -> dict[str, int]:
    """Read until the stream is sealed; the last reading of each sensor.  Exits when one is out of order, or there is a
    gap before one; events missing at the end are known only to the writer."""
    last: dict[str, int] = {}
    for event in client.reader(stream):
        sensor, _, number = event.decode().partition(",")
        if int(number) != last.get(sensor, 0) + 1:
            raise SystemExit(f"{sensor}: reading {number} follows {last.get(sensor, 0)}")
        last[sensor] = int(number)
    return last


def main() -> None:
    """A day of a factory, in so many seconds for each of its shifts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controller", help="HOST:PORT; without it SARIT_CONTROLLER, or the context in use")
    parser.add_argument("--per-segment", type=int, default=1000, help="events a second")
    parser.add_argument("--seconds", type=float, default=1200, help="how long a shift is")
    parser.add_argument("stream")
    options = parser.parse_args()

    def until(end: float) -> Callable[[], bool]:
        return lambda: time.monotonic() > end

    # In this order: closing the client ends its readers.
    with ThreadPoolExecutor(1) as beside, sarit.connect(options.controller, wait=60) as client:
        create(client, options.stream, options.per_segment)
        watching = beside.submit(watch, client, options.stream)
        begun = time.monotonic()
        shifts = [
            Shift(sensors, 10, until(begun + options.seconds * (number + 1)))
            for number, sensors in enumerate((50, 1000, 20))
        ]
        written = measure(client, options.stream, shifts)
        client.seal_stream(options.stream)
        if watching.result() != written:
            raise SystemExit("not every reading that was written was read")
        print(f"{sum(written.values())} readings of {len(written)} sensors, all in order")
        for epoch in client.stream(options.stream).epochs():
            print(f"epoch {epoch.number}: {len(epoch.segments)} segments")


if __name__ == "__main__":
    main()
