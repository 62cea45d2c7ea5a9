"""Stream cuts and byte streams: starting positions, and truncation."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from tests.interop.scenarios.tools import take

if TYPE_CHECKING:
    from tests.interop.scenarios.tools import Place

HERE, FROM_END = 1, 2


def head_and_tail(place: Place) -> None:
    m = place.manager()
    place.stream(m, "ends", 2)
    writer = m.create_writer(place.scope, "ends")
    for n in range(100):
        writer.write_event(f"old {n}", str(n))
    writer.flush()
    tail = m.create_reader_group("tail-group", place.scope, "ends", True).create_reader("one")
    for n in range(100):
        writer.write_event(f"new {n}", str(n))
    writer.flush()
    assert set(asyncio.run(take(tail, 100))) == {b"new %d" % n for n in range(100)}
    tail.reader_offline()
    head = m.create_reader_group("head-group", place.scope, "ends", False).create_reader("one")
    got = asyncio.run(take(head, 200))
    assert set(got) == {f"{age} {n}".encode() for age in ("old", "new") for n in range(100)}
    assert len(got) == 200
    head.reader_offline()


def from_a_cut(place: Place) -> None:
    """A cut of one group, taken when its reader has gone, is where another group begins."""
    m = place.manager()
    place.stream(m, "cut", 2)
    writer = m.create_writer(place.scope, "cut")
    for n in range(400):
        writer.write_event(f"{n % 20}:{n}", str(n % 20))
        if n % 100 == 99:
            writer.flush()
    group = m.create_reader_group("cut-before", place.scope, "cut")
    reader = group.create_reader("one")
    seen = asyncio.run(take(reader, 400))
    assert len(seen) == 400
    reader.reader_offline()
    cut = group.get_streamcut()
    for n in range(400, 500):
        writer.write_event(f"{n % 20}:{n}", str(n % 20))
    writer.flush()
    after = m.create_reader_group("cut-after", place.scope, "cut", False, cut).create_reader("one")
    got = asyncio.run(take(after, 100))
    assert {int(event.partition(b":")[2]) for event in got} == set(range(400, 500)), len(got)
    after.reader_offline()


def _all_of(stream: Any, length: int) -> bytes:
    got = b""
    while len(got) < length:
        buffer = bytearray(65_536)
        count = stream.readinto(buffer)
        assert count > 0, f"nothing came at {len(got)} of {length}"
        got += bytes(buffer[:count])
    return got


def byte_stream(place: Place) -> None:
    m = place.manager()
    place.stream(m, "bytes", 1)
    stream = m.create_byte_stream(place.scope, "bytes")
    data = os.urandom(300_000)
    for at in range(0, len(data), 50_000):
        assert stream.write(data[at : at + 50_000]) == 50_000
    stream.flush()
    assert _all_of(stream, len(data)) == data
    assert stream.current_tail_offset() == len(data)
    assert stream.current_head_offset() == 0
    assert stream.seekable()
    buffer = bytearray(10)
    assert stream.seek(1000, 0) == 1000
    assert stream.readinto(buffer) == 10
    assert bytes(buffer) == data[1000:1010]
    assert stream.tell() == 1010
    assert stream.seek(90, HERE) == 1100
    assert stream.readinto(buffer) == 10
    assert bytes(buffer) == data[1100:1110]
    assert stream.seek(-5, FROM_END) == len(data) - 5
    assert stream.readinto(buffer) == 5
    assert bytes(buffer[:5]) == data[-5:]


def byte_stream_truncated(place: Place) -> None:
    """Cut at the head; what is left is unchanged, also for a stream opened again, which can be written."""
    m = place.manager()
    place.stream(m, "cut-bytes", 1)
    stream = m.create_byte_stream(place.scope, "cut-bytes")
    data = os.urandom(100_000)
    stream.write(data)
    stream.flush()
    stream.truncate(2_000)
    stream.truncate(70_000)
    reopened = m.create_byte_stream(place.scope, "cut-bytes")
    assert reopened.current_head_offset() == 70_000
    assert reopened.current_tail_offset() == 100_000
    reopened.seek(70_000, 0)
    assert _all_of(reopened, 30_000) == data[70_000:]
