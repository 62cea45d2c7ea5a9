"""Events: with keys and without, small and large, one at a time and many."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import sarit
from sarit import Envelope
from tests.interop.scenarios.tools import in_order, nothing_more, read, take

if TYPE_CHECKING:
    from tests.interop.scenarios.tools import Place


def keys_and_no_keys(place: Place) -> None:
    """Each event once, and in order per key."""
    m = place.manager()
    place.stream(m, "events", 4)
    writer = m.create_writer(place.scope, "events")
    for n in range(3000):
        writer.write_event(f"{n % 10}:{n}", str(n % 10))
    for n in range(500):
        writer.write_event(f"none:{n}")
    writer.flush()
    got = read(place, m, "events", 3500, "events-group")
    assert Counter(got).most_common(1)[0][1] == 1, "an event came twice"
    assert len(got) == 3500, len(got)
    assert in_order([event for event in got if not event.startswith(b"none")])


def awaited(place: Place) -> None:
    """Writes that are awaited one by one, from several tasks."""
    m = place.manager()
    place.stream(m, "awaited", 2)
    writer = m.create_writer(place.scope, "awaited")

    async def write(task: int) -> None:
        for n in range(50):
            await writer.write_event_async(f"{task}:{n}", str(task))

    async def all_tasks() -> None:
        await asyncio.gather(*(write(task) for task in range(8)))

    asyncio.run(all_tasks())
    writer.flush()
    got = read(place, m, "awaited", 400, "awaited-group")
    assert len(set(got)) == len(got) == 400, len(got)


def several_writers(place: Place) -> None:
    m = place.manager()
    place.stream(m, "several", 3)
    writers = [m.create_writer(place.scope, "several") for _ in range(4)]
    for n in range(500):
        for number, writer in enumerate(writers):
            writer.write_event(f"{number}:{n}", str(number))
    for writer in writers:
        writer.flush()
    got = read(place, m, "several", 2000, "several-group")
    assert len(set(got)) == len(got) == 2000, len(got)
    assert in_order(got)


def bytes_as_they_are(place: Place) -> None:
    m = place.manager()
    place.stream(m, "raw", 1)
    writer = m.create_writer(place.scope, "raw")
    sent = [bytes([n]) * (n + 1) for n in range(256)] + ["zażółć ✓".encode(), bytes(range(256)) * 40]
    for event in sent:
        writer.write_event_bytes(event, routing_key="k")
    writer.flush()
    assert read(place, m, "raw", len(sent), "raw-group") == sent


def enveloped(place: Place) -> None:
    """Envelopes are bytes to this client: it reads those of Sarit's, which reads those that it wrote."""
    m = place.manager()
    place.stream(m, "enveloped", 1)
    sent = [Envelope("21.5", key="ann", event_time=5, headers={"unit": "celsius"}), Envelope(b"\xff", key="bob")]
    with sarit.connect(place.endpoint) as client:
        with client.writer(f"{place.scope}/enveloped") as writer:
            writer.write_many(sent)
        got = read(place, m, "enveloped", 2, "enveloped-group")
        assert [Envelope.parse(event) for event in got] == sent
        writer = m.create_writer(place.scope, "enveloped")
        for event in got:
            writer.write_event_bytes(event, routing_key="k")
        writer.flush()
        back = list(client.reader(f"{place.scope}/enveloped", end="tail"))
        assert [Envelope.parse(event) for event in back] == sent * 2


def large(place: Place) -> None:
    """Events of 100 kB travel in a block, those above 8 MiB in a transient segment that is merged."""
    m = place.manager()
    place.stream(m, "large", 1)
    writer = m.create_writer(place.scope, "large")
    sizes = (100_000, 9 << 20, 10, 12_000_000, 100_000, (8 << 20) - 8, (8 << 20) - 7, 100_000)
    sent = [bytes([65 + n]) * size for n, size in enumerate(sizes)]
    for event in sent:
        writer.write_event_bytes(event, routing_key="k")
        writer.flush()
    got = read(place, m, "large", len(sent), "large-group")
    assert [len(event) for event in got] == list(sizes)
    assert got == sent


def follow_the_tail(place: Place) -> None:
    """A reader that waits at the tail sees each event soon after it was written."""
    m = place.manager()
    place.stream(m, "followed", 1)
    writer = m.create_writer(place.scope, "followed")
    reader = m.create_reader_group("followed-group", place.scope, "followed").create_reader("one")

    async def rounds() -> None:
        for n in range(20):
            reading = asyncio.create_task(take(reader, 1, 20))
            await asyncio.sleep(0.01 if n % 2 else 0)
            await writer.write_event_async(f"{n}", "k")
            assert await reading == [b"%d" % n], n

    asyncio.run(rounds())
    assert nothing_more(reader)
