"""How fast bytes may pass: a leaky bucket that lends, as a function of what it holds, the time and the bytes.

Bytes that are taken always pass, however many; what they cost is time.  `take` says how long everybody who shares the
bucket has to wait before the next ones: whoever asks first (`debt`) takes nothing that is not paid for.  `paid_until`
is when everything taken so far is paid for at the rate.

*A burst.*  Who was silent may send QUOTA_BURST_SECONDS of the rate at once.
*A bound.*  More than QUOTA_DEBT_SECONDS of debt is forgiven: nobody waits longer.
"""

from __future__ import annotations

from sarit.security.limits import QUOTA_BURST_SECONDS, QUOTA_DEBT_SECONDS


class ByteBucket:
    """A rate in bytes per second, above 0; times in seconds of one monotonic clock."""

    __slots__ = ("_paid_until", "rate")

    def __init__(self, rate: float) -> None:
        assert rate > 0, rate
        self.rate = rate
        self._paid_until = -QUOTA_BURST_SECONDS

    def __repr__(self) -> str:
        return f"<ByteBucket of {self.rate:.0f} bytes/s, paid until {self._paid_until:.3f}>"

    def take(self, now: float, size: int) -> float:
        """Let `size` bytes pass; how long to wait after them, 0 if there is no need to."""
        begins = max(self._paid_until, now - QUOTA_BURST_SECONDS)
        self._paid_until = min(begins + size / self.rate, now + QUOTA_DEBT_SECONDS)
        return self.debt(now)

    def debt(self, now: float) -> float:
        """Return how long to wait until everything taken is paid for."""
        return max(0.0, self._paid_until - now)

    def change(self, now: float, rate: float) -> None:
        """Another rate: what is owed is owed in bytes."""
        assert rate > 0, rate
        owed = self.debt(now) * self.rate
        self.rate = rate
        if owed:
            self._paid_until = min(now + owed / rate, now + QUOTA_DEBT_SECONDS)
