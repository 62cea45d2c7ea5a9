"""Guarantees of background jobs: one worker at a time, no step lost or done twice.  Pure.

Each run of a job begins with a fencing number and the state that was saved last; it saves one step after the other.

| kind | meaning |
|---|---|
| `job-fence` | two runs have one fencing number |
| `job-zombie` | a step was saved although a later run, or the deletion of the job, came before |
| `job-step` | a run began with a state that is not the last one saved before it |
| `job-stranger` | a run began with a state of another job of the name, which was deleted |
| `job-undead` | a run began although the job was seen to be done, or was deleted long before |
| `job-short` | a job is done, and its last step was not saved |
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from checkers.log import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

SAVED: Final = "saved"
FENCED: Final = "fenced"
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Began:
    """A run of a job.  `job`: no other has this name, also if it is created again.  `owner`: the job that the state
    says it is of; empty: there was no state."""

    job: str
    fence: int
    step: int
    owner: str
    at: float


@dataclass(slots=True)
class Saving:
    """A save of one step; `outcome` is UNKNOWN until it ends."""

    job: str
    fence: int
    step: int
    begun: float
    outcome: str = UNKNOWN


@dataclass(slots=True)
class JobHistory:
    """Filled by a workload.  `over`: when a job was seen to be done or deleted, by its name.  `steps_at_end`: the step
    that a job had when it was seen to be done; `last`: the one that it should have."""

    last: int
    runs: list[Began] = field(default_factory=list)
    saves: list[Saving] = field(default_factory=list)
    over: dict[str, float] = field(default_factory=dict)
    steps_at_end: dict[str, int] = field(default_factory=dict)

    @property
    def progress(self) -> int:
        """A number that grows with progress."""
        return len(self.saves) + len(self.over)


def check(history: JobHistory) -> list[Violation]:
    """Everything that is wrong; empty when nothing is."""
    return [*_fences(history), *_zombies(history), *_steps(history), *_ends(history)]


def _fences(history: JobHistory) -> Iterator[Violation]:
    seen: dict[tuple[str, int], Began] = {}
    for run in history.runs:
        if (before := seen.setdefault((run.job, run.fence), run)) is not run:
            yield Violation("job-fence", f"{run.job}: {before} and {run} have one fencing number")
        if run.owner not in ("", run.job):
            yield Violation("job-stranger", f"{run} began with the state of {run.owner}")


def _zombies(history: JobHistory) -> Iterator[Violation]:
    runs = _by_job(history)
    for save in history.saves:
        if save.outcome != SAVED:
            continue
        later = [run for run in runs[save.job] if run.fence > save.fence and run.at < save.begun]
        if later:
            yield Violation("job-zombie", f"{save} although {later[0]} had begun")
        if history.over.get(save.job, inf) < save.begun:
            yield Violation("job-zombie", f"{save} although the job was over at {history.over[save.job]:.3f}")


def _steps(history: JobHistory) -> Iterator[Violation]:
    saves = defaultdict(list)
    for save in history.saves:
        saves[save.job].append(save)
    for run in history.runs:
        before = [save for save in saves[run.job] if save.fence < run.fence]
        known = max((save.step for save in before if save.outcome == SAVED), default=0)
        possible = {save.step for save in before if save.outcome == UNKNOWN and save.step > known}
        if run.step != known and run.step not in possible:
            yield Violation("job-step", f"{run} began with step {run.step}, and {known} was saved last")


def _ends(history: JobHistory) -> Iterator[Violation]:
    for run in history.runs:
        if history.over.get(run.job, inf) < run.at:
            yield Violation("job-undead", f"{run} although the job was over at {history.over[run.job]:.3f}")
    for job, step in history.steps_at_end.items():
        if step != history.last:
            yield Violation("job-short", f"{job} is done with step {step}")


def _by_job(history: JobHistory) -> dict[str, list[Began]]:
    runs: dict[str, list[Began]] = defaultdict(list)
    for run in history.runs:
        runs[run.job].append(run)
    return runs
