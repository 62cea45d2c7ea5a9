"""Background jobs: two workers that both believe that a job is theirs do its steps once, and one of them ends."""

import asyncio
import copy
import itertools
import random
from contextlib import suppress
from dataclasses import replace

import pytest

from sarit.controller import jobs as jobs_module
from sarit.controller import keys
from sarit.controller.assignment import Assignment
from sarit.controller.calls.jobs import JobCalls
from sarit.controller.catalog import Catalog
from sarit.controller.jobs import Job, JobKey, JobTable
from sarit.controller.limits import MAX_JOB_SETTINGS_BYTES, MAX_JOB_STATE_BYTES, MAX_JOBS_OF_STREAM
from sarit.controller.ports import TableUpdate
from sarit.core.cuts import StreamCut
from sarit.core.errors import Corrupt, Exists, Fenced, Invalid, NotFound, Unavailable
from sarit.core.names import SegmentId, StreamName
from sarit.process import worker_role
from sarit.process.job_kinds import GivenKinds
from sarit.process.limits import JOB_HOLDER_GRACE_SECONDS
from sarit.process.worker_role import WorkerRole
from sarit.rpc.generated import sarit_pb2 as pb
from sarit.wire.limits import NO_VERSION
from tests.limits import HANG_SECONDS
from tests.unit.controller.fakes import Faults, crash_at, fake_env, flaky
from tests.unit.controller.test_service import controller as service
from tests.unit.controller.world import STREAM, World, config, run, stream_with

KEY = JobKey("count", STREAM, "a")
LAST = 12
A, B = ("a", 1), ("b", 1)


class History(dict):
    """A table of a scope that remembers what was written of KEY's progress."""

    def __init__(self, rows) -> None:
        super().__init__(rows)
        self.jobs: list[Job] = []

    def __setitem__(self, key, value) -> None:
        super().__setitem__(key, value)
        if key == KEY.rows()[1]:
            self.jobs.append(decoded(value.value))


def decoded(progress: bytes) -> Job:
    row = jobs_module._decode_progress(progress)
    return Job(KEY, b"", row.state, row.fence, row.holder, row.done, row.held, row.problem)


class Count:
    """Counts to LAST, a step at a time."""

    def __init__(self) -> None:
        self.starts = 0

    async def __call__(self, job, save) -> None:
        self.starts += 1
        for number in range(int(job.state or b"0") + 1, LAST + 1):
            await asyncio.sleep(0)
            await save(b"%d" % number)


class Installation:
    """A stream, and the workers of its jobs; each may know other workers than there are."""

    def __init__(self, monkeypatch=None) -> None:
        if monkeypatch is not None:
            monkeypatch.setattr(worker_role, "JOB_RETRY_SECONDS", 0.0)
        self.world = World()
        self.count = Count()
        self.known: dict[tuple[str, int], list[tuple[str, int]]] = {}

    async def start(self) -> None:
        self.controller = await self.world.controller()
        await stream_with(self.controller)
        self.jobs = JobTable(self.controller.catalog)
        table = keys.scope_table("s", (await self.controller.catalog.scope("s"))[0].incarnation)
        self.history = self.world.tables.tables[table] = History(self.world.tables.tables[table])

    def worker(self, me=A, knows=(A,), runners=None, faults: Faults | None = None) -> WorkerRole:
        self.known[me] = list(knows)
        tables = copy.copy(self.world.tables)
        tables.faults = faults or Faults()
        assignment = Assignment(lambda: me, lambda: self.known[me])
        return WorkerRole(Catalog(tables), runners or {"count": self.count}, self.world.env, assignment)

    async def until(self, workers, condition) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            while not condition():
                for each in workers:
                    await round_of(each)
                await asyncio.sleep(0)

    @property
    def last(self) -> Job:
        return self.history.jobs[-1]

    def index(self) -> list[bytes]:
        return list(self.world.tables.tables[keys.JOBS_TABLE])


async def round_of(worker: WorkerRole) -> None:
    try:
        await worker.round()
    except Unavailable:
        return


def owner_of_bucket() -> tuple[str, int]:
    return A if Assignment(lambda: A, lambda: [A, B]).is_mine(str(STREAM)) else B


