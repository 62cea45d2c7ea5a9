"""Amounts that are used up and come back at a rate: budgets of what a client or a host may make a process do.  Pure."""

from __future__ import annotations


class Bucket:
    """An amount that is used up, and comes back at a rate; times in seconds of one monotonic clock.

    A use may exceed what is left: the rest is owed, but never more than `most_owed`, which is `burst` by default."""

    __slots__ = ("_at", "_left", "_most_owed", "burst", "rate")

    def __init__(self, burst: float, rate: float, now: float, most_owed: float | None = None) -> None:
        self.burst = burst
        self.rate = rate
        self._left = burst
        self._at = now
        self._most_owed = most_owed

    def __repr__(self) -> str:
        return f"<Bucket, {self._left:.0f} of {self.burst:.0f} left at {self._at:.3f}>"

    def use(self, amount: float, now: float) -> bool:
        """Use up an amount, or give it back if it is negative.  Returns whether as much was available."""
        left = min(self.burst, self._left + (now - self._at) * self.rate) - amount
        self._left = max(left, -(self.burst if self._most_owed is None else self._most_owed))
        self._at = now
        return left >= 0

    def wait(self, now: float) -> float:
        """Return the seconds until nothing is owed any more."""
        return max(0.0, -self._left / self.rate - (now - self._at))


class HostBuckets:
    """A bucket for each network of hosts, `most` of them; the one that was used longest ago is forgotten."""

    def __init__(self, burst: float, rate: float, most: int, most_owed: float | None = None) -> None:
        self._burst, self._rate, self._most, self._most_owed = burst, rate, most, most_owed
        self._buckets: dict[str, Bucket] = {}

    def __repr__(self) -> str:
        return f"<HostBuckets of {len(self._buckets)} hosts>"

    def of(self, network: str, now: float) -> Bucket:
        """Return the bucket that the connections from a network share."""
        bucket = self._buckets.pop(network, None) or Bucket(self._burst, self._rate, now, self._most_owed)
        self._buckets[network] = bucket
        if len(self._buckets) > self._most:
            del self._buckets[next(iter(self._buckets))]
        return bucket
