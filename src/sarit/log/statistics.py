"""The counters of the logs of a process since it started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core.histogram import LATENCIES, SIZES, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class BookieCounts:
    """The numbers of bookies: registered as writable, known, needed for an acknowledgement, needed for a ledger."""

    writable: int
    known: int
    ack_quorum: int
    ensemble_size: int


class LogStatistics:
    """The counters of all logs of a provider; times in seconds, sizes in bytes.

    Local logs: `sync_seconds` is the time of one write with its sync, which makes a group of frames durable, and
    `group_bytes` the size of the group.  Logs on BookKeeper: `entry_seconds` is the time from the first attempt to send
    an entry until it is durable; `ledgers_recovered` counts open ledgers that BookKeeper's own recovery closed."""

    __slots__ = (
        "_count_bookies",
        "bookies_replaced",
        "entries",
        "entry_bytes",
        "entry_seconds",
        "frames",
        "group_bytes",
        "ledgers",
        "ledgers_recovered",
        "sync_seconds",
    )

    def __init__(self) -> None:
        self.frames = 0
        self.sync_seconds = Histogram(LATENCIES)
        self.group_bytes = Histogram(SIZES)
        self.entries = self.entry_bytes = self.ledgers = self.ledgers_recovered = self.bookies_replaced = 0
        self.entry_seconds = Histogram(LATENCIES)
        self._count_bookies: Callable[[], BookieCounts] | None = None

    def __repr__(self) -> str:
        return f"<LogStatistics, {self.frames} frames in {self.sync_seconds.count} syncs>"

    def bookies(self) -> BookieCounts | None:
        """Count the bookies that are registered now; None for local logs."""
        return None if self._count_bookies is None else self._count_bookies()

    def count_bookies_with(self, count: Callable[[], BookieCounts]) -> None:
        """Let `bookies` call `count`, since the logs are on BookKeeper."""
        self._count_bookies = count
