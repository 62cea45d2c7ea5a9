"""What the logs of a process have counted since it started."""

from __future__ import annotations

from sarit.core.histogram import LATENCIES, SIZES, Histogram


class LogStatistics:
    """Counters over all logs of a provider.

    `sync_seconds`: of one write with its sync, which makes a group of frames durable; `group_bytes`: their size."""

    __slots__ = ("frames", "group_bytes", "sync_seconds")

    def __init__(self) -> None:
        self.frames = 0
        self.sync_seconds = Histogram(LATENCIES)
        self.group_bytes = Histogram(SIZES)

    def __repr__(self) -> str:
        return f"<LogStatistics, {self.frames} frames in {self.sync_seconds.count} syncs>"
