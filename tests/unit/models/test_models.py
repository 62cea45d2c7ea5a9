"""Small models of the hardest protocols, searched through all their states.

Each is also searched with mutants, which must be found.
"""

from __future__ import annotations

import pytest

from tests.unit.models.commits import Committing
from tests.unit.models.fencing import Fencing
from tests.unit.models.group import Scaling
from tests.unit.models.ledgers import Ledgers
from tests.unit.models.search import search
from tests.unit.models.tiering import Tiering


def test_fencing_holds_in_all_states() -> None:
    found = search(Fencing())
    assert not found.broken, str(found)
    assert found.states > 10_000


@pytest.mark.parametrize("bug", ["lands_unfenced", "reads_before_fencing", "acks_before_landing"])
def test_fencing_mutants_are_found(bug) -> None:
    assert search(Fencing(**{bug: True})).broken


@pytest.mark.parametrize("crashes", [1, pytest.param(2, marks=pytest.mark.long)])  # long: `make models`
def test_tiering_holds_in_all_states(crashes) -> None:
    found = search(Tiering(crashes=crashes))
    assert not found.broken, str(found)
    assert found.states > 10_000


@pytest.mark.parametrize(
    "bug",
    [
        "log_truncated_before_commit",
        "garbage_deleted_before_commit",
        "sweep_ignores_settled",
        "extent_dropped_one_early",
        "failed_write_forgotten",
        "early_reclaim_of_read_data",
    ],
)
def test_tiering_mutants_are_found(bug) -> None:
    assert search(Tiering(**{bug: True})).broken


def test_scaling_under_reader_group_holds_in_all_states() -> None:
    found = search(Scaling())
    assert not found.broken, str(found)
    assert found.states > 10_000


@pytest.mark.parametrize(
    "bug", ["seals_before_publishing", "successor_after_one_predecessor", "place_lost_in_death", "taken_twice"]
)
def test_scaling_mutants_are_found(bug) -> None:
    assert search(Scaling(**{bug: True})).broken


@pytest.mark.parametrize("scales", [1, pytest.param(2, marks=pytest.mark.long)])
def test_commits_during_scale_hold_in_all_states(scales) -> None:
    found = search(Committing(scales=scales))
    assert not found.broken, str(found)
    assert found.states > 1_000


@pytest.mark.parametrize(
    "bug",
    [
        "merges_into_first_alone",
        "seals_before_publishing",
        "aborts_what_is_committing",
        "version_unchecked",
    ],
)
def test_commit_mutants_are_found(bug) -> None:
    assert search(Committing(**{bug: True})).broken


@pytest.mark.parametrize(("entries", "openers"), [(1, 2), (2, 1)])
def test_recovery_of_ledger_holds_in_all_states(entries, openers) -> None:
    found = search(Ledgers(entries, openers))
    assert not found.broken, str(found)
    assert found.states > 1_000


@pytest.mark.long
def test_recovery_of_two_entries_by_two_openers_holds_in_all_states() -> None:
    found = search(Ledgers(2, 2))
    assert not found.broken, str(found)
    assert found.states > 500_000


@pytest.mark.parametrize(
    "bug", ["acknowledges_one_copy", "reads_without_fence", "closes_where_one_lacks", "closes_without_search"]
)
def test_recovery_mutants_of_ledger_are_found(bug) -> None:
    assert search(Ledgers(**{bug: True})).broken
