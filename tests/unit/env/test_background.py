"""Background tasks: a failure is reported once, and closing leaves none behind."""

from __future__ import annotations

import asyncio
import gc
import logging

from sarit.env.background import Background

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
