"""How many bytes one read or write of a link carries, so that it is answered in time on a slow network, too (pure)."""

from __future__ import annotations

from sarit.mirror.limits import MIN_MIRROR_BATCH_BYTES, MIRROR_CALL_SECONDS, MIRROR_MESSAGE_BYTES


class BatchSize:
    """The size of the next batch: half after a call that was not answered in time, double after a quick one."""

    def __init__(self) -> None:
        self.bytes = MIRROR_MESSAGE_BYTES

    def __repr__(self) -> str:
        return f"<BatchSize {self.bytes}>"

    def failed(self, seconds: float) -> None:
        """Record that a call failed after so many seconds."""
        if seconds >= MIRROR_CALL_SECONDS / 2:
            self.bytes = max(self.bytes // 2, MIN_MIRROR_BATCH_BYTES)

    def answered(self, seconds: float) -> None:
        """Record that a call was answered after so many seconds."""
        if seconds < MIRROR_CALL_SECONDS / 8:
            self.bytes = min(self.bytes * 2, MIRROR_MESSAGE_BYTES)
