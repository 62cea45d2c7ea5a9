"""Reading a stream of which a chunk is damaged (`tests/faults/damaged_chunks.py` made both streams)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tests.faults.damaged_chunks import EVENTS
from tests.interop.scenarios.tools import take
from tests.limits import patient

if TYPE_CHECKING:
    from tests.interop.scenarios.tools import Place

AT_ONCE_SECONDS = min(80.0, patient(20.0))  # a read that is repeated would fail after 100 s


def reader_groups(place: Place) -> None:
    """The reader of the damaged stream ends there, without an end of its waiting; another of the same client goes on.

    The client logs its error; its Python API has no way to raise it."""
    m = place.manager()
    damaged = m.create_reader_group("damaged-group", place.scope, "damaged").create_reader("one")
    whole = m.create_reader_group("whole-group", place.scope, "whole").create_reader("one")

    first = asyncio.run(take(whole, 1))

    async def scenario() -> None:
        got, empty, begun = [], 0, time.monotonic()
        while empty < 3:  # the client answers "nothing" at once: it does not wait for a reply any more
            assert time.monotonic() - begun < AT_ONCE_SECONDS, (len(got), empty)
            taken = await asyncio.wait_for(damaged.get_segment_slice_async(), AT_ONCE_SECONDS)
            events = [] if taken is None else [bytes(event.data()) for event in taken]
            empty = 0 if events else empty + 1
            got += events
            if taken is not None:
                damaged.release_segment(taken)
        assert [int(event[22:28]) for event in got] == list(range(len(got)))
        assert len(got) <= EVENTS // 2, len(got)

    asyncio.run(scenario())
    rest = asyncio.run(take(whole, EVENTS - len(first)))
    assert [int(event[20:26]) for event in first + rest] == list(range(EVENTS)), "the other reader goes on"


def byte_stream(place: Place) -> None:
    """Bytes before the damage are read; then there is an exception at once."""
    m = place.manager()  # the client hangs when its manager goes before its stream
    stream = m.create_byte_stream(place.scope, "damaged")
    begun, read = time.monotonic(), 0
    try:
        while count := stream.readinto(bytearray(1 << 16)):
            read += count
    except OSError as error:
        print(f"after {read} bytes: {error}")
    else:
        raise AssertionError(f"no error after {read} bytes")
    assert time.monotonic() - begun < AT_ONCE_SECONDS
    assert read <= EVENTS // 2 * (1 << 16), read
