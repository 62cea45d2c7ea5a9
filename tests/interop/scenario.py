"""Scenarios of the official Python client, one per process: `python scenario.py NAME PORT`.

The client's runtime may abort when the interpreter ends, so each scenario prints `passed NAME`
and leaves by `os._exit`; what went wrong is an assertion's traceback.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import pravega_client as pravega

SCOPE = "interop"
DEADLINE_SECONDS = 40


def manager(port: int) -> pravega.StreamManager:
    return pravega.StreamManager(f"tcp://127.0.0.1:{port}", False, False)


async def take(reader: pravega.StreamReader, count: int, seconds: float = DEADLINE_SECONDS) -> list[bytes]:
    """`count` events, or fewer when the time is over."""
    events: list[bytes] = []
    end = time.monotonic() + seconds
    while len(events) < count and time.monotonic() < end:
        try:
            segment = await asyncio.wait_for(reader.get_segment_slice_async(), end - time.monotonic())
        except TimeoutError:
            break
        if segment is not None:
            events.extend(bytes(event.data()) for event in segment)
            reader.release_segment(segment)
    return events


def management(port: int) -> None:
    m = manager(port)
    assert m.create_scope(SCOPE)
    assert not m.create_scope(SCOPE)
    assert SCOPE in m.list_scope()
    assert m.create_stream(SCOPE, "plain", 3)
    assert not m.create_stream(SCOPE, "plain", 3)
    fixed = pravega.StreamScalingPolicy.fixed_scaling_policy(2)
    none = pravega.StreamRetentionPolicy.none()
    assert m.create_stream_with_policy(SCOPE, "tagged", fixed, none, ["b", "a"])
    assert sorted(m.get_stream_tags(SCOPE, "tagged")) == ["a", "b"]
    assert m.update_stream_with_policy(SCOPE, "tagged", fixed, none, ["c"])
    assert m.get_stream_tags(SCOPE, "tagged") == ["c"]
    assert {"plain", "tagged"} <= set(m.list_stream(SCOPE))
    assert m.create_scope("gone")
    assert m.create_stream("gone", "t", 1)
    assert m.seal_stream("gone", "t")
    assert m.delete_stream("gone", "t")
    assert m.create_stream("gone", "t", 2)
    assert m.seal_stream("gone", "t")
    assert m.delete_stream("gone", "t")
    assert m.delete_scope("gone")
    assert "gone" not in m.list_scope()


def events(port: int) -> None:
    m = manager(port)
    m.create_stream(SCOPE, "events", 4)
    writer = m.create_writer(SCOPE, "events")
    for n in range(3000):
        writer.write_event(f"{n % 10}:{n}", str(n % 10))
    for n in range(500):
        writer.write_event(f"x:{n}")
    writer.flush()
    group = m.create_reader_group("events-group", SCOPE, "events")
    reader = group.create_reader("one")
    got = asyncio.run(take(reader, 3500))
    assert len(got) == len(set(got)) == 3500, len(got)
    for key in range(10):
        mine = [int(e.split(b":")[1]) for e in got if e.startswith(b"%d:" % key)]
        assert mine == sorted(mine), key
    reader.reader_offline()


def two_readers(port: int) -> None:
    m = manager(port)
    m.create_stream(SCOPE, "shared", 4)
    writer = m.create_writer(SCOPE, "shared")
    for n in range(2000):
        writer.write_event(f"{n}", str(n))
    writer.flush()
    group = m.create_reader_group("shared-group", SCOPE, "shared")

    async def both() -> set[bytes]:
        first, second = group.create_reader("first"), group.create_reader("second")
        seen = set(await take(first, 400, 15))
        first.reader_offline()
        seen |= set(await take(second, 2000, 30)) if len(seen) < 2000 else set()
        return seen

    seen = asyncio.run(both())
    assert seen == {b"%d" % n for n in range(2000)}, len(seen)


def byte_stream(port: int) -> None:
    m = manager(port)
    m.create_stream(SCOPE, "bytes", 1)
    stream = m.create_byte_stream(SCOPE, "bytes")
    data = os.urandom(300_000)
    for at in range(0, len(data), 50_000):
        stream.write(data[at : at + 50_000])
    stream.flush()
    got = b""
    while len(got) < len(data):
        buffer = bytearray(65_536)
        count = stream.readinto(buffer)
        got += bytes(buffer[:count])
    assert got == data
    assert stream.current_tail_offset() == len(data)
    assert stream.seek(1000, 0) == 1000
    buffer = bytearray(10)
    assert stream.readinto(buffer) == 10
    assert bytes(buffer) == data[1000:1010]
    stream.truncate(2000)
    assert stream.current_head_offset() == 2000
    stream.seek(2000, 0)
    stream.readinto(buffer)
    assert bytes(buffer) == data[2000:2010]


def large_events(port: int) -> None:
    m = manager(port)
    m.create_stream(SCOPE, "large", 1)
    writer = m.create_writer(SCOPE, "large")
    sent = [bytes([65 + n]) * size for n, size in enumerate((100_000, 9 * 1024 * 1024, 10, 12_000_000, 100_000))]
    for event in sent:
        writer.write_event_bytes(event, routing_key="k")
        writer.flush()
    reader = m.create_reader_group("large-group", SCOPE, "large").create_reader("one")
    got = asyncio.run(take(reader, len(sent)))
    assert [len(e) for e in got] == [len(e) for e in sent]
    assert got == sent
    reader.reader_offline()


def head_and_tail(port: int) -> None:
    m = manager(port)
    m.create_stream(SCOPE, "ends", 2)
    writer = m.create_writer(SCOPE, "ends")
    for n in range(100):
        writer.write_event(f"old {n}", str(n))
    writer.flush()
    tail = m.create_reader_group("tail-group", SCOPE, "ends", True).create_reader("one")
    for n in range(100):
        writer.write_event(f"new {n}", str(n))
    writer.flush()
    assert set(asyncio.run(take(tail, 100))) == {b"new %d" % n for n in range(100)}
    tail.reader_offline()
    head = m.create_reader_group("head-group", SCOPE, "ends", False).create_reader("one")
    got = asyncio.run(take(head, 200))
    assert len(got) == 200
    assert {e for e in got if e.startswith(b"old")} == {b"old %d" % n for n in range(100)}
    head.reader_offline()


def continue_before(port: int) -> None:
    """Before the node is killed: events, half of them read."""
    m = manager(port)
    m.create_stream(SCOPE, "survivor", 2)
    writer = m.create_writer(SCOPE, "survivor")
    for n in range(1000):
        writer.write_event(f"{n}", str(n))
    writer.flush()


def continue_after(port: int) -> None:
    """After it was started anew: all is there, and it takes more."""
    m = manager(port)
    assert "survivor" in m.list_stream(SCOPE)
    writer = m.create_writer(SCOPE, "survivor")
    for n in range(1000, 1500):
        writer.write_event(f"{n}", str(n))
    writer.flush()
    reader = m.create_reader_group("survivor-group", SCOPE, "survivor").create_reader("one")
    got = asyncio.run(take(reader, 1500))
    assert sorted(map(int, got)) == list(range(1500)), len(got)
    reader.reader_offline()


def main() -> None:
    name, port = sys.argv[1], int(sys.argv[2])
    globals()[name](port)
    print(f"passed {name}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
