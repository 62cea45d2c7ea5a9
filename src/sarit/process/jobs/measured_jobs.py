"""The shell of a kind of jobs that have counters by stream, for the metrics of the process.

The counters of a job outlive its runs here: a run that fails is repeated after a pause, and in the meantime its metrics
say why, and how far the job is behind.  Those of a job that another worker has taken, or that was deleted, end with it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from sarit.core.errors import Fenced, SaritError
from sarit.core.texts import cut_text
from sarit.process.limits import MAX_RUN_PROBLEM_CHARACTERS, SERIES_AFTER_END_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from sarit.admin.exposition import Sample
    from sarit.controller.jobs import Job, Save
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.process.job_kinds import JobWorld


class Counters(Protocol):
    """The counters of one job.

    `lag_bytes`: of the stream, behind the job's cut.  `behind_since_ms`: since when there is something behind; None:
    nothing is.  `problem`: the error that ended the last run; empty: progress was saved since."""

    lag_bytes: int
    behind_since_ms: int | None
    problem: str


class Progress(Protocol):
    """The state of a job, as its row has it."""

    @property
    def cut(self) -> StreamCut | None:
        """Return the cut before which all is done; None: nothing was begun."""

    @property
    def committed_ms(self) -> int:
        """Return when progress was saved last, since 1970; 0: never."""


class Settings(Protocol):
    """The settings of a job, as its row has them."""

    @property
    def start(self) -> str:
        """Return the edge of the stream at which the job begins: "head" or "tail"."""


_MS_PER_SECOND: Final = 1000

C = TypeVar("C", bound=Counters)


def lag_seconds(counters: Counters, now_ms: int) -> float:
    """Return how old the oldest of what a job has not done is."""
    since = counters.behind_since_ms
    return 0.0 if since is None else max(0, now_ms - since) / _MS_PER_SECOND


@dataclass(slots=True)
class _Measured(Generic[C]):
    """The counters of one stream's job in this process.  `ended`: when its last run ended; None: it runs."""

    counters: C
    ended: float | None = None


class MeasuredJobs(Generic[C]):
    """The jobs of one kind that run in this process, and their counters."""

    def __init__(
        self, world: JobWorld, work: Callable[[Job, Save, C], Awaitable[None]], counters: Callable[[], C],
        samples: Callable[[Mapping[StreamName, C], int], Iterable[Sample]],
        state: Callable[[bytes], Progress], settings: Callable[[bytes], Settings] | None = None,
    ) -> None:  # fmt: skip
        """`work`: runs a job.  `counters`: makes those of one.  `samples`: makes metrics of them, at a time since 1970.

        `state`: decodes the state of a job's row.  `settings`: decodes its settings; None: such jobs have none, and
        begin at the tail.  Both raise SaritError."""
        self._world = world
        self._work = work
        self._counters = counters
        self._samples = samples
        self._state = state
        self._settings = settings
        self._measured: dict[StreamName, _Measured[C]] = {}

    def __repr__(self) -> str:
        return f"<MeasuredJobs, {len(self._measured)} streams>"

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics of the jobs; of one that another process has taken, not for long."""
        clock = self._world.env.clock
        oldest = clock.monotonic() - SERIES_AFTER_END_SECONDS
        for stream in [s for s, each in self._measured.items() if each.ended is not None and each.ended < oldest]:
            del self._measured[stream]
        yield from self._samples({stream: each.counters for stream, each in self._measured.items()}, clock.wall_ms())

    async def run(self, job: Job, save: Save) -> None:
        """Run a job, and count what it does.  Raises what the work raises."""
        stream = job.key.stream
        measured = self._measured.setdefault(stream, _Measured(self._counters()))
        measured.ended = None
        counters = measured.counters

        async def save_progress(state: bytes, held: StreamCut | None = None) -> None:
            await save(state, held)
            counters.problem = ""

        try:
            await self._work(job, save_progress, counters)
        except (Fenced, asyncio.CancelledError):
            self._measured.pop(stream, None)
            raise
        except SaritError as error:
            await self._note_lag(job, counters)
            counters.problem = cut_text(str(error), MAX_RUN_PROBLEM_CHARACTERS)
            raise
        finally:
            measured.ended = self._world.env.clock.monotonic()

    async def _note_lag(self, job: Job, counters: C) -> None:
        """Note how far a job is behind that has just failed: perhaps before it could tell."""
        from sarit.process.jobs.stream_source import StreamSource

        clock = self._world.env.clock
        with suppress(SaritError):
            state = self._state(job.state)
            source = StreamSource(self._world.client.session, job.key.stream, clock)
            cut = state.cut or await source.edge(self._start(job))
            counters.lag_bytes = await source.bytes_behind(cut)
            if counters.lag_bytes and counters.behind_since_ms is None:
                counters.behind_since_ms = state.committed_ms or clock.wall_ms()

    def _start(self, job: Job) -> str:
        return "tail" if self._settings is None else self._settings(job.settings).start