def test_rows_have_the_bytes_of_the_document():
    async def main():
        site = Installation()
        await site.start()
        await site.jobs.create(KEY, b"{}")
        for _ in range(3):
            claim = await site.jobs.claim(await site.jobs.find(KEY), "h:9")
        await claim.save(b"at 7")
        assert site.index() == [b"s/t/count/a"]
        assert site.history[b"o/t/j/count/a"].value == bytes.fromhex("01 7b7d")
        assert site.history[b"o/t/s/count/a"].value == bytes.fromhex("01 00 03 0003 683a39 0000 00 61742037")
        assert await site.jobs.list(STREAM) == [claim.job]
        assert claim.job == Job(KEY, b"{}", b"at 7", 3, "h:9")
        await claim.save(b"at 8", StreamCut(STREAM, {SegmentId(0, 1): 9}))
        await claim.fail("no\nluck")
        assert site.history[b"o/t/s/count/a"].value == bytes.fromhex(
            "01 00 03 0003 683a39 0007 6e6f206c75636b 01 01 0000000000000001 0000000000000009 61742038"
        )
        assert (await site.jobs.list(STREAM))[0] == Job(KEY, b"{}", b"at 8", 3, "h:9", False, {1: 9}, "no luck")

    run(main())


@pytest.mark.parametrize("seed", range(30))
def test_workers_that_die_and_disagree_do_each_step_once_and_no_step_after_the_end(seed, monkeypatch):
    async def main():
        rng = random.Random(seed)
        site = Installation(monkeypatch)
        await site.start()
        await site.jobs.create(KEY)
        workers = {me: site.worker(me, (A, B), faults=flaky(seed + me[1], 0.1)) for me in (A, B)}
        for _ in range(60):
            me = rng.choice((A, B))
            match rng.randrange(6):
                case 0:  # it dies wherever it is, between work and save, too, and starts again under its name
                    await workers[me].stop()
                    workers[me] = site.worker(me, site.known[me], faults=flaky(rng.randrange(1000), 0.1))
                case 1:
                    site.known[me] = rng.choice(([A, B], [me]))
                case 2:
                    site.world.pass_time(rng.choice((1.0, JOB_HOLDER_GRACE_SECONDS)))
                case _:
                    await round_of(workers[me])
            for _ in range(rng.randrange(12)):
                await asyncio.sleep(0)
        for me in (A, B):
            await workers[me].stop()
            workers[me] = site.worker(me, (A, B))
        site.world.pass_time(JOB_HOLDER_GRACE_SECONDS)
        await site.until(workers.values(), lambda: site.last.done and not site.index())
        check(site.history.jobs)
        starts = site.count.starts
        for _ in range(5):
            for each in workers.values():
                await each.round()
                await asyncio.sleep(0)
        assert site.count.starts == starts
        for each in workers.values():
            await each.stop()

    run(main())


def check(written: list[Job]) -> None:
    for before, after in itertools.pairwise(written):
        assert not before.done, "something was written of a job that is done"
        steps = int(after.state or b"0") - int(before.state or b"0")
        assert steps in (0, 1), "a step was lost, or done twice"
        if after.fence == before.fence:
            assert after.holder in (before.holder, ""), "two workers share a fence"
            noted = after.problem != before.problem
            assert steps or noted or not after.holder, "a claim raised no fence"
        else:
            assert (after.fence, steps) == (before.fence + 1, 0), "a worker saved after another one's claim"
    assert written[-1].state == b"%d" % LAST


def test_worker_whose_job_was_claimed_cannot_save_nor_finish_nor_release():
    async def main():
        site = Installation()
        await site.start()
        await site.jobs.create(KEY)
        found = await site.jobs.find(KEY)
        first = await site.jobs.claim(found, "a:1")
        with pytest.raises(Fenced, match="another worker's now"):
            await site.jobs.claim(found, "b:1")  # as it was before the first one
        second = await site.jobs.claim(await site.jobs.find(KEY), "b:1")
        await second.save(b"1")
        for write in (first.save(b"2"), first.finish(), site.jobs.release(found)):
            with pytest.raises(Fenced, match="another worker's now"):
                await write
        assert (await site.jobs.list(STREAM))[0] == second.job
        assert second.job.fence == first.job.fence + 1

    run(main())


