"""The verdict on samples."""

from __future__ import annotations

import pytest

from tests.scale.flat import flatness

SECONDS = [float(second) for second in range(0, 600, 5)]


def test_figure_that_fills_and_stays_is_flat() -> None:
    assert flatness(SECONDS, [min(100 + second, 300) for second in SECONDS]).flat


def test_rising_figure_is_not_flat() -> None:
    found = flatness(SECONDS, [100 + second * 0.05 for second in SECONDS])
    assert not found.flat
    assert found.per_hour == pytest.approx(180)
    assert found.rise == pytest.approx(0.05 * 295)


def test_oscillating_figure_is_flat() -> None:
    assert flatness(SECONDS, [100 + second % 20 for second in SECONDS]).flat


def test_one_file_more_is_flat() -> None:
    values = [20.0] * 100 + [22.0] * 20
    assert not flatness(SECONDS, values).flat
    assert flatness(SECONDS, values, slack=4.0).flat


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="say nothing"):
        flatness([0.0, 1.0], [1.0, 1.0])
