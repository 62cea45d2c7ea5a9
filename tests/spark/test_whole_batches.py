"""The check of the kill matrix finds each kind of partial output."""

from __future__ import annotations

import pytest

from tests.spark.whole_batches import WholeBatches


def lines(batch: int, task: int, count: int, stated: int | None = None) -> list[dict[str, int]]:
    return [{"batch": batch, "task": task, "lines": count if stated is None else stated}] * count


def found(*rounds: dict[int, list[dict[str, int]]]) -> list[str]:
    output = WholeBatches()
    for one in rounds:
        for segment, polled in one.items():
            output.poll(segment, polled)
        output.end_round()
    return output.end()


def test_output_that_comes_whole_is_right() -> None:
    assert found({0: lines(0, 0, 3) + lines(0, 1, 2)}, {0: lines(1, 0, 2, 4), 1: lines(1, 0, 2, 4)}) == []


def test_task_whose_segments_appear_in_two_rounds_is_right() -> None:
    assert found({0: lines(0, 0, 2, 4), 1: []}, {0: lines(1, 0, 1), 1: lines(0, 0, 2, 4)}) == []


@pytest.mark.parametrize(
    ("rounds", "problem"),
    [
        ([{0: lines(0, 0, 2, 5)}, {0: lines(0, 0, 3, 5)}], "one after another"),
        ([{0: lines(1, 0, 2) + lines(0, 0, 1)}], "comes after"),
        ([{0: lines(0, 0, 2, 4) + lines(1, 0, 1)}, {}, {1: lines(0, 0, 2, 4)}], "not whole when a newer one"),
        ([{0: lines(0, 0, 2, 3)}], "is not whole"),
        ([{0: lines(0, 0, 2) + lines(0, 1, 1) + lines(0, 0, 2)}], "is not whole"),
        ([{0: lines(0, 0, 2) + lines(0, 1, 1) + lines(0, 0, 1, 3)}], "says 3 later"),
    ],
)
def test_partial_output_is_found(rounds, problem) -> None:
    assert any(problem in one for one in found(*rounds))


def test_batch_that_stays_partial_is_reported_once_and_in_the_end() -> None:
    partial = {0: lines(0, 0, 2, 4) + lines(1, 0, 1)}
    assert len(found(partial, {}, {}, {}, {})) == 2
