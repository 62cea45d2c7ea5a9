"""The two ends of the chain while it is killed: who writes its input, and who reads its output."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import sarit
from examples.pipelines import chain, inputs
from tests.spark.whole_batches import WholeBatches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STUCK_SECONDS = 600  # only a hang takes that long
EVENT_BYTES = 8000  # a micro-batch of 500 over 8 segments: each has more than 256 KiB, the size of a task
FLEETS = 4  # of an airline


class Follower(threading.Thread):
    """Follows the output segment by segment, as a reader sees it."""

    def __init__(self, controller: str) -> None:
        super().__init__(daemon=True)
        self.output = WholeBatches()
        self.lines: dict[str, list[tuple[int, int]]] = {}
        self.error: Exception | None = None
        self.count = 0
        self.grown = threading.Condition()
        self._controller = controller
        self._ending = threading.Event()

    def run(self) -> None:
        try:
            with sarit.connect(self._controller, wait=60, retry_timeout=STUCK_SECONDS) as client:
                ends: dict[Any, int] = {}
                while True:
                    last = self._ending.is_set()
                    self._round(client, ends)
                    if last:
                        return
                    self._ending.wait(0.05)
        except Exception as error:
            self.error = error
        finally:
            with self.grown:
                self.grown.notify_all()

    def _round(self, client: sarit.Client, ends: dict[Any, int]) -> None:
        for part in client.stream(chain.TOTALS).segments():
            segment = part.segment
            end = client.segment_infos(chain.TOTALS, [segment])[segment].end_offset
            lines = []
            for batch in client.segment_batches(chain.TOTALS, segment, ends.get(segment, 0), end):
                lines += map(json.loads, batch.column("event").to_pylist())
            ends[segment] = end
            self.output.poll(segment.packed, lines)
            for line in lines:
                self.lines.setdefault(line["airline"], []).append((line["n"], line["miles"]))
            if lines:
                with self.grown:
                    self.count += len(lines)
                    self.grown.notify_all()
        self.output.end_round()

    def wait_for(self, lines: int, alive: Callable[[], None]) -> None:
        """Wait until there are so many lines.  Raises AssertionError when nothing moves for long."""
        deadline = time.monotonic() + STUCK_SECONDS
        with self.grown:
            while self.count < lines:
                alive()
                assert self.error is None, self.error
                assert time.monotonic() < deadline, f"{self.count} of {lines} lines came, and no more"
                self.grown.wait(0.5)

    def end(self) -> None:
        """One more round over all, and stop."""
        self._ending.set()
        self.join(STUCK_SECONDS)
        assert self.error is None, self.error


class Feeder(threading.Thread):
    """Writes events until it is stopped, not far ahead of the output; `events` are those it has written."""

    def __init__(self, controller: str, follower: Follower, ahead: int) -> None:
        super().__init__(daemon=True)
        self.events: list[inputs.Event] = []
        self.error: Exception | None = None
        self._controller = controller
        self._follower = follower
        self._ahead = ahead
        self._ending = threading.Event()

    def run(self) -> None:
        try:
            with (
                sarit.connect(self._controller, wait=60, retry_timeout=STUCK_SECONDS) as client,
                client.writer(chain.FLIGHTS) as writer,
            ):
                for event in endless(chain.events_of(chain.DAYS)):
                    while len(self.events) - self._follower.count > self._ahead and not self._ending.is_set():
                        self._ending.wait(0.1)
                    if self._ending.is_set():
                        return
                    writer.write(event.body, key=event.key)
                    self.events.append(event)
        except Exception as error:
            self.error = error

    def end(self) -> None:
        """Stop, when all is durable."""
        self._ending.set()
        self.join(STUCK_SECONDS)
        assert self.error is None, self.error


def endless(events: list[inputs.Event]) -> Iterator[inputs.Event]:
    """The events over and over, with numbers that rise, and the flights of each airline in several fleets: there are
    few airlines, and each segment of the input is to have events.  They are large, so that it gets a task, too."""
    bodies = [json.loads(event.body) for event in events]
    number = 0
    while True:
        for event, body in zip(events, bodies, strict=True):
            fleet = f"{event.key}-{number % FLEETS}"
            text = json.dumps(body | {"n": number, "airline": fleet})
            yield inputs.Event(text.ljust(EVENT_BYTES), fleet)
            number += 1
