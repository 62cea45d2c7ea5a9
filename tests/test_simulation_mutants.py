"""Mutants: what finds each of them.  See docs/testing.md."""

from __future__ import annotations

import functools

import pytest

from simulation.batch import Summary, summaries
from simulation.mutants import MUTANTS
from simulation.table import PAGE, fail_their_tests, row, rows_of

CAUGHT_BY = ("ack-before-fsync",)  # `python -m simulation mutants` tries all


@functools.cache
def caught(mutant: str) -> Summary | None:
    """The first of ten seeds that catches a mutant; a few tests need it.  Most from 10 on do, and none before 3."""
    return next((summary for summary in summaries(range(10, 20), [mutant]) if summary.violations), None)


@pytest.mark.parametrize("mutant", CAUGHT_BY)
def test_mutants_are_caught_by_seeds(mutant) -> None:
    assert caught(mutant) is not None


RARE = tuple(name for name, mutant in MUTANTS.items() if mutant.found_by)


@functools.cache
def found() -> dict[str, bool]:
    """All at once: most of the time of one would be that of loading modules."""
    return fail_their_tests(RARE)


@pytest.mark.parametrize("mutant", RARE)
def test_rare_mutants_are_caught_by_their_tests(mutant) -> None:
    assert found()[mutant]


def test_mutant_is_removed_completely_afterwards() -> None:
    from sarit.log.writer import LogWriter
    from sarit.store.container.container import Container
    from sarit.store.container.state import ContainerState

    def attributes_of_owners():
        return [dict(vars(owner)) for owner in (LogWriter, Container, ContainerState)]

    before = attributes_of_owners()
    for mutant in MUTANTS.values():
        with mutant.apply():
            pass
    assert attributes_of_owners() == before


def test_every_mutant_is_in_the_table_and_was_caught() -> None:
    rows = rows_of(PAGE.read_text())
    by_seeds = [name for name, mutant in MUTANTS.items() if not mutant.found_by]
    assert len(by_seeds) >= 24
    assert set(rows) == set(MUTANTS), "python -m simulation mutants --mutant NAME writes the row"
    assert [name for name in by_seeds if rows[name] == row(name, None)] == []


def test_failed_seed_prints_its_replay_command() -> None:
    result = caught("ack-before-fsync")
    assert result is not None
    assert f"python -m simulation --seed {result.seed} --mutant ack-before-fsync" in result.explanation
    assert "kills = " in result.explanation