def test_job_is_left_to_a_holder_that_lives_until_it_hands_it_over(monkeypatch):
    async def main():
        site = Installation(monkeypatch)
        await site.start()
        await site.jobs.create(KEY)
        go_on = asyncio.Event()

        async def waiting(job, save) -> None:
            await go_on.wait()
            await save(b"%d" % LAST)

        heir = owner_of_bucket()
        holder = A if heir == B else B
        first = site.worker(holder, (holder,), {"count": waiting})  # it does not know of the other one yet
        await site.until([first], lambda: site.last.fence == 1)
        second = site.worker(heir, (A, B), {"count": waiting})
        for _ in range(200):
            await first.round()
            await second.round()
            site.world.pass_time(JOB_HOLDER_GRACE_SECONDS / 300)
        assert site.last.fence == 1
        site.known[holder] = [A, B]
        await site.until([first, second], lambda: site.last.fence == 2)
        assert [each.holder for each in site.history.jobs[-2:]] == ["", f"{heir[0]}:1"]
        go_on.set()
        await site.until([first, second], lambda: site.last.done)
        for each in (first, second):
            await each.stop()

    run(main())


@pytest.mark.parametrize("turns", range(8))
def test_job_is_handed_over_in_the_middle_of_a_save(turns, monkeypatch):
    async def main():
        site = Installation(monkeypatch)
        await site.start()
        await site.jobs.create(KEY)

        async def endless(job, save) -> None:
            while True:
                await save(b"1")

        heir = owner_of_bucket()
        holder = A if heir == B else B
        workers = [site.worker(holder, (holder,), {"count": endless}), site.worker(heir, (A, B), {"count": endless})]
        await site.until(workers[:1], lambda: site.last.state == b"1")
        site.known[holder] = [A, B]
        for _ in range(turns):
            await asyncio.sleep(0)
        await site.until(workers, lambda: site.last.fence == 2)  # no time passes
        for each in workers:
            await each.stop()

    run(main())


def test_job_of_a_holder_that_started_again_and_knows_nothing_of_it_is_claimed_in_the_end(monkeypatch):
    async def main():
        site = Installation(monkeypatch)
        await site.start()
        await site.jobs.create(KEY)
        heir = owner_of_bucket()
        other = A if heir == B else B
        await site.jobs.claim(await site.jobs.find(KEY), f"{other[0]}:1")
        subject = site.worker(heir, (A, B))
        for _ in range(50):
            await subject.round()
        assert site.last.fence == 1
        site.world.pass_time(JOB_HOLDER_GRACE_SECONDS)
        await site.until([subject], lambda: site.last.done)
        await subject.stop()

    run(main())


def test_round_without_a_change_is_one_request_however_many_jobs_there_are():
    async def main():
        site = Installation()
        await site.start()

        async def idle(job, save) -> None:
            await save(b"1")
            await asyncio.Event().wait()

        for number in range(MAX_JOBS_OF_STREAM):
            await site.jobs.create(replace(KEY, name=f"n{number}"))
        faults = Faults()
        subject = site.worker(runners={"count": idle}, faults=faults)
        await subject.round()
        while any(job.state != b"1" for job in await site.jobs.list(STREAM)):
            await asyncio.sleep(0)
        faults.calls.clear()
        for _ in range(3):
            await subject.round()
        assert faults.calls == [f"tables.position {keys.JOBS_TABLE}"] * 3
        await subject.stop()

    run(main())


def test_jobs_of_other_buckets_and_of_unknown_kinds_are_left_alone():
    async def main():
        site = Installation()
        await site.start()
        subject = site.worker()
        await subject.round()  # without a table there is nothing to do
        await site.jobs.create(KEY)
        await site.jobs.create(replace(KEY, kind="unknown"))
        site.known[A] = [B]
        await subject.round()
        assert not subject._works
        site.known[A] = [A]
        await site.until([subject], lambda: site.last.done)
        assert [job.fence for job in await site.jobs.list(STREAM)] == [1, 0]
        await subject.stop()

    run(main())


NAMES = [
    ("s", "t/j"),
    ("s", "t/j/count"),
    ("s", ""),
    ("s", "none"),
    ("s/t", "u"),
    ("", "t"),
    ("none", "t"),
    ("s", "\0"),
]


