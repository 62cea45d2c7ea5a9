"""Notifications of the memory budget's limits: no wake-up is lost, and nothing polls."""

import asyncio

import pytest

from sarit.core.errors import Unavailable
from sarit.store.flow_control.control_limit import ControlLimit
from sarit.store.flow_control.memory_budget import MemoryBudget
from tests.limits import HANG_SECONDS
from tests.unit.store.flow_control.test_append_gate import LIMITS, OTHER, until
from tests.unit.store.harness import World, Writer
from tests.unit.store.server.test_connection import SEGMENT

BOUND = 1000


class Charge:
    """What a container holds."""

    def __init__(self, charged_bytes):
        self.charged_bytes = charged_bytes


def budget_at(charged_bytes):
    budget = MemoryBudget(BOUND, 0)
    budget.report(0, Charge(charged_bytes))
    return budget


@pytest.mark.parametrize(
    ("subscribe", "limit"), [("notify_below_append_limit", BOUND), ("notify_below_control_limit", BOUND * 5 // 4)]
)
def test_fall_below_a_limit_notifies_once(subscribe, limit):
    budget, calls = budget_at(limit + 10), []
    getattr(budget, subscribe)(lambda: calls.append("called"))
    budget.report(0, Charge(limit))
    assert not calls, "still at the limit"
    budget.report(0, Charge(limit - 1))
    assert calls == ["called"]
    budget.report(0, Charge(0))
    assert calls == ["called"], "once for each subscription"


def test_forgotten_container_notifies():
    budget, calls = budget_at(BOUND), []
    budget.notify_below_append_limit(lambda: calls.append("append"))
    budget.notify_below_control_limit(lambda: calls.append("control"))
    budget.forget(0)
    assert calls == ["append", "control"]


def test_free_disk_notifies_unless_memory_is_over_the_limit():
    budget, calls = budget_at(BOUND - 1), []
    budget.disk_full = True
    assert budget.over_append_limit
    budget.notify_below_append_limit(lambda: calls.append("append"))
    budget.report(0, Charge(BOUND - 2))
    assert not calls, "the disk is full"
    budget.report(0, Charge(BOUND))
    budget.disk_full = False
    assert not calls, "memory is over the limit"
    budget.disk_full = True
    budget.report(0, Charge(BOUND - 1))
    assert not calls, "the disk is full again"
    budget.disk_full = False
    assert calls == ["append"]


def test_rise_above_the_append_limit_wakes_the_flushers_once():
    calls = []
    budget = MemoryBudget(BOUND, 0, on_over_append_limit=lambda: calls.append(budget.charged_bytes))
    for charged in (BOUND - 1, BOUND, BOUND + 5, BOUND + 1, BOUND - 1, BOUND):
        budget.report(0, Charge(charged))
    assert calls == [BOUND, BOUND]


def without_timers(store):
    """End the store's background work: what happens now is by notification."""
    for task in list(store._background._tasks):
        task.cancel()


async def throttled_store():
    """A store over its append limit, and a writer with three throttled appends; no timer runs."""
    store = await World(limits=LIMITS).start()
    without_timers(store)
    container = store.container(SEGMENT)
    for name in (SEGMENT, OTHER):
        await container.create(name)
    container.state.dirty.add_operation(200_000)
    container._report()
    writer = Writer(store, SEGMENT)
    await writer.set_up()
    for number in (1, 2, 3):
        writer.append(b"x" * 1000, number)
    assert container.throttled == 3
    return store, container, writer


def test_appends_are_released_when_another_container_frees_the_memory():
    async def main():
        store, container, writer = await throttled_store()
        store.budget.report(77, Charge(500_000))
        container.state.dirty.add_operation(-200_000)
        container._report()
        await asyncio.sleep(0.01)
        assert container.throttled == 3
        store.budget.forget(77)
        assert container.throttled == 3, "not from inside the report"
        await until(lambda: len(writer.replies.acknowledgements) == 3)

    asyncio.run(main())


def test_appends_left_by_one_fall_are_released_by_the_next():
    async def main():
        store, container, writer = await throttled_store()
        container.state.dirty.add_operation(-200_000)
        store.budget.report(77, Charge(100_000 - container.state.dirty.charged_bytes - 1))
        container._report()
        await until(lambda: container.throttled == 2)
        await asyncio.sleep(0.01)
        assert container.throttled == 2
        store.budget.forget(77)
        await until(lambda: [number for number, *_ in writer.replies.acknowledgements] == [1, 2, 3])

    asyncio.run(main())


def test_append_after_throttled_ones_waits_also_below_the_limit():
    async def main():
        store, container, writer = await throttled_store()
        container.state.dirty.add_operation(-200_000)
        container._report()
        assert not store.budget.over_append_limit
        writer.append(b"x", 4)
        assert container.throttled == 4
        await until(lambda: [number for number, *_ in writer.replies.acknowledgements] == [1, 2, 3, 4])

    asyncio.run(main())


def test_frame_that_becomes_durable_over_the_limit_wakes_the_flusher():
    """Else a flusher that found nothing applied yet waited for its interval, and all appends of the node with it."""

    async def main():
        store = await World(limits=LIMITS).start()
        without_timers(store)
        container = store.container(SEGMENT)
        await container.create(SEGMENT)
        writer, lengths = Writer(store, SEGMENT), []
        await writer.set_up()
        container._wake_flusher = lambda: lengths.append(container.state.names[SEGMENT].length)
        writer.append(b"x" * 10, 1)
        await writer.wait_for_replies()
        assert not lengths, "below the limit"
        writer.append(b"x" * 200_000, 2)
        await writer.wait_for_replies()
        assert lengths == [200_010], "applied by then"

    asyncio.run(main())


class Log:
    short_of_space = False


async def waits(limit):
    waiting = asyncio.ensure_future(limit.wait_below("s/t"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    return waiting


def test_control_operations_continue_when_the_budget_falls_below_their_limit():
    async def main():
        budget = budget_at(2 * BOUND)
        limit = ControlLimit(budget, Log())
        waiting = [await waits(limit) for _ in range(3)]
        budget.report(0, Charge(BOUND))
        async with asyncio.timeout(HANG_SECONDS):
            await asyncio.gather(*waiting)

    asyncio.run(main())


def test_control_operations_wait_for_both_memory_and_disk():
    async def main():
        budget, log = budget_at(2 * BOUND), Log()
        limit = ControlLimit(budget, log)
        log.short_of_space = True
        waiting = await waits(limit)
        budget.report(0, Charge(0))
        await asyncio.sleep(0.01)
        assert not waiting.done(), "the log is short of space"
        budget.report(0, Charge(2 * BOUND))
        log.short_of_space = False
        limit.recheck()
        await asyncio.sleep(0.01)
        assert not waiting.done(), "memory is over the limit again"
        budget.report(0, Charge(0))
        async with asyncio.timeout(HANG_SECONDS):
            await waiting

    asyncio.run(main())


def test_control_operations_of_a_failed_container_wait_no_longer():
    async def main():
        store = await World(limits=LIMITS).start()
        without_timers(store)
        container = store.container(SEGMENT)
        await container.create(SEGMENT)
        container.state.dirty.add_operation(200_000)
        container._report()
        creating = asyncio.ensure_future(container.create(OTHER))
        await asyncio.sleep(0.01)
        assert not creating.done()
        store.budget.report(77, Charge(500_000))  # the failure alone does not bring the node below its limit
        container.fail(Unavailable("a test"))
        with pytest.raises(Unavailable):
            async with asyncio.timeout(HANG_SECONDS):
                await creating

    asyncio.run(main())


def test_cancelled_waiter_is_removed():
    async def main():
        limit = ControlLimit(budget_at(2 * BOUND), Log())
        waiting = await waits(limit)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert repr(limit) == "<ControlLimit, 0 wait>"

    asyncio.run(main())
