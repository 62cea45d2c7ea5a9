"""What a store has counted since it started; who wants a rate takes the difference of two readings.

Each part counts what it does anyway, in plain attributes.  On the way of an append there is no call for it: what is
summed is summed once for all appends of a frame, and one append and one frame are measured in SAMPLE_SECONDS.
"""

from __future__ import annotations

from sarit.core.histogram import COUNTS, DURATIONS, LATENCIES, SIZES, Histogram


class StoreStatistics:
    """Counters of one store, over all its containers and their epochs; sizes in bytes, times in seconds.

    `append_seconds`: from the read of the connection that brought the append whole, to its acknowledgement.  Of one
    append; those that became durable since the one before it count with its latency.
    `append_sampled_at`: when the last such append came, by the monotonic clock.
    `frame_seconds`, `frame_operations`, `frame_bytes`: of one frame, from its first operation to its acknowledgements;
    those that became durable since the one before it count like it.
    `frame_sampled_at`: when the last such frame got its first operation, by the monotonic clock.
    `throttled_at`: since when appends wait, by the monotonic clock; `throttled_seconds`: before that, all together."""

    __slots__ = (
        "_measured_appends",
        "_measured_frames",
        "append_bytes",
        "append_events",
        "append_sampled_at",
        "append_seconds",
        "appends",
        "cache_block_hits",
        "cache_block_misses",
        "checkpoint_seconds",
        "compacted_bytes",
        "connections_accepted",
        "connections_refused",
        "damage_found",
        "frame_bytes",
        "frame_operations",
        "frame_sampled_at",
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
        self.append_sampled_at, self._measured_appends = float("-inf"), 0
        self.frames = 0
        self.frame_operations = Histogram(COUNTS)
        self.frame_bytes = Histogram(SIZES)
        self.frame_seconds = Histogram(LATENCIES)
        self.frame_sampled_at, self._measured_frames = float("-inf"), 0
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
        self.replayed_frames = self.replayed_bytes = 0  # by containers that were opened
        self.scrubbed_bytes = self.damage_found = 0

    def observe_append(self, seconds: float) -> None:
        """An append that was measured is acknowledged, and is not in `appends` yet."""
        count = max(1, self.appends + 1 - self._measured_appends)
        self.append_seconds.observe(seconds, count)
        self._measured_appends += count

    def observe_frame(self, seconds: float, operations: int, size: int) -> None:
        """A frame that was measured is acknowledged, and is in `frames`."""
        count = self.frames - self._measured_frames
        self.frame_seconds.observe(seconds, count)
        self.frame_operations.observe(operations, count)
        self.frame_bytes.observe(size, count)
        self._measured_frames = self.frames

    def __repr__(self) -> str:
        return f"<StoreStatistics, {self.appends} appends of {self.append_bytes} bytes>"

    def throttle(self, now: float) -> None:
        """Appends wait from now on."""
        if self.throttled_at is None:
            self.throttled_at = now

    def release(self, now: float) -> None:
        """Appends do not wait any more."""
        self.throttled_seconds, self.throttled_at = self.seconds_throttled(now), None

    def seconds_throttled(self, now: float) -> float:
        """For how long appends have waited, all together."""
        return self.throttled_seconds + (now - self.throttled_at if self.throttled_at is not None else 0.0)
