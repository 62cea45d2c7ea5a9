"""Sums over seeds, and the line of the ledger."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

import simulation.__main__ as commands
from simulation import batch, ledger
from simulation.batch import Summary, Totals, summarize

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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


def test_ledger_appends_a_line_per_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "reliability.jsonl"
    monkeypatch.setattr(ledger, "LEDGER", path)
    ledger.write_line("prove", 0.0, {"seeds": 1})
    ledger.write_line("prove", 0.0, {"seeds": 2})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["seeds"] for line in lines] == [1, 2]
    assert lines[0]["suite"] == "prove"
    assert lines[0]["at"] == "1970-01-01T00:00:00Z"


@pytest.mark.parametrize("ended_by", [None, signal.SIGINT, signal.SIGTERM])
def test_seeds_writes_its_line_also_when_a_signal_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended_by: signal.Signals | None
) -> None:
    def results(seeds: range, *_: object) -> Iterator[Summary]:
        for seed in seeds:
            if seed == 42 and ended_by is not None:
                os.kill(os.getpid(), ended_by)
            yield _summary(seed, *(["lost: x"] if seed == 41 else []), kill=1)

    monkeypatch.setattr(ledger, "LEDGER", tmp_path / "reliability.jsonl")
    monkeypatch.setattr(commands, "summaries", results)
    handlers = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    command = ["simulation", "seeds", "--seeds", "5", "--first", "40", "--stores", "-1", "--ledger"]
    monkeypatch.setattr(sys, "argv", command)
    assert commands.main() == 1  # a seed failed
    line = json.loads((tmp_path / "reliability.jsonl").read_text())
    done = 5 if ended_by is None else 3
    assert (line["suite"], line["first_seed"], line["seeds"], line["faults"]) == (
        "several stores", 40, done, {"kill": done},
    )  # fmt: skip
    assert line["violations"] == {"41": "lost: x"}
    assert line.get("wanted_seeds") == (None if ended_by is None else 5)
    assert handlers == [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]


def test_seeds_of_a_mutant_get_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["simulation", "seeds", "--mutant", "ack-before-fsync", "--ledger"])
    with pytest.raises(SystemExit):
        commands.main()
