"""When the simulation decides that long-term storage makes no progress."""

from __future__ import annotations

from simulation.run import Standstill


def test_sweep_beside_long_flush_counts_as_progress() -> None:
    """The flush wrote more chunks, unnamed until its commit, than the sweep deleted."""
    still = Standstill(30.0)
    left = set(range(100))
    for second in range(90):
        left -= {second}
        left |= {1000 + 2 * second, 1001 + 2 * second}
        assert not still.lasts(float(second), frozenset(left))


def test_unchanged_work_counts_as_standstill() -> None:
    still = Standstill(30.0)
    assert not still.lasts(5.0, frozenset({"a", "b"}))
    assert not still.lasts(6.0, frozenset({"a"}))
    assert not still.lasts(35.9, frozenset({"a"}))
    assert still.lasts(36.0, frozenset({"a"}))
