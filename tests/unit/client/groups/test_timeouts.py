"""A time-out of a group's reader holds when the group's state cannot be reached; a round in progress continues."""

import asyncio

import pytest

from sarit.client.groups.reader import CheckpointEvent
from sarit.core.errors import Conflict, Invalid, Unavailable
from tests.limits import HANG_SECONDS
from tests.unit.client.groups.harness import fill, until
from tests.unit.client.nodes import on_node


class Away:
    """The state of `reader`'s group, which does not answer to the reader before it is `back`."""

    def __init__(self, reader) -> None:
        self.back = asyncio.Event()
        self.asked = 0
        self.error = None
        self._update = reader._shared.update
        reader._shared.update = self.update

    async def update(self, decide) -> bool:
        self.asked += 1
        await self.back.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return await self._update(decide)


async def at_a_checkpoint(local):
    """A reader that was handed ten of a hundred events and a checkpoint, which `asking` waits for."""
    await local.client.create_stream("s/t")
    events = await fill(local.client, "s/t", 100)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
    reader = await group.reader("one")
    found = [(await reader.read(HANG_SECONDS)).event for _ in range(10)]
    asking = await handed_out(reader, group, "c")
    assert found == events[:10]
    return group, reader, events[10:], asking


async def handed_out(reader, group, checkpoint: str) -> asyncio.Task:
    """Have a checkpoint handed out; the task that waits for its end."""
    asking = asyncio.create_task(group.checkpoint(checkpoint))
    await until(lambda: checkpoint in reader._shared.state.checkpoints.pending)
    assert isinstance(await reader.read(HANG_SECONDS), CheckpointEvent)
    return asking


async def nothing(reader, timeout: float, **options) -> None:
    """A read returns nothing, and in time."""
    async with asyncio.timeout(HANG_SECONDS):
        assert await reader.read(timeout) is None
        assert await reader.read_batch(timeout=timeout) is None
        assert await reader.read_arrow(timeout) is None


@on_node
async def test_read_returns_at_its_timeout_while_the_store_is_unavailable(local):
    """It waited as long as the store was unavailable."""
    group, reader, left, asking = await at_a_checkpoint(local)
    away = Away(reader)
    for timeout in (0.0, 0.01, 0.01):
        await nothing(reader, timeout)
    assert away.asked == 1  # one round for all reads: starting again each time would never end
    assert not asking.done()
    away.back.set()
    async with asyncio.timeout(HANG_SECONDS):
        assert (await reader.read_batch(timeout=None)).events == left
        await asking
    await reader.close()
    assert (await group.info()).readers == {}


@on_node
async def test_next_read_reports_the_outcome_of_the_round_in_progress(local):
    group, reader, left, asking = await at_a_checkpoint(local)
    away = Away(reader)
    away.error = Unavailable("made by the test")
    await nothing(reader, 0.0)
    away.back.set()
    await until(lambda: away.error is None)
    with pytest.raises(Unavailable, match="made by the test"):
        await reader.read(HANG_SECONDS)
    assert (await reader.read(HANG_SECONDS)).event == left[0]
    await asking
    asking = await handed_out(reader, group, "d")
    away.back.clear()
    await nothing(reader, 0.0)
    await group.reader_offline("one")
    away.back.set()
    for _ in range(2):
        with pytest.raises(Conflict, match="not in group"):
            await reader.read(HANG_SECONDS)
    await asking


@pytest.mark.parametrize("way", ["cancelled", "timed out"])
def test_reader_closes_while_a_round_is_in_progress(way, tmp_path):
    @on_node
    async def test(local):
        group, reader, left, asking = await at_a_checkpoint(local)
        away = Away(reader)
        if way == "cancelled":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await reader.read()
        else:
            await nothing(reader, 0.0)
        reader._shared.update = away._update
        async with asyncio.timeout(HANG_SECONDS):
            await reader.close()
            await asking
        with pytest.raises(Invalid, match="closed"):
            await reader.read()
        other = await group.reader("two")
        assert (await other.read_batch(timeout=HANG_SECONDS)).events == left
        await other.close()

    test(tmp_path)


@on_node
async def test_client_closes_while_a_read_waits_for_the_store(local):
    _, reader, _, asking = await at_a_checkpoint(local)
    away = Away(reader)
    reading = asyncio.create_task(reader.read())
    await until(lambda: away.asked)
    asking.cancel()
    async with asyncio.timeout(HANG_SECONDS):
        await local.client.close()
        with pytest.raises(Invalid, match="the client was closed"):
            await reading


@on_node
async def test_to_ask_for_no_events_is_refused(local):
    await local.client.create_stream("s/t")
    events = await fill(local.client, "s/t", 3)
    group = await local.client.reader_groups.create("s/g", "s/t")
    async with await group.reader("one") as reader:
        for most in (0, -1):
            with pytest.raises(Invalid, match="give 1 or more"):
                await reader.read_batch(most, HANG_SECONDS)
        assert (await reader.read_batch(1, HANG_SECONDS)).events == events[:1]


@on_node
async def test_failure_of_the_heartbeat_task_is_raised_by_read(local):
    """An unexpected error was logged, and after it the reader got no segment and no checkpoint any more."""
    await local.client.create_stream("s/t")
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
    reader = await group.reader("one")
    await fill(local.client, "s/t", 1)
    assert await reader.read(HANG_SECONDS) is not None

    async def broken():
        raise RuntimeError("a bug")

    reader._shared.fetch = broken
    async with asyncio.timeout(HANG_SECONDS):
        with pytest.raises(RuntimeError, match="a bug"):
            await reader.read(None)
