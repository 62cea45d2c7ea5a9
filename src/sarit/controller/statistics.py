"""The counters of a controller since it started."""

from __future__ import annotations


class ControllerStatistics:
    """Counters of events that this controller caused.

    `pending_transactions`, `pending_work`: entries in the pending-work index, of all controllers, at the last sweep."""

    __slots__ = (
        "pending_transactions",
        "pending_work",
        "rounds_postponed",
        "scales_by_call",
        "scales_by_rate",
        "scaling_requests",
        "sweeps",
        "transactions_aborted",
        "transactions_begun",
        "transactions_committed",
        "transactions_expired",
    )

    def __init__(self) -> None:
        self.scales_by_call = self.scales_by_rate = self.scaling_requests = 0
        self.transactions_begun = self.transactions_committed = 0
        self.transactions_aborted = self.transactions_expired = 0
        self.pending_transactions = self.pending_work = 0
        self.sweeps = self.rounds_postponed = 0

    def __repr__(self) -> str:
        return f"<ControllerStatistics, {self.transactions_committed} transactions committed>"
