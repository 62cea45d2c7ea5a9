"""Limits the rate of bytes: a leaky bucket that allows debt.

Bytes always pass, however many, but then all who share the bucket have to wait: `take` returns how long, and `debt` how
long at any later time.  `_paid_until` is when everything taken so far is paid for at the rate.

*Bursts.*  After a silence, QUOTA_BURST_SECONDS of the rate may pass at once.
*Bound.*  Debt beyond QUOTA_DEBT_SECONDS is forgiven, so that no wait is longer.
"""

from __future__ import annotations

from sarit.security.limits import QUOTA_BURST_SECONDS, QUOTA_DEBT_SECONDS


class ByteBucket:
    """A leaky bucket with a rate in bytes per second, above 0; times are in seconds of one monotonic clock."""

    __slots__ = ("_paid_until", "rate")

    def __init__(self, rate: float) -> None:
        assert rate > 0, rate
        self.rate = rate
        self._paid_until = -QUOTA_BURST_SECONDS

    def __repr__(self) -> str:
        return f"<ByteBucket of {self.rate:.0f} bytes/s, paid until {self._paid_until:.3f}>"

    def take(self, now: float, size: int) -> float:
        """Let `size` bytes pass.  Returns the seconds to wait after them; 0: no wait."""
        begins = max(self._paid_until, now - QUOTA_BURST_SECONDS)
        self._paid_until = min(begins + size / self.rate, now + QUOTA_DEBT_SECONDS)
        return self.debt(now)

    def debt(self, now: float) -> float:
        """Return the seconds until everything taken is paid for."""
        return max(0.0, self._paid_until - now)

    def change(self, now: float, rate: float) -> None:
        """Change the rate.  A debt stays the same number of bytes."""
        assert rate > 0, rate
        owed = self.debt(now) * self.rate
        self.rate = rate
        if owed:
            self._paid_until = min(now + owed / rate, now + QUOTA_DEBT_SECONDS)
