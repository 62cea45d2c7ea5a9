"""The check of the chain of jobs reports each kind of mistake."""

from __future__ import annotations

from examples.pipelines import chain


def test_mistakes_of_output_are_reported() -> None:
    right = {"UA": [(0, 5), (2, 9), (3, 11)], "AA": [(1, 4)]}
    assert chain.mistakes(right, right) == []
    lost, twice = {**right, "UA": [(0, 5), (3, 7)]}, {**right, "AA": [(1, 4), (1, 4)]}
    assert chain.mistakes(lost, right) == [
        "UA: 2 lines instead of 3, 2 missing, 1 extra, line 1 is [(3, 7)] instead of [(2, 9)]"
    ]
    assert chain.mistakes(twice, right) == [
        "AA: 2 lines instead of 1, 0 missing, 1 extra, line 1 is [(1, 4)] instead of []"
    ]
    swapped = {**right, "UA": [(2, 9), (0, 5), (3, 11)]}
    assert "0 missing, 0 extra, line 0" in chain.mistakes(swapped, right)[0]
