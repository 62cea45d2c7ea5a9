"""Counters of jobs by stream: after a failure, after progress, and when another worker has taken the job."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from sarit.core.cuts import StreamCut
from sarit.core.errors import Fenced, Unavailable
from sarit.core.names import SegmentId, StreamName
from sarit.env.real import real_env
from sarit.process.jobs.measured_jobs import MeasuredJobs
from sarit.search.statistics import IndexStatistics

STREAM = StreamName("shop", "orders")
CUT = StreamCut(STREAM, {SegmentId(0, 0): 70})
JOB = SimpleNamespace(key=SimpleNamespace(stream=STREAM), state=b"", settings=b"")


@pytest.fixture
def asked(monkeypatch):
    """The cuts behind which bytes were counted: there are 100."""
    cuts = []

    class Source:
        def __init__(self, session, stream, clock):
            assert stream == STREAM

        async def edge(self, which):
            return which

        async def bytes_behind(self, cut):
            cuts.append(cut)
            return 100

    monkeypatch.setattr("sarit.process.jobs.stream_source.StreamSource", Source)
    return cuts


def jobs(work, cut=None, committed_ms=0, settings=None):
    """Return jobs whose row says `cut` and `committed_ms`."""
    world = SimpleNamespace(env=real_env(), client=SimpleNamespace(session=None))
    state = SimpleNamespace(cut=cut, committed_ms=committed_ms)
    return MeasuredJobs(world, work, IndexStatistics, shown, lambda _: state, settings)


def shown(running, now_ms):
    return [(counted.problem, counted.lag_bytes, counted.behind_since_ms) for counted in running.values()]


async def failing(job, save, counters):
    raise Unavailable("no place")


async def saved(state, held=None):
    """Save nothing."""


@pytest.mark.parametrize("cut", [CUT, None])
def test_job_that_fails_says_why_and_how_far_it_is_behind(asked, cut):
    measured = jobs(failing, cut, committed_ms=7)
    with pytest.raises(Unavailable):
        asyncio.run(measured.run(JOB, saved))
    assert list(measured.samples()) == [("no place", 100, 7)]
    assert asked == [cut or "tail"]


def test_job_that_has_not_begun_is_behind_where_its_settings_begin(asked):
    measured = jobs(failing, settings=lambda _: SimpleNamespace(start="head"))
    with pytest.raises(Unavailable):
        asyncio.run(measured.run(JOB, saved))
    assert asked == ["head"]


def test_problem_ends_with_saved_progress_and_the_counters_go_on(asked):
    async def second(job, save, counters):
        assert counters.problem == "no place"
        await save(b"", None)
        assert counters.problem == ""

    works = iter([failing, second])

    async def work(job, save, counters):
        await next(works)(job, save, counters)

    measured = jobs(work, CUT)
    with pytest.raises(Unavailable):
        asyncio.run(measured.run(JOB, saved))
    asyncio.run(measured.run(JOB, saved))
    assert [counted[:2] for counted in measured.samples()] == [("", 100)]


@pytest.mark.parametrize("error", [Fenced("another worker"), asyncio.CancelledError()])
def test_series_of_a_job_that_was_taken_end_at_once(asked, error):
    async def work(job, save, counters):
        raise error

    measured = jobs(work)
    with pytest.raises(type(error)):
        asyncio.run(measured.run(JOB, saved))
    assert list(measured.samples()) == []
    assert asked == []
