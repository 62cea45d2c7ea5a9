"""Marks reach those who listen, and nobody else."""

from __future__ import annotations

from sarit.core.coverage_probes import coverage_probe, listening


def test_probes_reach_listeners() -> None:
    heard: list[str] = []
    coverage_probe("before")
    with listening(heard.append):
        coverage_probe("here")
        with listening(heard.append):
            coverage_probe("twice")
    coverage_probe("after")
    assert heard == ["here", "twice", "twice"]


def test_listening_ends_with_an_error_too() -> None:
    heard: list[str] = []
    try:
        with listening(heard.append):
            raise ValueError
    except ValueError:
        coverage_probe("after")
    assert not heard
