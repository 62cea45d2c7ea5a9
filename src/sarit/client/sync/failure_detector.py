"""Which members have failed (pure), judged by the observer's own clock alone.

Clocks of different machines are not compared.  An observer sees heartbeat counts: a member whose count rises is
alive.  The idle time of a member is the time over which the observer *observed* and saw no rise: of the pause between
two observations at most half a lease counts.  So an observer that was stopped or cut off itself does not remove
everybody who was cut off with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

K = TypeVar("K", bound="Hashable")


class FailureDetector(Generic[K]):
    """The knowledge of one observer; times in seconds of its monotonic clock."""

    __slots__ = ("_lease_seconds", "_observed", "_observed_at")

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._observed_at: float | None = None
        self._observed: dict[K, tuple[int, float]] = {}  # member -> (heartbeats, idle seconds)

    def observe(self, heartbeats: Mapping[K, int], now: float) -> dict[K, int]:
        """Record the present counts.  Returns the members silent for a whole lease, with the count they stopped at."""
        passed = 0.0 if self._observed_at is None else min(now - self._observed_at, self._lease_seconds / 2)
        self._observed_at = now
        seen: dict[K, tuple[int, float]] = {}
        for number, count in heartbeats.items():
            before = self._observed.get(number)
            same = before is not None and before[0] == count
            seen[number] = (count, before[1] + passed if same and before is not None else 0.0)
        self._observed = seen
        return {number: count for number, (count, silent) in seen.items() if silent >= self._lease_seconds}
