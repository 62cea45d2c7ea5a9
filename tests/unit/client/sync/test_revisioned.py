"""Revisioned streams: conditional appends, marks, truncation, and connections lost at bad moments."""

import asyncio

import pytest

from sarit.client.limits import MAX_REVISIONED_ENTRY_BYTES
from sarit.client.sync.revisioned_stream import Revision
from sarit.core.errors import Corrupt, Invalid, NotFound, Sealed, Truncated
from tests.limits import HANG_SECONDS
from tests.unit.client.nodes import on_node


async def entries(stream, start=None) -> list[bytes]:
    return [value async for _, value in stream.read_from(start or await stream.oldest())]


@on_node
async def test_unmet_condition_writes_nothing(made) -> None:
    one = await made.client.coordination.revisioned("s/r")
    two = await made.client.coordination.revisioned("s/r")
    first = await one.write_conditionally(Revision(0), b"first")
    assert first == Revision(8 + 5) == await two.fetch_latest()
    assert await two.write_conditionally(Revision(0), b"too late") is None
    second = await two.write_conditionally(first, b"")
    await one.write_unconditionally(b"third")
    assert await one.write_conditionally(second, b"too late") is None
    found = [pair async for pair in two.read_from(Revision(0))]
    assert found == [(first, b"first"), (second, b""), (Revision(34), b"third")]
    assert await entries(one, second) == [b"third"]
    assert await entries(one, await one.fetch_latest()) == []


@on_node
async def test_news_that_fill_a_read_exactly_end_there(made) -> None:
    """A full read does not say that it reached the tail: one more would wait for an entry that never comes."""
    stream = await made.client.coordination.revisioned("s/r")
    values = [b"%010d" % number for number in range(6)]
    for value in values:
        await stream.write_unconditionally(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sarit.client.sync.revisioned_stream.REVISIONED_READ_BYTES", 2 * 18)
        async with asyncio.timeout(HANG_SECONDS):
            assert [value async for _, value in stream.read_news(Revision(0))] == values


@on_node
async def test_one_of_many_concurrent_conditional_writes_succeeds(made) -> None:
    streams = [await made.client.coordination.revisioned("s/r") for _ in range(8)]
    at = Revision(0)
    for turn in range(20):
        outcomes = await asyncio.gather(
            *(stream.write_conditionally(at, f"{turn}-{n}".encode()) for n, stream in enumerate(streams))
        )
        (at,) = [outcome for outcome in outcomes if outcome is not None]
    assert [value.split(b"-")[0] for value in await entries(streams[0])] == [b"%d" % turn for turn in range(20)]


@on_node
async def test_write_happens_once_when_the_reply_is_lost(made) -> None:
    stream = await made.client.coordination.revisioned("s/r")
    at = Revision(0)
    for turn in range(60):
        write = asyncio.ensure_future(stream.write_conditionally(at, b"%d" % turn))
        for _ in range(turn % 12):
            await asyncio.sleep(0)
        made.cut_connections()
        at = await write
        assert at is not None, turn
    assert await entries(stream) == [b"%d" % turn for turn in range(60)]


@on_node
async def test_stream_is_usable_after_a_cancelled_write(made) -> None:
    stream = await made.client.coordination.revisioned("s/r")
    for turn in range(30):
        at = await stream.fetch_latest()
        write = asyncio.ensure_future(stream.write_conditionally(at, b"perhaps"))
        for _ in range(turn % 10):
            await asyncio.sleep(0)
        write.cancel()
        await asyncio.gather(write, return_exceptions=True)
        while (after := await stream.write_conditionally(await stream.fetch_latest(), b"%d" % turn)) is None:
            pass
        assert await stream.fetch_latest() == after
    assert [value for value in await entries(stream) if value != b"perhaps"] == [b"%d" % turn for turn in range(30)]


@on_node
async def test_mark_is_compared_and_set(made) -> None:
    stream = await made.client.coordination.revisioned("s/r")
    assert await stream.get_mark() is None
    assert await stream.compare_and_set_mark(None, Revision(5))
    assert not await stream.compare_and_set_mark(None, Revision(6))
    assert await stream.get_mark() == Revision(5)
    assert await stream.compare_and_set_mark(Revision(5), None)
    assert await stream.get_mark() is None


@on_node
async def test_truncated_entries_cannot_be_read(made) -> None:
    stream = await made.client.coordination.revisioned("s/r")
    first = await stream.write_conditionally(Revision(0), b"first")
    last = await stream.write_conditionally(first, b"second")
    await stream.truncate(first)
    await stream.truncate(Revision(0))
    assert await stream.oldest() == first
    assert await entries(stream) == [b"second"]
    with pytest.raises(Truncated) as caught:
        await entries(stream, Revision(0))
    assert caught.value.start_offset == first.offset
    with pytest.raises(Invalid):
        await stream.truncate(Revision(last.offset + 1))
    with pytest.raises(Invalid):
        await entries(stream, Revision(last.offset + 1))
    assert await stream.write_conditionally(last, b"third") is not None


@on_node
async def test_wait_beyond_ends_with_the_next_entry(made) -> None:
    stream = await made.client.coordination.revisioned("s/r")
    waiting = asyncio.ensure_future(stream.wait_beyond(Revision(0)))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await stream.write_unconditionally(b"now")
    await asyncio.wait_for(waiting, HANG_SECONDS)
    await stream.wait_beyond(Revision(0))
    await stream.truncate(await stream.fetch_latest())
    await stream.wait_beyond(Revision(0))


@on_node
async def test_long_entries_are_read_completely(made) -> None:
    stream = await made.client.coordination.revisioned("s/r")
    values = [bytes([n]) * size for n, size in enumerate((3_000_000, 10, MAX_REVISIONED_ENTRY_BYTES, 1_048_568))]
    for value in values:
        await stream.write_unconditionally(value)
    assert await entries(stream) == values
    with pytest.raises(Invalid):
        await stream.write_conditionally(await stream.fetch_latest(), bytes(MAX_REVISIONED_ENTRY_BYTES + 1))
    assert await entries(stream) == values


@on_node
async def test_invalid_use_raises_clear_errors(made) -> None:
    coordination = made.client.coordination
    with pytest.raises(NotFound):
        await coordination.revisioned("nowhere/r")
    await made.client.create_stream("s/two", segments=2)
    with pytest.raises(Invalid, match="2 segments"):
        await coordination.revisioned("s/two")
    with pytest.raises(Invalid):
        Revision(-1)
    stream = await coordination.revisioned("s/r")
    await stream.write_unconditionally(b"last")
    await made.client.seal_stream("s/r")
    with pytest.raises(Sealed):
        await stream.write_conditionally(await stream.fetch_latest(), b"no")
    assert await entries(await coordination.revisioned("s/r")) == [b"last"]
    await made.client.create_stream("s/bytes")
    async with made.client.byte_writer("s/bytes") as writer:
        writer.write(b"these bytes are no entries")
    with pytest.raises(Corrupt):
        await entries(await coordination.revisioned("s/bytes"))
