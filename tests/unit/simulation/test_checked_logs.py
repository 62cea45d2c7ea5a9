"""The rules on logs reject bad histories, and the kill matrix strikes where it is armed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from simulation.checked_logs import LogHistories
from simulation.kill_matrix import CELLS, Cell, KillMatrix, empty_cells


def histories() -> tuple[LogHistories, list[str]]:
    found: list[str] = []
    return LogHistories(found.append, lambda host, what: None), found


def test_frame_that_a_later_owner_does_not_find_is_lost() -> None:
    known, found = histories()
    for number in (1, 2, 3):
        known.acknowledged(0, 1, number, number)
    known.replayed(0, 2, 0, {1: 1, 2: 2, 3: 3})
    assert found == []
    known.replayed(0, 3, 0, {1: 1, 2: 2})
    assert [violation.partition(":")[0] for violation in found] == ["log-lost"]


def test_frames_that_a_checkpoint_covers_may_be_missing() -> None:
    known, found = histories()
    for number in (1, 2, 3):
        known.acknowledged(0, 1, number, number)
    known.truncated(0, 2)
    known.replayed(0, 2, 2, {3: 3})
    assert found == []


@pytest.mark.parametrize(("epoch", "kinds"), [(1, ["log-lost"]), (2, [])])
def test_acknowledgement_after_the_next_owner_began_is_of_a_frame_that_it_found(epoch: int, kinds: list[str]) -> None:
    known, found = histories()
    known.replayed(0, 2, 0, {})
    known.acknowledged(0, epoch, 1, 1)
    assert [violation.partition(":")[0] for violation in found] == kinds


def test_two_owners_that_acknowledge_one_number_are_found() -> None:
    known, found = histories()
    known.acknowledged(0, 1, 1, 10)
    known.acknowledged(0, 2, 1, 11)
    assert [violation.partition(":")[0] for violation in found] == ["two-owners"]


class OneStore:
    """What the matrix needs of a fleet."""

    def __init__(self) -> None:
        self.bookkeeper: Any = self
        self.trace: Any = self
        self.histories: Any = self
        self.stores: list[Any] = []
        self.probes: list[str] = []

    def map(self) -> None:
        return None

    def busy_with(self, host: str) -> set[str]:
        return {"appending"}

    def probe(self, name: str) -> None:
        self.probes.append(name)


def test_fault_strikes_when_a_store_enters_the_state_and_its_cells_are_counted() -> None:
    async def main() -> None:
        fleet = OneStore()
        matrix = KillMatrix(fleet)  # type: ignore[arg-type]
        struck: list[str] = []
        matrix.arm("flushing", struck.append)
        matrix.entered("a", "appending")
        matrix.reached("a", "checkpoint_snapshot_taken")
        matrix.reached("b", "checkpoint_snapshot_taken")
        await asyncio.sleep(0)
        assert struck == ["a"]
        matrix.store_struck("a", "dead")
        cells = [Cell("owner", "dead", "appending"), Cell("owner", "dead", "flushing")]
        assert fleet.probes == [cell.probe for cell in cells]
        assert set(empty_cells(fleet.probes)) == set(CELLS) - set(cells)

    asyncio.run(main())
