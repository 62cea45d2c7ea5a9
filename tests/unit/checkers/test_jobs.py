"""The checker of background jobs accepts right histories and rejects wrong ones."""

from __future__ import annotations

from checkers.jobs import FENCED, SAVED, UNKNOWN, Began, JobHistory, Saving, check


def run(fence: int, step: int, at: float, owner: str = "j") -> Began:
    return Began("j", fence, step, owner if step else "", at)


def save(fence: int, step: int, begun: float, outcome: str = SAVED) -> Saving:
    return Saving("j", fence, step, begun, outcome)


def kinds(*made: Began | Saving, over: float | None = None, at_end: int | None = None) -> list[str]:
    history = JobHistory(2)
    for each in made:
        if isinstance(each, Began):
            history.runs.append(each)
        else:
            history.saves.append(each)
    if over is not None:
        history.over["j"] = over
    if at_end is not None:
        history.steps_at_end["j"] = at_end
    return [violation.kind for violation in check(history)]


def test_run_goes_on_from_what_was_saved_last() -> None:
    assert kinds(run(1, 0, 0), save(1, 1, 1), run(2, 1, 2), save(2, 2, 3), over=5, at_end=2) == []
    assert kinds(run(1, 0, 0), save(1, 1, 1), run(2, 0, 2)) == ["job-step"]
    assert kinds(run(1, 0, 0), run(2, 1, 2)) == ["job-step"]


def test_save_with_an_unknown_outcome_may_have_been_made_or_not() -> None:
    assert kinds(run(1, 0, 0), save(1, 1, 1, UNKNOWN), run(2, 0, 2)) == []
    assert kinds(run(1, 0, 0), save(1, 1, 1, UNKNOWN), run(2, 1, 2)) == []
    assert kinds(run(1, 0, 0), save(1, 1, 1), save(1, 2, 2, UNKNOWN), run(2, 0, 3)) == ["job-step"]


def test_later_run_ends_the_saves_of_the_one_before() -> None:
    assert kinds(run(1, 0, 0), run(2, 0, 2), save(1, 1, 3, FENCED)) == []
    assert kinds(run(1, 0, 0), run(2, 0, 2), save(1, 1, 3)) == ["job-zombie", "job-step"]
    # The save had begun: nobody knows what came first.
    assert kinds(run(1, 0, 0), save(1, 1, 1), run(2, 1, 2)) == []


def test_fencing_number_is_of_one_run() -> None:
    assert kinds(run(1, 0, 0), run(1, 0, 2)) == ["job-fence"]


def test_nothing_of_a_job_happens_when_it_is_over() -> None:
    assert kinds(run(1, 0, 0), save(1, 1, 3), over=2) == ["job-zombie"]
    assert kinds(run(1, 0, 0), save(1, 1, 1), run(2, 1, 3), over=2) == ["job-undead"]
    assert kinds(run(1, 0, 0), save(1, 1, 3, FENCED), over=2) == []


def test_state_is_of_the_job_and_complete_at_its_end() -> None:
    assert kinds(run(1, 0, 0), save(1, 1, 1), run(2, 1, 2, owner="other")) == ["job-stranger"]
    assert kinds(run(1, 0, 0), save(1, 1, 1), at_end=1) == ["job-short"]
