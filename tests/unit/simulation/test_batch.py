"""Sums over seeds, and the line of the ledger."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from simulation import batch, ledger
from simulation.batch import Summary, Totals, summarize

if TYPE_CHECKING:
    import pytest


def _summary(seed: int, *violations: str, **probes: int) -> Summary:
    return Summary(seed, violations, "", 10, 1000, 3600.0, 2.0, probes)


def test_totals_separate_faults_from_reached_probes() -> None:
    totals = Totals()
    totals.add(_summary(1, kill=2, log_rolled=1))
    totals.add(_summary(2, "lost: x", kill=1))
    line = totals.line()
    assert line["seeds"] == 2
    assert line["faults"] == {"kill": 3}
    assert line["reached"] == {"log_rolled": 1}
    assert line["violations"] == {"2": "lost: x"}
    assert (line["virtual_hours"], line["steps_per_second"], line["virtual_to_real"]) == (2.0, 500, 1800.0)


def test_error_of_harness_is_reported_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(batch, "run_seed", broken)
    summary = summarize(77, ["ack-before-fsync"])
    assert summary.violations == ("harness: KeyError: 'oops'",)
    assert "--seed 77 --mutant ack-before-fsync" in summary.explanation
    assert "kills = " in summary.explanation


def test_ledger_appends_a_line_per_run(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "reliability.jsonl"
    monkeypatch.setattr(ledger, "LEDGER", path)
    ledger.write_line("prove", 0.0, {"seeds": 1})
    ledger.write_line("prove", 0.0, {"seeds": 2})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["seeds"] for line in lines] == [1, 2]
    assert lines[0]["suite"] == "prove"
    assert lines[0]["at"] == "1970-01-01T00:00:00Z"
