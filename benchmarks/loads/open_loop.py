"""Open-loop timing and percentiles, shared by the load generators.

Open loop means that event k is due at `start + k / rate`, whatever the server does.  Its latency counts from that
moment, not from the moment it was sent.  Otherwise a generator that waits for a slow server would not measure the
events that it did not send meanwhile (coordinated omission).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

EVENT_BYTES: Final = 100
TICK_SECONDS: Final = 0.00025
_CLOCK_MONOTONIC: Final = 1
_NONBLOCKING: Final = os.O_NONBLOCK


class Ticker:
    """Calls back every `seconds` on the running loop, from a timerfd: timers of asyncio and libuv count whole ms."""

    def __init__(self, call: Callable[[], None], seconds: float = TICK_SECONDS) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCKING)
        whole, part = divmod(int(seconds * 1e9), 1_000_000_000)
        libc.timerfd_settime(self._fd, 0, struct.pack("qqqq", whole, part, whole, part), None)
        self._call = call
        asyncio.get_running_loop().add_reader(self._fd, self._due)

    def _due(self) -> None:
        os.read(self._fd, 8)
        self._call()

    def stop(self) -> None:
        """Stop the callbacks."""
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)


class Latencies:
    """Latencies of events due at a fixed rate and acknowledged in batches; every single event counts."""

    def __init__(self, start: float, rate: float) -> None:
        self.start = start
        self.rate = rate
        self._batches: list[tuple[int, int, float]] = []

    def acked(self, first: int, end: int, at: float) -> None:
        """Events `first` up to `end` were acknowledged at the monotonic time `at`."""
        self._batches.append((first, end, at))

    def seconds(self, skip_seconds: float = 0.0) -> Any:
        """Latency of each event due after `skip_seconds`, in seconds."""
        skip = int(skip_seconds * self.rate)
        parts = [
            at - self.start - np.arange(max(first, skip), end) / self.rate
            for first, end, at in self._batches
            if end > skip
        ]
        return np.concatenate(parts) if parts else np.empty(0)

    def between(self, spans: list[tuple[float, float]]) -> list[Any]:
        """Of each span of monotonic times, the latencies of the events that were due in it."""
        firsts, ends, times = np.array(self._batches).T
        found = []
        for low, high in spans:
            begin, end = (round((at - self.start) * self.rate) for at in (low, high))
            chosen = (ends > begin) & (firsts < end)
            part = Latencies(self.start, self.rate)
            for first, last, at in zip(firsts[chosen], ends[chosen], times[chosen], strict=True):
                part.acked(max(int(first), begin), min(int(last), end), at)
            found.append(part.seconds())
        return found

    def during(self, windows: list[tuple[float, float]], skip_seconds: float = 0.0) -> Any:
        """Latencies of the batches that were under way at some moment of `windows` (monotonic times)."""
        chosen = Latencies(self.start, self.rate)
        begins = sorted(windows)
        for first, end, at in self._batches:
            due = self.start + first / self.rate
            if any(low <= at and due <= high for low, high in begins):
                chosen.acked(first, end, at)
        return chosen.seconds(skip_seconds)


def percentiles(seconds: Any) -> dict[str, float]:
    """p50, p95, p99 and max in ms."""
    if not len(seconds):
        return {}
    p50, p95, p99, most = np.percentile(seconds, [50, 95, 99, 100]) * 1000
    return {"p50_ms": round(p50, 3), "p95_ms": round(p95, 3), "p99_ms": round(p99, 3), "max_ms": round(most, 1)}


def now() -> float:
    """Seconds of the clock that all processes of a machine share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def event_at(moment: float) -> bytes:
    """An event of 100 bytes that says when it was due."""
    return struct.pack("<d", moment).ljust(EVENT_BYTES, b"x")
