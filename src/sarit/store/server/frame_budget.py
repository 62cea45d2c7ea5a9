"""How many frames a connection may send that bring nothing: KeepAlive, Hello, requests whose token is refused.  Pure.

Such frames are tiny and are answered without disk or memory, so nothing else slows down whoever sends millions.  A
connection that has not shown yet that it may ask for anything (a *stranger*) has a much smaller budget.  A frame over
the budget has been served already: the answer is how long the connection has to wait before it is read from again.

Tokens that are refused count for the host as well, whatever connection they come on: a signature costs more than a
frame, and who connects again begins with a new budget.
"""

from __future__ import annotations

from typing import Final

from sarit.core.networks import network_of
from sarit.store.limits import (
    FRAME_BUDGET,
    FRAMES_PER_SECOND,
    HOST_REFUSALS,
    HOST_REFUSALS_PER_SECOND,
    MAX_FRAME_WAIT_SECONDS,
    MAX_REFUSED_HOSTS,
    STRANGER_FRAME_BUDGET,
    STRANGER_FRAMES_PER_SECOND,
)


class FrameBudget:
    """`most` frames at once, then `rate` frames a second; times in seconds of one monotonic clock."""

    __slots__ = ("_at", "_unpaid", "most", "rate")

    def __init__(self, most: int = STRANGER_FRAME_BUDGET, rate: float = STRANGER_FRAMES_PER_SECOND) -> None:
        self.most = most
        self.rate = rate
        self._unpaid = 0.0  # frames, at the time `_at`
        self._at = float("-inf")

    def __repr__(self) -> str:
        return f"<FrameBudget of {self.most} frames, {self.rate:g} a second>"

    def admitted(self) -> None:
        """Give the connection the budget of those that may ask for something."""
        self.most, self.rate = FRAME_BUDGET, FRAMES_PER_SECOND
        self._unpaid = 0.0

    def take(self, now: float) -> float:
        """Count a frame; how long to wait after it, 0 within the budget."""
        self._unpaid = max(0.0, self._unpaid - (now - self._at) * self.rate) + 1
        self._at = now
        return min(max(0.0, self._unpaid - self.most) / self.rate, MAX_FRAME_WAIT_SECONDS)


class RefusalBudgets:
    """The refused tokens of each host; hosts are forgotten, the oldest first, beyond MAX_REFUSED_HOSTS."""

    def __init__(self) -> None:
        self._hosts: dict[str, FrameBudget] = {}

    def __repr__(self) -> str:
        return f"<RefusalBudgets of {len(self._hosts)} hosts>"

    def take(self, host: str, now: float) -> float:
        """Count a refused token from a host; how long its connection has to wait."""
        network: Final = network_of(host)
        budget = self._hosts.pop(network, None) or FrameBudget(HOST_REFUSALS, HOST_REFUSALS_PER_SECOND)
        self._hosts[network] = budget
        if len(self._hosts) > MAX_REFUSED_HOSTS:
            del self._hosts[next(iter(self._hosts))]
        return budget.take(now)
