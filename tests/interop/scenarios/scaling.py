"""Streams that scale while the client writes and reads: by its own policies, by another client, by themselves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pravega_client as pravega

from tests.interop.scenarios.tools import follow, in_order, nothing_more, read, take
from tests.limits import HANG_SECONDS, patient

if TYPE_CHECKING:
    from tests.interop.scenarios.tools import Place

SARIT = str(Path(sys.executable).with_name("sarit"))
COUNTS = (4, 1, 3, 2)
END_SECONDS = patient(60.0)


def _scale(place: Place, stream: str, segments: int) -> None:
    """By another client."""
    command = [SARIT, "stream", "scale", f"{place.scope}/{stream}", "--segments", str(segments)]
    subprocess.run([*command, "--controller", place.endpoint], check=True, capture_output=True, timeout=HANG_SECONDS)


def _fixed(m: Any, place: Place, stream: str, segments: int) -> None:
    fixed, none = pravega.StreamScalingPolicy.fixed_scaling_policy(segments), pravega.StreamRetentionPolicy.none()
    assert m.update_stream_with_policy(place.scope, stream, fixed, none, None)


def _numbers(events: list[bytes]) -> list[int]:
    return sorted(int(event.partition(b":")[2]) for event in events)


async def _write_while(place: Place, m: Any, stream: str, change: Any) -> int:
    """Write numbered events of 20 keys, one write each at a time, while `change(count)` is made for each of COUNTS;
    how many were written."""
    loop = asyncio.get_running_loop()
    writer = m.create_writer(place.scope, stream)
    changing = loop.run_in_executor(None, lambda: [change(count) for count in COUNTS])
    written, after = 0, 100
    while after:
        after -= changing.done()
        for _ in range(5):
            await writer.write_event_async(f"{written % 20}:{written}", str(written % 20))
            written += 1
    await changing
    await loop.run_in_executor(None, writer.flush)
    return written


def by_its_own_policy(place: Place) -> None:
    """It changes the number of segments while it writes; what it then reads is whole and in order."""
    m = place.manager()
    place.stream(m, "own-policy", 2)
    other = place.manager()
    written = asyncio.run(_write_while(place, m, "own-policy", lambda count: _fixed(other, place, "own-policy", count)))
    got = read(place, m, "own-policy", written, "own-policy-group")
    assert _numbers(got) == list(range(written)), (len(got), written)
    assert in_order(got)


def while_it_writes_and_reads(place: Place) -> None:
    """Another client scales the stream up and down: the tail reader misses nothing, and nothing comes twice."""
    m = place.manager()
    place.stream(m, "elastic", 1)
    reader = m.create_reader_group("elastic-group", place.scope, "elastic").create_reader("one")
    seen: list[bytes] = []

    async def scenario() -> None:
        following = asyncio.create_task(follow(reader, seen))
        written = await _write_while(place, m, "elastic", lambda count: _scale(place, "elastic", count))
        end = asyncio.get_running_loop().time() + END_SECONDS
        while len(seen) < written and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.1)
        following.cancel()
        assert _numbers(seen) == list(range(written)), (len(seen), written)
        assert in_order(seen)

    asyncio.run(scenario())


def two_readers(place: Place) -> None:
    """A group of two reads a stream while it scales: together they see each event once."""
    m = place.manager()
    place.stream(m, "shared-elastic", 1)
    group = m.create_reader_group("shared-elastic-group", place.scope, "shared-elastic")
    readers = [group.create_reader(name) for name in ("first", "second")]
    seen: list[list[bytes]] = [[], []]

    async def scenario() -> None:
        tasks = [asyncio.create_task(follow(*pair)) for pair in zip(readers, seen, strict=True)]
        written = await _write_while(place, m, "shared-elastic", lambda count: _scale(place, "shared-elastic", count))
        end = asyncio.get_running_loop().time() + END_SECONDS
        while sum(map(len, seen)) < written and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        assert _numbers(seen[0] + seen[1]) == list(range(written)), (len(seen[0]), len(seen[1]), written)
        assert all(in_order(one) for one in seen)

    asyncio.run(scenario())


def scaled_before_anybody_reads(place: Place) -> None:
    """The history of a stream, read from the head: predecessors before their successors."""
    m = place.manager()
    place.stream(m, "history", 1)
    writer = m.create_writer(place.scope, "history")
    written = 0
    for count in COUNTS:
        for _ in range(300):
            writer.write_event(f"{written % 20}:{written}", str(written % 20))
            written += 1
        writer.flush()
        _scale(place, "history", count)
    got = read(place, m, "history", written, "history-group")
    assert _numbers(got) == list(range(written)), (len(got), written)
    assert in_order(got)


def transactions(place: Place) -> None:
    """Begun before a scale and committed after it: all of it, once, together with what others wrote."""
    m = place.manager()
    place.stream(m, "txn-elastic", 2)
    plain = m.create_writer(place.scope, "txn-elastic")
    writer = m.create_transaction_writer(place.scope, "txn-elastic", 1)
    kept, dropped = writer.begin_txn(), writer.begin_txn()
    for n in range(100):
        kept.write_event(f"kept-{n % 5}:{n}", str(n % 5))
        dropped.write_event(f"dropped-{n % 5}:{n}", str(n % 5))
    _scale(place, "txn-elastic", 5)
    for n in range(100):
        plain.write_event(f"plain-{n % 5}:{n}", str(n % 5))
    plain.flush()
    late = writer.begin_txn()
    late.write_event("late-0:0", "0")
    kept.commit()
    dropped.abort()
    late.commit()
    reader = m.create_reader_group("txn-elastic-group", place.scope, "txn-elastic").create_reader("one")
    got = asyncio.run(take(reader, 201))
    wanted = [f"{kind}-{n % 5}:{n}".encode() for kind in ("kept", "plain") for n in range(100)]
    assert sorted(got) == sorted([*wanted, b"late-0:0"]), len(got)
    assert in_order(got)
    assert nothing_more(reader)


def by_itself(place: Place) -> None:
    """A stream whose policy asks for one event a second for each segment grows while it is written."""
    m = place.manager()
    by_rate = pravega.StreamScalingPolicy.auto_scaling_policy_by_event_rate(1, 2, 1)
    none = pravega.StreamRetentionPolicy.none()
    assert m.create_stream_with_policy(place.scope, "by-itself", by_rate, none, None)
    writer = m.create_writer(place.scope, "by-itself")
    reader = m.create_reader_group("by-itself-group", place.scope, "by-itself").create_reader("one")
    seen: list[bytes] = []

    def epochs() -> int:
        command = [SARIT, "stream", "epochs", f"{place.scope}/by-itself", "--controller", place.endpoint]
        out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=HANG_SECONDS).stdout
        return len(out.splitlines())

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        following = asyncio.create_task(follow(reader, seen))
        before = await loop.run_in_executor(None, epochs)
        written, end = 0, loop.time() + END_SECONDS
        looking = loop.run_in_executor(None, epochs)
        while loop.time() < end:
            for _ in range(20):
                await writer.write_event_async(f"{written % 20}:{written}", str(written % 20))
                written += 1
            await asyncio.sleep(0.05)
            if looking.done():
                if await looking > before:
                    break
                looking = loop.run_in_executor(None, epochs)
        else:
            raise AssertionError(f"{written} events in {END_SECONDS:.0f} s, and the stream has not grown")
        for _ in range(100):
            await writer.write_event_async(f"{written % 20}:{written}", str(written % 20))
            written += 1
        while len(seen) < written and loop.time() < end:
            await asyncio.sleep(0.1)
        following.cancel()
        assert _numbers(seen) == list(range(written)), (len(seen), written)
        assert in_order(seen)

    asyncio.run(scenario())
