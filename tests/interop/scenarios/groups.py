"""Reader groups: several readers, readers that leave, and groups that continue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.interop.scenarios.tools import follow, in_order, nothing_more, raises, take
from tests.limits import patient

if TYPE_CHECKING:
    from tests.interop.scenarios.tools import Place

# The client rebalances segments every 10 s, so that a second reader gets its share within about 20 s.
SHARED_SECONDS = patient(45.0)


def _write(writer: Any, first: int, end: int, keys: int = 40) -> None:
    for n in range(first, end):
        writer.write_event(f"{n % keys}:{n}", str(n % keys))
    writer.flush()


def _numbers(events: list[bytes]) -> set[int]:
    return {int(event.partition(b":")[2]) for event in events}


def one_goes_offline(place: Place) -> None:
    """What the first reader released, the second reads from there: all events, none twice, in order per key."""
    m = place.manager()
    place.stream(m, "handed-over", 4)
    writer = m.create_writer(place.scope, "handed-over")
    _write(writer, 0, 2000)
    group = m.create_reader_group("handed-over-group", place.scope, "handed-over")
    first = group.create_reader("first")
    seen = asyncio.run(take(first, 300, 20))
    assert len(seen) >= 300
    first.reader_offline()
    _write(writer, 2000, 3000)
    second = group.create_reader("second")
    seen += asyncio.run(take(second, 3000 - len(seen)))
    assert len(seen) == 3000, len(seen)
    assert _numbers(seen) == set(range(3000))
    assert in_order(seen)
    assert nothing_more(second)


def vanished(place: Place) -> None:
    """A reader that vanished is taken offline by the group; the other resumes where the group last knew it."""
    m = place.manager()
    place.stream(m, "vanished", 2)
    writer = m.create_writer(place.scope, "vanished")
    _write(writer, 0, 1000)
    group = m.create_reader_group("vanished-group", place.scope, "vanished")
    lost = group.create_reader("lost")
    seen = asyncio.run(take(lost, 100, 20))
    group.reader_offline("lost")
    other = group.create_reader("other")
    rest = asyncio.run(take(other, 1000, 12 if len(seen) else 40))
    assert _numbers(seen) | _numbers(rest) == set(range(1000))
    other.reader_offline()


def shared_by_two(place: Place) -> None:
    """Two readers at once: together they see each event once, and both get segments."""
    m = place.manager()
    place.stream(m, "shared", 4)
    writer = m.create_writer(place.scope, "shared")
    group = m.create_reader_group("shared-group", place.scope, "shared")
    first, second = group.create_reader("first"), group.create_reader("second")
    seen: dict[str, list[bytes]] = {"first": [], "second": []}

    async def scenario() -> None:
        tasks = [
            asyncio.create_task(follow(first, seen["first"])),
            asyncio.create_task(follow(second, seen["second"])),
        ]
        written, loop = 0, asyncio.get_running_loop()
        end = loop.time() + SHARED_SECONDS
        while loop.time() < end and not (len(seen["first"]) > 20 and len(seen["second"]) > 20):
            await loop.run_in_executor(None, _write, writer, written, written + 200)
            written += 200
            await asyncio.sleep(0.5)
        for _ in range(150):
            if sum(map(len, seen.values())) >= written:
                break
            await asyncio.sleep(0.1)
        both = seen["first"] + seen["second"]
        assert seen["first"], "the first reader got nothing"
        assert seen["second"], "the second reader got nothing"
        assert len(both) == written, (len(both), written)
        assert _numbers(both) == set(range(written))
        for task in tasks:
            task.cancel()

    # A reader with a read under way cannot be taken offline (the client waits for that read): both just end.
    asyncio.run(scenario())


def deleted(place: Place) -> None:
    """A deleted group takes no more readers; another one starts at the head."""
    m = place.manager()
    place.stream(m, "regrouped", 1)
    writer = m.create_writer(place.scope, "regrouped")
    _write(writer, 0, 50)
    for name in ("regrouped-one", "regrouped-two"):
        group = m.create_reader_group(name, place.scope, "regrouped")
        reader = group.create_reader("one")
        assert _numbers(asyncio.run(take(reader, 50))) == set(range(50))
        reader.reader_offline()
        m.delete_reader_group(name, place.scope)
        assert raises(group.create_reader, "two")


def two_streams(place: Place) -> None:
    """One group over two streams."""
    import pravega_client as pravega

    m = place.manager()
    for name in ("left", "right"):
        place.stream(m, name, 2)
        writer = m.create_writer(place.scope, name)
        for n in range(100):
            writer.write_event(f"{name}:{n}", str(n))
        writer.flush()
    config = pravega.StreamReaderGroupConfig(False, place.scope, "left", "right")
    reader = m.create_reader_group_with_config("both-group", place.scope, config).create_reader("one")
    got = asyncio.run(take(reader, 200))
    assert sorted(got) == sorted(f"{name}:{n}".encode() for name in ("left", "right") for n in range(100))
    reader.reader_offline()
