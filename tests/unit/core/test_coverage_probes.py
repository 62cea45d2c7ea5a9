"""Coverage probes notify their listeners only."""

from __future__ import annotations

from sarit.core.coverage_probes import coverage_probe, listening


def test_probes_reach_listeners() -> None:
    reached: list[str] = []
    coverage_probe("before")
    with listening(reached.append):
        coverage_probe("here")
        with listening(reached.append):
            coverage_probe("twice")
    coverage_probe("after")
    assert reached == ["here", "twice", "twice"]


def test_listening_ends_with_an_error_too() -> None:
    reached: list[str] = []
    try:
        with listening(reached.append):
            raise ValueError
    except ValueError:
        coverage_probe("after")
    assert not reached
