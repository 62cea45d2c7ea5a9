"""The counters of a store since it started; a rate is the difference of two readings.

Each part of the store adds to plain attributes.  An append makes no call for that: sums are updated once for all
appends of a frame, and at most one append and one frame are measured in SAMPLE_SECONDS.  A reader calls
`complete_samples` first, which counts the appends and frames since the last measured ones.
"""

from __future__ import annotations

from sarit.core.histogram import COUNTS, DURATIONS, LATENCIES, SIZES, Histogram


class Sampling:
    """Histograms of sampled values: each measured value counts for all the values since the one measured before it.

    `at`: when the last measured value began, by the monotonic clock.  `due`: whether the next value is to be measured,
    of a sampling that a timer renews."""

    __slots__ = ("_counted", "_last", "at", "due", "histograms")

    def __init__(self, *histograms: Histogram) -> None:
        self.at = float("-inf")
        self.due = True
        self.histograms = histograms
        self._counted = 0
        self._last: tuple[float, ...] = ()

    def __repr__(self) -> str:
        return f"<Sampling, {self._counted} counted>"

    def renew(self) -> None:
        """Have the next value measured."""
        self.due = True

    def observe(self, total: int, *values: float) -> None:
        """Add a measured value, also for the unmeasured ones before it.  `total`: the number of all values so far."""
        self._last = values
        self._count(max(1, total - self._counted))

    def complete(self, total: int) -> None:
        """Count the values since the last measured one as equal to it.  `total`: the number of all values so far."""
        if self._last and total > self._counted:
            self._count(total - self._counted)

    def _count(self, times: int) -> None:
        self._counted += times
        for histogram, value in zip(self.histograms, self._last, strict=True):
            histogram.observe(value, times)


class StoreStatistics:
    """Counters of one store, over all its containers and their epochs; sizes in bytes, times in seconds.

    `append_seconds`: from the read of the connection that brought the append whole, to its acknowledgement.
    `frame_seconds`: from the frame's first operation to its acknowledgements.
    `append_sampling`: the samples of `append_seconds`.
    `frame_sampling`: the samples of `frame_seconds`, `frame_operations` and `frame_bytes`.
    `throttled_at`: when the present throttling of appends began, by the monotonic clock; None: appends do not wait.
    `throttled_seconds`: how long all earlier throttling took."""

    __slots__ = (
        "append_bytes",
        "append_events",
        "append_sampling",
        "append_seconds",
        "appends",
        "backup_completed_ms",
        "backup_failed_ms",
        "backups_failed",
        "cache_block_hits",
        "cache_block_misses",
        "checkpoint_seconds",
        "compacted_bytes",
        "connections_accepted",
        "connections_refused",
        "damage_found",
        "frame_bytes",
        "frame_operations",
        "frame_sampling",
        "frame_seconds",
        "frames",
        "metadata_hits",
        "metadata_misses",
        "read_bytes",
        "read_seconds",
        "reads",
        "reads_from_chunks",
        "received_bytes",
        "recovery_failures",
        "recovery_seconds",
        "replayed_bytes",
        "replayed_frames",
        "scrubbed_bytes",
        "sent_bytes",
        "throttled_appends",
        "throttled_at",
        "throttled_seconds",
    )

    def __init__(self) -> None:
        self.appends = self.append_events = self.append_bytes = 0
        self.append_seconds = Histogram(LATENCIES)
        self.append_sampling = Sampling(self.append_seconds)
        self.frames = 0
        self.frame_operations = Histogram(COUNTS)
        self.frame_bytes = Histogram(SIZES)
        self.frame_seconds = Histogram(LATENCIES)
        self.frame_sampling = Sampling(self.frame_seconds, self.frame_operations, self.frame_bytes)
        self.reads = self.reads_from_chunks = self.read_bytes = 0
        self.read_seconds = Histogram(LATENCIES)
        self.received_bytes = self.sent_bytes = 0
        self.connections_accepted = self.connections_refused = 0
        self.throttled_appends = 0
        self.throttled_seconds = 0.0
        self.throttled_at: float | None = None
        self.cache_block_hits = self.cache_block_misses = 0
        self.metadata_hits = self.metadata_misses = 0
        self.checkpoint_seconds = Histogram(DURATIONS)
        self.compacted_bytes = 0
        self.recovery_seconds = Histogram(DURATIONS)
        self.recovery_failures = 0
        self.replayed_frames = self.replayed_bytes = 0  # by the recovery of containers
        self.scrubbed_bytes = self.damage_found = 0
        self.backups_failed = 0
        self.backup_completed_ms = self.backup_failed_ms = 0  # when the last one ended, since 1970; 0: none yet

    def observe_append(self, seconds: float) -> None:
        """Add the latency of an acknowledged append, which `appends` does not count yet."""
        self.append_sampling.observe(self.appends + 1, seconds)

    def observe_frame(self, seconds: float, operations: int, size: int) -> None:
        """Add the measures of an acknowledged frame, which `frames` counts already."""
        self.frame_sampling.observe(self.frames, seconds, operations, size)

    def complete_samples(self) -> None:
        """Bring the sampled histograms up to this moment, for a reader who compares them with the counters."""
        self.append_sampling.complete(self.appends)
        self.frame_sampling.complete(self.frames)

    def __repr__(self) -> str:
        return f"<StoreStatistics, {self.appends} appends of {self.append_bytes} bytes>"

    def throttle(self, now: float) -> None:
        """Record that appends wait from now on."""
        if self.throttled_at is None:
            self.throttled_at = now

    def release(self, now: float) -> None:
        """Record that appends do not wait any more."""
        self.throttled_seconds, self.throttled_at = self.seconds_throttled(now), None

    def seconds_throttled(self, now: float) -> float:
        """Return for how many seconds appends were throttled since the start."""
        return self.throttled_seconds + (now - self.throttled_at if self.throttled_at is not None else 0.0)
