"""What the simulation takes for standing still when it looks at long-term storage."""

from __future__ import annotations

from simulation.run import Standstill


def test_a_sweep_beside_a_long_flush_does_not_stand_still() -> None:
    """The flush wrote more chunks, each without a name until its commit, than the sweep deleted."""
    still = Standstill(30.0)
    left = set(range(100))
    for second in range(90):
        left -= {second}
        left |= {1000 + 2 * second, 1001 + 2 * second}
        assert not still.lasts(float(second), frozenset(left))


def test_what_stays_as_it_is_stands_still() -> None:
    still = Standstill(30.0)
    assert not still.lasts(5.0, frozenset({"a", "b"}))
    assert not still.lasts(6.0, frozenset({"a"}))
    assert not still.lasts(35.9, frozenset({"a"}))
    assert still.lasts(36.0, frozenset({"a"}))
