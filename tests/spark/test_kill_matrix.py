"""A few kills of `tests.spark.kill_matrix`; `make spark-kills` does more of them, on a Spark with executors."""

from __future__ import annotations

import shutil
from os import environ

import pytest

from examples.pipelines import chain
from tests.spark.kill_matrix import Matrix, Plan

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("java") is None and not environ.get("CI"), reason="Spark needs Java")
def test_chain_is_exact_after_kills_of_driver_worker_and_node(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # see conftest.py
    plan = Plan(kills=3, seed=5, settings={}, kinds=("driver", "python", "node"), recovering=0, events_ahead=700)
    report = Matrix(plan, tmp_path, print).run()
    assert report.kills.total() == 3
    assert report.lines > 100
    assert not report.wrong, f"{report}\n{(tmp_path / 'jobs.log').read_text(errors='replace')[-3000:]}"


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
