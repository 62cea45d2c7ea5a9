"""Small models of what is hardest to get right, searched through all their states.

Each is also searched with bugs planted: a model that finds none of them says nothing.
"""

from __future__ import annotations

import pytest

from tests.unit.models.commits import Committing
from tests.unit.models.fencing import Fencing
from tests.unit.models.group import Scaling
from tests.unit.models.search import search
from tests.unit.models.tiering import Tiering


def test_fencing() -> None:
    found = search(Fencing())
    assert not found.broken, str(found)
    assert found.states > 10_000


@pytest.mark.parametrize("bug", ["lands_unfenced", "reads_before_fencing", "acks_before_landing"])
def test_bugs_of_fencing_are_found(bug) -> None:
    assert search(Fencing(**{bug: True})).broken


def test_flush_truncation_and_collection() -> None:
    found = search(Tiering(crashes=2))
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
        "room_of_what_is_read",
    ],
)
def test_bugs_of_tiering_are_found(bug) -> None:
    assert search(Tiering(**{bug: True})).broken


def test_scales_beneath_a_reader_group() -> None:
    found = search(Scaling())
    assert not found.broken, str(found)
    assert found.states > 10_000


@pytest.mark.parametrize(
    "bug", ["seals_before_publishing", "successor_after_one_predecessor", "place_lost_in_death", "taken_twice"]
)
def test_bugs_of_scales_are_found(bug) -> None:
    assert search(Scaling(**{bug: True})).broken


def test_commits_beside_a_scale() -> None:
    found = search(Committing(scales=2))
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
def test_bugs_of_commits_are_found(bug) -> None:
    assert search(Committing(**{bug: True})).broken
