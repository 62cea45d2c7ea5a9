"""The counters of a server of the controller API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.histogram import CALL_LATENCIES, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.env.traces import Traces


class CallStatistics:
    """The number of calls by method and status, and the durations by method, refused calls included.

    The API defines the methods and statuses, so their number is bounded."""

    def __init__(self, now: Callable[[], float], traces: Traces | None = None) -> None:
        """`now`: returns monotonic seconds.  `traces`: records calls; None: calls are not traced."""
        self.now = now
        self.traces = traces
        self.calls: dict[tuple[str, str], int] = {}
        self.seconds: dict[str, Histogram] = {}
        self.running = 0

    def __repr__(self) -> str:
        return f"<CallStatistics, {sum(self.calls.values())} calls>"

    def ended(self, method: str, status: str, seconds: float) -> None:
        """Count a call that has ended."""
        self.calls[method, status] = self.calls.get((method, status), 0) + 1
        histogram = self.seconds.get(method)
        if histogram is None:
            histogram = self.seconds[method] = Histogram(CALL_LATENCIES)
        histogram.observe(seconds)
