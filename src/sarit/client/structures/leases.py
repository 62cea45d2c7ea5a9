"""Which taken items are free again, because their takers are silent (pure), judged by the observer's own clock alone.

Clocks of different machines are not compared.  The row of a taken item has a version, which changes when its taker
renews the lease.  An observer that sees the same version for a whole lease may take the item.  Of the pause between two
polls of a row at most half a lease counts: an observer that was stopped itself does not take everything at once.
"""

from __future__ import annotations

from typing import NamedTuple


class _Seen(NamedTuple):
    version: int
    silent: float  # seconds over which polls saw no change
    at: float  # of the last poll


class Leases:
    """The knowledge of one observer of taken items; times in seconds of its monotonic clock."""

    __slots__ = ("_lease_seconds", "_seen")

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._seen: dict[bytes, _Seen] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def ended(self, key: bytes, version: int, now: float) -> bool:
        """Record a poll of a taken item.  Returns whether its lease has ended."""
        before = self._seen.get(key)
        silent = 0.0
        if before is not None and before.version == version:
            silent = before.silent + min(now - before.at, self._lease_seconds / 2)
        self._seen[key] = _Seen(version, silent, now)
        return silent >= self._lease_seconds

    def forget(self, key: bytes) -> None:
        """Forget an item that is not taken, or not there."""
        self._seen.pop(key, None)

    def swept(self, now: float) -> None:
        """Forget the items that a sweep over all of them, at `now`, has not found taken."""
        self._seen = {key: seen for key, seen in self._seen.items() if seen.at == now}

    def keep(self, most: int) -> None:
        """Forget those that were polled the longest time ago, until so many are left."""
        while len(self._seen) > most:
            del self._seen[min(self._seen, key=lambda key: self._seen[key].at)]
