"""A chart can only read files of its own folder."""

from __future__ import annotations

from pathlib import Path

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def test_rules_of_the_chart_are_those_of_prometheus() -> None:
    copy = DEPLOY / "helm" / "sarit" / "files" / "rules.yml"
    assert copy.read_bytes() == (DEPLOY / "prometheus" / "rules.yml").read_bytes()
