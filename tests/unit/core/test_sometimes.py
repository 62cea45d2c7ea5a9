"""Marks reach those who listen, and nobody else."""

from __future__ import annotations

from sarit.core.coverage_probes import listening, sometimes


def test_those_who_listen_are_told() -> None:
    heard: list[str] = []
    sometimes("before")
    with listening(heard.append):
        sometimes("here")
        with listening(heard.append):
            sometimes("twice")
    sometimes("after")
    assert heard == ["here", "twice", "twice"]


def test_listening_ends_with_an_error_too() -> None:
    heard: list[str] = []
    try:
        with listening(heard.append):
            raise ValueError
    except ValueError:
        sometimes("after")
    assert not heard
