"""Background jobs: two workers that both believe that a job is theirs do its steps once, and one of them ends."""

import asyncio
from types import SimpleNamespace

import pytest

from sarit.controller.jobs import ClaimedJob, JobKey, JobTable
from sarit.controller.keys import JOBS_TABLE
from sarit.controller.limits import MAX_JOB_STATE_BYTES
from sarit.controller.ports import TableUpdate
from sarit.core.errors import Corrupt, Exists, Fenced, Invalid, NotFound, Unavailable
from sarit.core.names import StreamName
from sarit.process import worker_role
from sarit.process.worker_role import WorkerRole
from sarit.wire.limits import NO_VERSION
from tests.limits import HANG_SECONDS
from tests.unit.controller.fakes import FakeTables, flaky

KEY = JobKey("count", StreamName("s", "t"), "a")
LAST = 20


class Count:
    """Counts to LAST; what it notes outside counts where its state was saved."""

    def __init__(self) -> None:
        self.attempted: list[tuple[int, int]] = []
        self.saved: list[int] = []

    async def run(self, claimed: ClaimedJob) -> None:
        for number in range(int(claimed.job.state or b"0") + 1, LAST + 1):
            self.attempted.append((number, claimed.job.fence))
            await asyncio.sleep(0)
            await claimed.save(b"%d" % number)
            self.saved.append(number)


def env():
    return SimpleNamespace(clock=SimpleNamespace(monotonic=lambda: 0.0))


def worker(tables, kind, mine=lambda _: True) -> WorkerRole:
    return WorkerRole(tables, {"count": kind}, env(), mine)


async def finished(tables) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while {job.key: job.state for job in await JobTable(tables).list()}[KEY] != b"%d" % LAST:
            await asyncio.sleep(0)


def test_row_has_the_bytes_of_the_document():
    async def main():
        tables = FakeTables()
        await JobTable(tables).create(KEY, b"{}")
        for _ in range(3):
            claimed = await JobTable(tables).claim(KEY)
        await claimed.save(b"at 7")
        (row,) = tables.tables[JOBS_TABLE].items()
        assert row[0] == b"count/s/t/a"
        assert row[1].value == bytes.fromhex("01 03 02 7b7d 61742037")
        assert await JobTable(tables).list() == [claimed.job]

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(8))
def test_two_workers_that_have_one_job_do_each_step_once(seed, monkeypatch):
    monkeypatch.setattr(worker_role, "JOB_RETRY_SECONDS", 0.0)

    async def main():
        tables = FakeTables()
        await JobTable(tables).create(KEY)
        tables.faults = flaky(seed, 0.1)
        kind = Count()
        workers = [worker(tables, kind), worker(tables, kind)]
        for each in workers:
            while True:
                try:
                    await each.round()
                    break
                except Unavailable:
                    continue
        for _ in range(20 * seed):
            await asyncio.sleep(0)
        tables.faults = flaky(seed, 0.0)
        await finished(tables)
        for each in workers:
            await each.stop()
        # A save whose answer was lost has counted, so its number is not saved again.
        assert kind.saved == sorted(set(kind.saved))
        assert {number for number, _ in kind.attempted} == set(range(1, LAST + 1))

    asyncio.run(main())


def test_worker_whose_job_was_claimed_cannot_save():
    async def main():
        tables = FakeTables()
        await JobTable(tables).create(KEY)
        first = await JobTable(tables).claim(KEY)
        second = await JobTable(tables).claim(KEY)
        await second.save(b"1")
        with pytest.raises(Fenced, match="another worker's now"):
            await first.save(b"2")
        assert (await JobTable(tables).list())[0].state == b"1"
        assert second.job.fence == first.job.fence + 1

    asyncio.run(main())


def test_jobs_of_other_buckets_and_of_unknown_kinds_are_left_alone_and_leave_with_their_bucket():
    async def main():
        tables, kind, mine = FakeTables(), Count(), {"s/t"}
        jobs = JobTable(tables)
        subject = worker(tables, kind, mine.__contains__)
        await subject.round()  # without a table there is nothing to do
        other = JobKey("count", StreamName("s", "other"), "a")
        for key in (KEY, other, JobKey("unknown", StreamName("s", "t"), "a")):
            await jobs.create(key)
        await subject.round()
        await finished(tables)
        assert set(subject._running) == {KEY}
        mine.clear()
        await subject.round()
        assert not subject._running
        await subject.stop()
        assert [job.fence for job in await jobs.list()] == [0, 1, 0]

    asyncio.run(main())


def test_deleted_job_ends_its_worker():
    async def main():
        tables = FakeTables()
        jobs = JobTable(tables)
        await jobs.create(KEY)
        claimed = await jobs.claim(KEY)
        await jobs.delete(KEY)
        with pytest.raises(Fenced):
            await claimed.save(b"1")
        for call in (jobs.delete, jobs.claim):
            with pytest.raises(NotFound):
                await call(KEY)

    asyncio.run(main())


def test_what_cannot_be_a_job_is_refused():
    async def main():
        tables = FakeTables()
        jobs = JobTable(tables)
        await jobs.create(KEY)
        with pytest.raises(Exists):
            await jobs.create(KEY)
        for wrong in ("", "A", "a/b", "a" * 65):
            with pytest.raises(Invalid, match="is no name of a job"):
                await jobs.create(JobKey(wrong, KEY.stream, "a"))
        claimed = await jobs.claim(KEY)
        with pytest.raises(Invalid, match="the most is"):
            await claimed.save(bytes(MAX_JOB_STATE_BYTES + 1))
        for damaged in (b"", b"\2\0\0", b"\1\0\5ab"):
            await tables.update(JOBS_TABLE, [TableUpdate(b"count/s/t/b", damaged, NO_VERSION)])
            with pytest.raises(Corrupt, match="the row of a job is damaged"):
                await jobs.list()

    asyncio.run(main())
