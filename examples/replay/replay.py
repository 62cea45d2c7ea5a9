"""A new version of an application over all of history, then live: no gap, nothing twice, and the old one still running.

    python examples/replay/replay.py --version 2 site/visits

The application turns visits (`page,milliseconds`) into figures.  Version 1 counts visits per page.  Version 2 also
computes their mean duration, for old visits, too.  So it reads the stream from its head, with the same code that
follows it live, and writes to an output stream of its own.  It prints a line when it has reached the position that was
the tail at its start.  Then users can switch to the new output, and the old version can stop.

The figures are in memory only, so a restarted version begins again from the head, with an empty output.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import sarit

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS_AT_ONCE: Final = 1000


class Counting:
    """Version 1: visits per page."""

    def __init__(self) -> None:
        self._visits: dict[str, int] = defaultdict(int)

    def take(self, page: str, milliseconds: int) -> dict[str, Any]:
        """What is to be said of a page after this visit."""
        self._visits[page] += 1
        return {"page": page, "visits": self._visits[page]}


class Averaging:
    """Version 2: visits per page, and how long they last."""

    def __init__(self) -> None:
        self._visits: dict[str, int] = defaultdict(int)
        self._milliseconds: dict[str, int] = defaultdict(int)

    def take(self, page: str, milliseconds: int) -> dict[str, Any]:
        """What is to be said of a page after this visit."""
        self._visits[page] += 1
        self._milliseconds[page] += milliseconds
        return {"page": page, "visits": self._visits[page], "mean": self._milliseconds[page] / self._visits[page]}


VERSIONS: Final = {1: Counting, 2: Averaging}


def output_of(stream: str, version: int) -> str:
    """Every version has an output of its own, so that both can run and be compared."""
    return f"{stream}-figures-v{version}"


def run(client: sarit.Client, stream: str, version: int, caught_up: Callable[[], None]) -> None:
    """Everything in the stream through a version of the application, until the stream is sealed."""
    application = VERSIONS[version]()
    client.create_stream(output_of(stream, version))
    client.truncate_stream(output_of(stream, version), cut="tail")  # what a killed run has written
    now = client.stream_cut_tail(stream)
    with client.writer(output_of(stream, version)) as writer:

        def process(events: list[bytes]) -> None:
            for event in events:
                page, _, milliseconds = event.decode().partition(",")
                writer.write(json.dumps(application.take(page, int(milliseconds))), key=page)

        with client.reader(stream, start="head", end=now) as history:
            while events := history.read_events(EVENTS_AT_ONCE):
                process(events)
        writer.flush()
        caught_up()
        with client.reader(stream, start=now) as live:  # exactly at the end of history
            while events := live.read_events(EVENTS_AT_ONCE):
                process(events)


def main() -> None:
    """Run one version."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controller", help="HOST:PORT; without it SARIT_CONTROLLER, or the context in use")
    parser.add_argument("--version", type=int, choices=sorted(VERSIONS), default=2)
    parser.add_argument("stream")
    options = parser.parse_args()
    with sarit.connect(options.controller, wait=60) as client:
        run(client, options.stream, options.version, lambda: print("caught up: live from here on", flush=True))


if __name__ == "__main__":
    main()
