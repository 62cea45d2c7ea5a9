"""What a server of the controller API has counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.histogram import CALL_LATENCIES, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.env.traces import Traces


class CallStatistics:
    """Calls by method and status; the seconds of each method's calls, refused ones included.

    Methods and statuses are those that the API defines, so their number is bounded."""

    def __init__(self, now: Callable[[], float], traces: Traces | None = None) -> None:
        """`now`: seconds, monotonic.  `traces`: where calls are recorded; None: nowhere."""
        self.now = now
        self.traces = traces
        self.calls: dict[tuple[str, str], int] = {}
        self.seconds: dict[str, Histogram] = {}
        self.running = 0

    def __repr__(self) -> str:
        return f"<CallStatistics, {sum(self.calls.values())} calls>"

    def ended(self, method: str, status: str, seconds: float) -> None:
        """A call ended."""
        self.calls[method, status] = self.calls.get((method, status), 0) + 1
        histogram = self.seconds.get(method)
        if histogram is None:
            histogram = self.seconds[method] = Histogram(CALL_LATENCIES)
        histogram.observe(seconds)
