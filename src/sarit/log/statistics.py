"""What the logs of a process have counted since it started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core.histogram import LATENCIES, SIZES, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class BookieCounts:
    """Bookies that are registered as writable, all known ones, and how many an acknowledgement and a ledger need."""

    writable: int
    known: int
    ack_quorum: int
    ensemble_size: int


class LogStatistics:
    """Counters over all logs of a provider; times in seconds, sizes in bytes.

    Local logs: `sync_seconds` is of one write with its sync, which makes a group of frames durable; `group_bytes` is
    its size.  Logs on BookKeeper: `entry_seconds` is from the first attempt to send an entry until it is done;
    `ledgers_recovered` are those that BookKeeper's own recovery closed while they were written;
    `bookies()` counts those that are registered now, None for local logs."""

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
        """Take the numbers of bookies from `count`: the logs are on BookKeeper."""
        self._count_bookies = count