@pytest.mark.parametrize(("scope", "stream"), NAMES)
def test_job_of_a_stream_that_cannot_be_leaves_no_entry(scope, stream):
    async def main():
        site = Installation()
        await site.start()
        calls = JobCalls(site.controller.catalog, site.jobs, GivenKinds({"count": site.count}))
        named = {"scope": scope, "stream": stream}
        key = {**named, "kind": "count", "name": "a"}
        for call, request in (
            (calls.createJob, pb.CreateJobRequest(**key)),
            (calls.deleteJob, pb.DeleteJobRequest(**key)),
            (calls.listJobs, pb.ListJobsRequest(**named)),
        ):
            with pytest.raises((NotFound, Invalid)):
                await call(request)
        assert keys.JOBS_TABLE not in site.world.tables.tables

    run(main())


def test_job_that_does_not_end_delays_no_stop(monkeypatch, caplog):
    async def main():
        monkeypatch.setattr(worker_role, "JOB_STOP_SECONDS", 0.05)
        site = Installation(monkeypatch)
        await site.start()
        await site.jobs.create(KEY)
        released, runs = asyncio.Event(), asyncio.Event()

        async def stubborn(job, save):
            runs.set()
            while not released.is_set():
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.2)

        worker = site.worker(runners={"count": stubborn})
        await worker.round()
        await runs.wait()
        async with asyncio.timeout(HANG_SECONDS):
            await worker.stop()
        assert "1 jobs have not stopped after 0 s, as ['s/t/count/a']" in caplog.text
        released.set()

    run(main())


def test_jobs_go_with_their_stream_and_a_stream_made_again_has_none(monkeypatch):
    async def main():
        site = Installation(monkeypatch)
        await site.start()
        await site.jobs.create(KEY)
        claim = await site.jobs.claim(await site.jobs.find(KEY), "a:1")
        await site.controller.streams.seal(STREAM)
        await site.jobs.create(replace(KEY, name="b"))  # a sealed stream may be copied
        await site.controller.streams.delete(STREAM)
        with pytest.raises(Fenced, match="is gone"):
            await claim.save(b"1")
        with pytest.raises(NotFound, match="stream s/t does not exist"):
            await site.jobs.create(KEY)
        await site.controller.streams.create(STREAM, config())
        assert await site.jobs.list(STREAM) == []
        await site.jobs.create(KEY)
        with pytest.raises(Fenced, match="another worker's now"):
            await claim.save(b"1")
        await site.controller.scopes.delete_recursive("s")
        with pytest.raises(Fenced):
            await claim.save(b"1")
        subject = site.worker()  # what the index still has is removed
        await site.until([subject], lambda: not site.index())
        assert site.count.starts == 0
        await subject.stop()

    run(main())


def test_save_of_a_deleted_scope_does_not_reach_the_one_made_again():
    async def main():
        site = Installation()
        await site.start()
        await site.jobs.create(KEY)
        claim = await site.jobs.claim(await site.jobs.find(KEY), "a:1")
        await site.controller.scopes.delete_recursive("s")
        site.world.tables._position[0] = 0  # versions of another table may be the same
        await stream_with(site.controller)
        await site.jobs.create(KEY)
        found = await site.jobs.find(KEY)
        claim._version = found.version
        with pytest.raises(Fenced):
            await claim.save(b"old")
        assert await site.jobs.find(KEY) == found

    run(main())


