"""Event pointers: Java's bytes and text; the event they point at, or why there is none."""

import pytest

from sarit.client.reader.pointers import EventPointer
from sarit.core.errors import Invalid, NotFound, Truncated
from sarit.core.names import SegmentId, StreamName
from tests.limits import HANG_SECONDS
from tests.unit.client.nodes import on_node

NAME = StreamName("s", "t")
POINTER = EventPointer(NAME, SegmentId(0, 0), 16, 13)


def test_pointer_has_the_bytes_and_text_of_java() -> None:
    golden = bytes.fromhex("0000010000000012000e732f742f302e2365706f63682e30100d")
    assert POINTER.to_bytes() == golden
    assert EventPointer.from_bytes(golden) == POINTER
    assert str(POINTER) == "s/t/0.#epoch.0:16-13"
    assert EventPointer.parse(str(POINTER)) == POINTER


@pytest.mark.parametrize(
    "text", ["", "s/t/0.#epoch.0", "s/t/0.#epoch.0:16", "s/t/0.#epoch.0:-1-13", "s/t/x:1-13", "s:1-7"]
)
def test_invalid_pointers_are_refused(text) -> None:
    with pytest.raises(Invalid):
        EventPointer.parse(text)
    with pytest.raises(Invalid):
        EventPointer.from_bytes(text.encode())


@on_node
async def test_events_are_fetched_by_their_pointers(local) -> None:
    await local.client.create_stream(NAME, segments=2)
    written = {f"event {number}".encode() * (number * 300 + 1) for number in range(30)}
    async with local.client.writer(NAME) as writer:
        for event in written:
            writer.write(event)
    group = await local.client.reader_groups.create("s/g", NAME, automatic_checkpoint=None)
    pointers = {}
    async with await group.reader("one") as reader:
        while len(pointers) < len(written):
            found = await reader.read(HANG_SECONDS)
            pointers[found.pointer] = found.event
    stream = local.client.stream(NAME)
    for pointer, event in pointers.items():
        assert await stream.fetch_event(EventPointer.parse(str(pointer))) == event
    assert set(pointers.values()) == written


@on_node
async def test_pointer_without_event_raises_the_reason(local) -> None:
    await local.client.create_stream(NAME)
    async with local.client.writer(NAME) as writer:
        writer.write("12345")
        writer.write("12345")
    stream, first = local.client.stream(NAME), SegmentId(0, 0)
    assert await stream.fetch_event(EventPointer(NAME, first, 13, 13)) == b"12345"
    for offset, length, why in ((0, 26, "2 events"), (20, 40, "ends at 26"), (0, 12, "middle"), (0, 8, "middle")):
        with pytest.raises(Invalid, match=why):
            await stream.fetch_event(EventPointer(NAME, first, offset, length))
    with pytest.raises(Invalid, match="not into s/t"):
        await stream.fetch_event(EventPointer(StreamName("s", "u"), first, 0, 13))
    await local.client.truncate_stream(NAME, cut="tail")
    with pytest.raises(Truncated, match="begins at 26") as gone:
        await stream.fetch_event(EventPointer(NAME, first, 0, 13))
    assert gone.value.start_offset == 26
    with pytest.raises((Truncated, NotFound)):
        await stream.fetch_event(EventPointer(NAME, SegmentId(3, 9), 0, 13))
