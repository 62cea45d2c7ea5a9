"""Background tasks: a failure is reported once, and closing leaves none behind."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from sarit.env.background import Background, gather, ignore_outcome, shielded

_log = logging.getLogger("sarit.test")


async def _fail():
    raise ValueError("broken")


def test_background_reports_a_failure_and_not_an_end_or_a_cancel(caplog):
    async def main():
        tasks = Background.critical(_log, "the work")
        ended = tasks.spawn(asyncio.sleep(0))
        cancelled = tasks.spawn(asyncio.Event().wait())
        failed = tasks.spawn(_fail(), "name")
        cancelled.cancel()
        await asyncio.wait([ended, cancelled, failed])
        assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
            ("CRITICAL", "the work failed: internal error; restart this process")
        ]
        assert failed.get_name() == "name"

    asyncio.run(main())


def test_background_keeps_tasks_that_nobody_else_refers_to():
    async def main():
        tasks = Background.critical(_log, "the work")
        done = asyncio.Event()

        async def wait():
            # Referred to by the task alone.
            await asyncio.get_running_loop().create_future()

        async def work():
            try:
                await wait()
            finally:
                done.set()

        tasks.spawn(work())
        await asyncio.sleep(0)
        gc.collect()
        await asyncio.sleep(0)
        assert not done.is_set()
        await tasks.close()
        assert done.is_set()

    asyncio.run(main())


def test_background_is_closed_by_one_of_its_tasks():
    async def main():
        tasks = Background.critical(_log, "the work")
        order = []

        async def wait(name):
            try:
                await asyncio.Event().wait()
            finally:
                order.append(name)

        async def close():
            await asyncio.sleep(0)
            await tasks.close()
            order.append("closed")

        tasks.spawn(wait("first"))
        tasks.spawn(wait("second"))
        await tasks.spawn(close())
        assert order == ["first", "second", "closed"]

    asyncio.run(main())


def test_gather_that_fails_in_the_turn_of_its_cancellation_is_cancelled():
    """`asyncio.gather` raises the error then, and whoever tries again after it would never end."""

    async def main():
        first, second = asyncio.Event(), asyncio.Event()

        async def fail():
            await first.wait()
            raise ValueError("broken")

        task = asyncio.ensure_future(gather(fail(), second.wait()))
        for _ in range(3):
            await asyncio.sleep(0)
        first.set()
        await asyncio.sleep(0)  # it has failed, and `gather` does not know it yet
        assert task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_gather_gives_the_results_in_order_and_the_first_error():
    async def main():
        assert await gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2)) == [1, 2]
        with pytest.raises(ValueError, match="broken"):
            await gather(asyncio.sleep(0), _fail())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await gather(asyncio.Event().wait())

    asyncio.run(main())


def test_shielded_work_goes_on_without_its_caller_and_its_failure_is_not_reported():
    async def main():
        reports = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context["message"]))
        begun, answer = asyncio.Event(), asyncio.Event()

        async def work():
            begun.set()
            await answer.wait()
            raise ValueError("broken")

        working = asyncio.ensure_future(work())
        working.add_done_callback(ignore_outcome)
        caller = asyncio.ensure_future(shielded(working))
        await begun.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        answer.set()
        with pytest.raises(ValueError, match="broken"):
            await shielded(working)
        with pytest.raises(ValueError, match="broken"):
            await shielded(working)  # it has ended
        assert reports == []

    asyncio.run(main())
