"""Crash states in bulk: workloads on the log and on a container in turn, until there are enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simulation.crashes.container import crash_container
from simulation.crashes.durable_log import crash_log
from simulation.crashes.states import States

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# An estimate: more seeds follow until there are enough states.
_STATES_PER_SEED: Final = 14_000


def crash_workloads(seed: int) -> States:
    """All crash states of both workloads of a seed.  Raises AssertionError that names the seed."""
    total = States()
    for crash in (crash_log, crash_container):
        total.add(with_replay_call(crash, seed))
    return total


def with_replay_call(crash: Callable[..., States], seed: int, **options: int) -> States:
    """`crash(seed)`; every exception becomes an AssertionError that names the call to repeat."""
    try:
        return crash(seed, **options)
    except Exception as error:
        raise AssertionError(f"{crash.__name__}({seed}): {type(error).__name__}: {error}") from error


def crash_everywhere(
    states: int, first: int = 1, run: Callable[[Callable[[int], States], Iterable[int]], Iterable[States]] = map
) -> States:
    """Recover at least `states` disks, from workloads of seeds `first` on; `run` is `map`, or that of a pool.

    Raises AssertionError."""
    total = States()
    while total.count < states:
        count = -(-(states - total.count) // _STATES_PER_SEED)
        for found in run(crash_workloads, range(first, first + count)):
            total.add(found)
        first += count
    return total
