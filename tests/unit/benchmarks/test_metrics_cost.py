"""What the benchmark of metrics compares: the same functions, with and without the statements that count."""

from __future__ import annotations

import inspect
import random

import pytest

from benchmarks.metrics_cost import certain, share
from benchmarks.metrics_node import STATEMENTS, code_without
from sarit.core.histogram import SIZES, Histogram


class _Counts:
    def __init__(self) -> None:
        self.frames, self.sizes = 0, Histogram(SIZES)

    def done(self, size: int) -> int:
        self.frames += 1
        if size:
            self.sizes.observe(size)
        return size


def test_code_without_its_counting_does_the_rest() -> None:
    plain = _Counts.done.__code__
    counts = _Counts()
    try:
        _Counts.done.__code__ = code_without(_Counts.done, ("self.frames +=", "self.sizes.observe("))
        assert counts.done(7) == 7
        assert (counts.frames, counts.sizes.count) == (0, 0)
    finally:
        _Counts.done.__code__ = plain
    assert counts.done(7) == 7
    assert (counts.frames, counts.sizes.count) == (1, 1)
    with pytest.raises(AssertionError):
        code_without(_Counts.done, ("self.gone +=",))


@pytest.mark.parametrize("function", STATEMENTS, ids=lambda function: function.__qualname__)
def test_every_statement_that_counts_is_found_on_the_way_of_an_append(function) -> None:
    names = code_without(function, STATEMENTS[function]).co_names
    assert len(names) < len(function.__code__.co_names)
    assert "_statistics" not in names
    assert "observe" not in names
    assert "statistics" not in names, inspect.getsource(function)


def test_share_is_of_what_was_disturbed_least() -> None:
    drawn = random.Random(3)
    rounds = [
        {"on": [10.2 + drawn.expovariate(0.2), 10.2 + drawn.expovariate(0.2)],
         "off": [10 + drawn.expovariate(0.2), 10 + drawn.expovariate(0.2)]}
        for _ in range(2000)
    ]  # fmt: skip
    assert share(rounds, "on", "off") == pytest.approx(0.02, abs=0.01)
    found, low, high = certain(rounds, "on", "off")
    assert low < found < high
    assert low > 0