def test_deleted_job_ends_its_worker_and_may_be_made_again(monkeypatch):
    async def main():
        site = Installation(monkeypatch)
        await site.start()
        await site.jobs.create(KEY)
        stopped = asyncio.Event()

        async def endless(job, save) -> None:
            try:
                while True:
                    await asyncio.sleep(0)
                    await save(b"%d" % job.fence)
            finally:
                stopped.set()

        subject = site.worker(runners={"count": endless})
        await site.until([subject], lambda: site.last.state == b"1")
        await site.jobs.delete(KEY)
        await site.until([subject], lambda: stopped.is_set() and not subject._works)
        with pytest.raises(NotFound, match="job s/t/count/a does not exist"):
            await site.jobs.delete(KEY)
        await site.jobs.create(KEY)
        await site.until([subject], lambda: site.last.fence == 1 and site.last.state == b"1")
        await subject.stop()

    run(main())


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(1, 9))
def test_creation_that_ended_anywhere_is_completed_by_its_repetition(number, after, monkeypatch):
    async def main():
        site = Installation(monkeypatch)
        await site.start()
        subject = site.worker()
        tables = copy.copy(site.world.tables)
        tables.faults = crash_at(number, after=after)
        try:
            await JobTable(Catalog(tables)).create(KEY, b"x")
        except BaseException as error:  # Crash is no Exception
            if type(error).__name__ != "Crash":
                raise
        await subject.round()
        for _ in range(20):  # what is entered and not there yet is removed
            await asyncio.sleep(0)
        try:
            await site.jobs.create(KEY, b"x")
        except Exists:
            assert (await site.jobs.find(KEY)).job.settings == b"x"
        await site.until([subject], lambda: site.history.jobs and site.last.done and not site.index())
        await subject.stop()

    run(main())


def test_what_cannot_be_a_job_is_refused():
    async def main():
        site = Installation()
        await site.start()
        jobs = site.jobs
        for wrong in ("", "A", "a/b", "a" * 65):
            with pytest.raises(Invalid, match="is no name of a job"):
                await jobs.create(replace(KEY, name=wrong))
        for missing in (StreamName("s", "other"), StreamName("other", "t")):
            with pytest.raises(NotFound, match="does not exist"):
                await jobs.create(replace(KEY, stream=missing))
        assert keys.JOBS_TABLE not in site.world.tables.tables
        with pytest.raises(Invalid, match="the most is"):
            await jobs.create(KEY, bytes(MAX_JOB_SETTINGS_BYTES + 1))
        await jobs.create(KEY)
        with pytest.raises(Exists, match="job s/t/count/a exists"):
            await jobs.create(KEY)
        claim = await jobs.claim(await jobs.find(KEY), "a:1")
        with pytest.raises(Invalid, match="the most is"):
            await claim.save(bytes(MAX_JOB_STATE_BYTES + 1))
        await claim.save(bytes(MAX_JOB_STATE_BYTES))
        for number in range(1, MAX_JOBS_OF_STREAM):
            await jobs.create(replace(KEY, name=f"n{number}"))
        with pytest.raises(Invalid, match="which is the limit: delete some"):
            await jobs.create(replace(KEY, name="more"))
        assert len(await jobs.list(STREAM)) == MAX_JOBS_OF_STREAM
        for row, damaged in ((0, b""), (0, b"\2"), (1, b""), (1, b"\2\0\0"), (1, b"\1\0\1\0\5ab")):
            key = replace(KEY, name=f"n{1 + row}")
            await site.controller.catalog.update("s", [TableUpdate(key.rows()[row], damaged, NO_VERSION)])
            for read in (jobs.find(key), jobs.list(STREAM)):
                with pytest.raises(Corrupt, match="the record of job s/t/count/n[12] is damaged"):
                    await read
        await site.world.tables.update(keys.JOBS_TABLE, [TableUpdate(b"x", b"", NO_VERSION)])
        with pytest.raises(Corrupt, match="the index of jobs is damaged"):
            await jobs.entries()

    run(main())


def test_job_runs_on_the_tables_of_a_store_and_goes_with_its_stream():
    async def main():
        async with service() as stub:
            controller = stub.subject
            await controller.streams.create(STREAM, config())
            jobs, count = JobTable(controller.catalog), Count()
            for name in ("a", "b"):
                await jobs.create(replace(KEY, name=name), b"{}")
            subject = WorkerRole(controller.catalog, {"count": count}, fake_env(), controller.assignment)
            await subject.round()
            while await jobs.entries():
                await asyncio.sleep(0)
            assert [(job.key.name, job.state, job.done) for job in await jobs.list(STREAM)] == [
                ("a", b"12", True), ("b", b"12", True),
            ]  # fmt: skip
            await jobs.delete(KEY)
            assert len(await jobs.list(STREAM)) == 1
            await controller.streams.seal(STREAM)
            await controller.streams.delete(STREAM)
            assert await jobs.list(STREAM) == []
            await controller.scopes.delete("s")
            await subject.stop()

    run(main())
