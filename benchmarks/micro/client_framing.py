"""What one event costs the client, without a store: `python -m benchmarks.micro.client_framing`.

Prints one JSON object, ns per event of 100 B, the best of several rounds; takes about 5 s.

- `write`, `write_keyed`: the call alone, into the intake.
- `frame_*`: from a list or an Arrow array to the bytes of an append, equal and mixed lengths.
- `route_known`, `route_new`: from a key to its segment appender, for a key seen before and a new one.
- `append_*`: from a batch to the frames sent, through a segment appender whose blocks are acknowledged at once.
- `parse_*`: from the bytes of a read to a list of events or an Arrow array; `hand_out`: iterating the list.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sarit.client.core.framing import arrow_events, binary_array, chunks_of, chunks_of_arrow, frame_events, parse_events
from sarit.client.core.values import SegmentRange
from sarit.client.session.session import Session
from sarit.client.writer.partitioner import KeyRanges
from sarit.client.writer.segment_appender import SegmentAppender
from sarit.client.writer.writer import EventWriter
from sarit.core.names import SegmentId, StreamName
from sarit.env.real import real_env

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 20_000
ROUNDS = 12
EQUAL = [b"x" * 100 for _ in range(COUNT)]
MIXED = [b"x" * (60 + number * 7 % 81) for number in range(COUNT)]
KEYS = [f"N{number % 5000:05d}" for number in range(COUNT)]


def best(work: Callable[[], Any]) -> float:
    """ns per event of the best round."""
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return round(min(times) / COUNT * 1e9, 1)


class NoController:
    """A controller with one stream of one segment, and no store."""

    address = "nowhere"

    async def current_segments(self, _: StreamName) -> list[SegmentRange]:
        return [SegmentRange(SegmentId(0, 0), 0.0, 1.0)]


def append_round(chunks: Callable[[], Any]) -> None:
    """Chunks through a segment appender whose blocks are acknowledged at once."""
    appender = SegmentAppender("s/t/0.#epoch.0", bytes(16))
    appender.connecting(1)
    appender.opened_at(-1)
    for chunk in chunks():
        appender.add(chunk)
        appender.blocks(urgent=True)
        appender.acked(appender.accepted_events)


async def write_calls() -> dict[str, float]:
    """`write` itself; the intake is emptied between the rounds."""
    session = Session(real_env(), NoController())  # type: ignore[arg-type]
    writer = EventWriter(session, StreamName("s", "t"))
    writer._idle = False

    def plain() -> None:
        writer._intake_free_bytes = 1 << 60
        write = writer.write
        for event in EQUAL:
            write(event)
        writer._intake.clear()

    def keyed() -> None:
        writer._intake_free_bytes = 1 << 60
        write = writer.write
        for event, key in zip(EQUAL, KEYS, strict=True):
            write(event, key)
        writer._intake.clear()

    return {"write": best(plain), "write_keyed": best(keyed)}


def main() -> None:
    """Measure and print."""
    figures = asyncio.run(write_calls())
    equal, mixed = binary_array(pa.array(EQUAL)), binary_array(pa.array(MIXED))
    key_ranges = KeyRanges([(number / 16, (number + 1) / 16, number) for number in range(16)])
    new = KeyRanges([(0.0, 0.5, 0), (0.5, 1.0, 1)])
    for key in KEYS:
        key_ranges.of_key[key]
    equal_bytes, mixed_bytes = frame_events(EQUAL), frame_events(MIXED)

    def route_new() -> None:
        new.of_key.clear()
        for number in range(COUNT):
            new.of_key[str(number)]

    figures |= {
        "frame_list_equal": best(lambda: list(chunks_of(EQUAL))),
        "frame_list_mixed": best(lambda: list(chunks_of(MIXED))),
        "frame_arrow_equal": best(lambda: list(chunks_of_arrow(equal))),
        "frame_arrow_mixed": best(lambda: list(chunks_of_arrow(mixed))),
        "route_known": best(lambda: [key_ranges.of_key[key] for key in KEYS]),
        "route_new": best(route_new),
        "append_list": best(lambda: append_round(lambda: chunks_of(EQUAL))),
        "append_arrow": best(lambda: append_round(lambda: chunks_of_arrow(equal))),
        "parse_list_equal": best(lambda: parse_events(equal_bytes, 0)),
        "parse_list_mixed": best(lambda: parse_events(mixed_bytes, 0)),
        "parse_arrow_equal": best(lambda: arrow_events(equal_bytes, 0)),
        "parse_arrow_mixed": best(lambda: arrow_events(mixed_bytes, 0)),
        "hand_out": best(lambda: [None for _ in EQUAL]),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
