"""Scenarios in two halves, before a kill of the node and after its restart.

`X_before` runs, the node is killed with -9 and started on its directory, `X_after` runs.  `through_the_kill` lives
through it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import threading
from typing import TYPE_CHECKING, Any

import pravega_client as pravega

from tests.interop.scenarios.tools import follow, in_order, nothing_more, read, take

if TYPE_CHECKING:
    from tests.interop.scenarios.tools import Place

EVENTS = 1000


def _noise(length: int) -> bytes:
    blocks = (hashlib.sha256(n.to_bytes(8, "big")).digest() for n in range(length // 32 + 1))
    return b"".join(blocks)[:length]


def _numbers(events: list[bytes]) -> list[int]:
    return sorted(int(event.partition(b":")[2]) for event in events)


def _write(writer: Any, first: int, end: int) -> None:
    for n in range(first, end):
        writer.write_event(f"{n % 30}:{n}", str(n % 30))
    writer.flush()


def events_before(place: Place) -> None:
    m = place.manager()
    place.stream(m, "survivor", 3)
    _write(m.create_writer(place.scope, "survivor"), 0, EVENTS)


def events_after(place: Place) -> None:
    m = place.manager()
    assert "survivor" in m.list_stream(place.scope)
    _write(m.create_writer(place.scope, "survivor"), EVENTS, EVENTS + 500)
    got = read(place, m, "survivor", EVENTS + 500, "survivor-group")
    assert _numbers(got) == list(range(EVENTS + 500)), len(got)
    assert in_order(got)


def names_before(place: Place) -> None:
    m = place.manager()
    fixed, none = pravega.StreamScalingPolicy.fixed_scaling_policy(2), pravega.StreamRetentionPolicy.none()
    assert m.create_stream_with_policy(place.scope, "kept-tags", fixed, none, ["x", "y"])
    place.stream(m, "kept-sealed", 1)
    writer = m.create_writer(place.scope, "kept-sealed")
    writer.write_event("last", "k")
    writer.flush()
    assert m.seal_stream(place.scope, "kept-sealed")
    place.stream(m, "deleted", 1)
    assert m.seal_stream(place.scope, "deleted")
    assert m.delete_stream(place.scope, "deleted")
    assert m.create_scope(place.scope + "-gone")
    assert m.delete_scope(place.scope + "-gone")


def names_after(place: Place) -> None:
    m = place.manager()
    assert sorted(m.get_stream_tags(place.scope, "kept-tags")) == ["x", "y"]
    listed = m.list_stream(place.scope)
    assert "kept-sealed" in listed
    assert "deleted" not in listed
    assert place.scope + "-gone" not in m.list_scope()
    assert read(place, m, "kept-sealed", 1, "kept-sealed-group") == [b"last"]
    assert m.delete_stream(place.scope, "kept-sealed"), "it is not sealed any more"
    assert m.create_stream(place.scope, "deleted", 1)


def group_before(place: Place) -> None:
    """One reader leaves in order, one does not: the group knows where the first stopped."""
    m = place.manager()
    place.stream(m, "half-read", 2)
    _write(m.create_writer(place.scope, "half-read"), 0, EVENTS)
    group = m.create_reader_group("half-group", place.scope, "half-read")
    reader = group.create_reader("first")
    seen = asyncio.run(take(reader, 1, 20))
    reader.reader_offline()
    group.create_reader("lost")
    (place.notes / "half-read.json").write_text(json.dumps(_numbers(seen)))


def group_after(place: Place) -> None:
    m = place.manager()
    seen = json.loads((place.notes / "half-read.json").read_text())
    _write(m.create_writer(place.scope, "half-read"), EVENTS, EVENTS + 100)
    group = m.create_reader_group("half-group", place.scope, "half-read")
    group.reader_offline("lost")
    reader = group.create_reader("second")
    rest = asyncio.run(take(reader, EVENTS + 100 - len(seen)))
    assert sorted(seen + _numbers(rest)) == list(range(EVENTS + 100)), (len(seen), len(rest))
    assert nothing_more(reader)


def bytes_before(place: Place) -> None:
    m = place.manager()
    place.stream(m, "kept-bytes", 1)
    stream = m.create_byte_stream(place.scope, "kept-bytes")
    stream.write(_noise(200_000))
    stream.flush()
    stream.truncate(50_000)


def bytes_after(place: Place) -> None:
    m = place.manager()
    stream = m.create_byte_stream(place.scope, "kept-bytes")
    assert stream.current_head_offset() == 50_000
    assert stream.current_tail_offset() == 200_000
    stream.seek(50_000, 0)
    got = b""
    while len(got) < 150_000:
        buffer = bytearray(65_536)
        got += bytes(buffer[: stream.readinto(buffer)])
    assert got == _noise(200_000)[50_000:]


def large_before(place: Place) -> None:
    m = place.manager()
    place.stream(m, "kept-large", 1)
    writer = m.create_writer(place.scope, "kept-large")
    for size in (100_000, 9 << 20):
        writer.write_event_bytes(_noise(size), routing_key="k")
    writer.flush()


def large_after(place: Place) -> None:
    m = place.manager()
    got = read(place, m, "kept-large", 2, "kept-large-group")
    assert [len(event) for event in got] == [100_000, 9 << 20]
    assert got == [_noise(100_000), _noise(9 << 20)]


def through_the_kill(place: Place) -> None:
    """A writer and a reader from before the kill continue after it: each event once, in order.

    Prints `running` when the node may be killed; continues for 200 events after a line on stdin says that the
    node is back."""
    m = place.manager()
    place.stream(m, "alive", 2)
    writer = m.create_writer(place.scope, "alive")
    reader = m.create_reader_group("alive-group", place.scope, "alive").create_reader("one")
    back = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), back.set()), daemon=True).start()
    seen: list[bytes] = []

    async def scenario() -> None:
        following = asyncio.create_task(follow(reader, seen))
        written, left = 0, 200
        while left:
            await writer.write_event_async(f"{written % 7}:{written}", str(written % 7))
            written += 1
            if written == 200:
                print("running", flush=True)
            if back.is_set():
                left -= 1
        await asyncio.get_running_loop().run_in_executor(None, writer.flush)
        for _ in range(300):
            if len(seen) >= written:
                break
            await asyncio.sleep(0.1)
        following.cancel()
        stored = await asyncio.get_running_loop().run_in_executor(
            None, read, place, m, "alive", written, "alive-stored-group"
        )
        assert _numbers(stored) == list(range(written)), (len(stored), written)
        assert in_order(stored)
        assert _numbers(seen) == list(range(written)), (len(seen), written)

    asyncio.run(scenario())
