"""Shared by all scenarios: their environment, and how events are read."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.limits import patient
from tests.secured import official_manager

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE_SECONDS = patient(40.0)


@dataclass(frozen=True, slots=True)
class Place:
    """A controller, the scope in it that this run has for itself, a directory to pass data from one scenario to
    another."""

    endpoint: str
    scope: str
    notes: Path

    def manager(self) -> Any:
        return official_manager(self.endpoint)

    def stream(self, manager: Any, name: str, segments: int = 1) -> str:
        """A new stream of `segments` segments; its name."""
        assert manager.create_stream(self.scope, name, segments), f"{name} was there already"
        return name


async def take(reader: Any, count: int, seconds: float = DEADLINE_SECONDS) -> list[bytes]:
    """`count` events, or fewer when the time is over.  A slice is released when all of it was read.

    When the time is over a read is cancelled, and the client may drop what it brings later: then the reader is of no
    more use than to be taken offline.
    """
    events: list[bytes] = []
    end = time.monotonic() + seconds
    while len(events) < count and time.monotonic() < end:
        try:
            taken = await asyncio.wait_for(reader.get_segment_slice_async(), end - time.monotonic())
        except TimeoutError:
            break
        if taken is not None:
            events.extend(bytes(event.data()) for event in taken)
            reader.release_segment(taken)
    return events


async def follow(reader: Any, into: list[bytes]) -> None:
    """Append all events that come, until it is cancelled."""
    while True:
        taken = await reader.get_segment_slice_async()
        if taken is not None:
            into.extend(bytes(event.data()) for event in taken)
            reader.release_segment(taken)


def read(place: Place, manager: Any, stream: str, count: int, group: str, *, seconds: float = DEADLINE_SECONDS) -> list:
    """`count` events from the head by a reader group of its own."""
    reader = manager.create_reader_group(group, place.scope, stream).create_reader("one")
    got = asyncio.run(take(reader, count, seconds))
    reader.reader_offline()
    return got


def nothing_more(reader: Any, seconds: float = 1.5) -> bool:
    """Whether no event comes for a while.  The last thing to ask of a reader (see `take`): even
    taking it offline would wait for the read under way, as long as the server parks a tail read."""
    return not asyncio.run(take(reader, 1, seconds))


def in_order(events: list[bytes]) -> bool:
    """Whether events `KEY:NUMBER` rise for every key."""
    last: dict[bytes, int] = {}
    for event in events:
        key, _, number = event.partition(b":")
        if last.get(key, -1) >= int(number):
            return False
        last[key] = int(number)
    return True


def raises(call: Any, *arguments: Any) -> bool:
    """Whether the client reports a failure (it raises, or answers False)."""
    try:
        return call(*arguments) is False
    except BaseException as error:  # what Rust panics with is no Exception
        return not isinstance(error, KeyboardInterrupt)
