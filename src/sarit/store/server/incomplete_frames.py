"""Bounds the memory of incomplete frames and append blocks of all connections together.

A connection holds little more of a frame than its client has sent, but thousands of clients may each send a part and
stop.  The reaper would find them only after a minute.  This bound is exact: above it, the connections with the oldest
incomplete frames are ended.  A frame takes milliseconds on a path that works, so the oldest belong to clients that
stopped, or whose path is far slower than all others.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from sarit.store.limits import INCOMPLETE_FRAMES_SHARE, MIN_INCOMPLETE_FRAMES_BYTES

C = TypeVar("C")


def incomplete_frames_limit(connections_bytes: int) -> int:
    """Return the bytes of incomplete frames that all connections may hold; `connections_bytes`: their whole memory."""
    return max(connections_bytes // INCOMPLETE_FRAMES_SHARE, MIN_INCOMPLETE_FRAMES_BYTES)


class IncompleteFrames(Generic[C]):
    """The bytes of the incomplete frame of each connection, the oldest frame first."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.total_bytes = 0
        self._held: dict[C, int] = {}

    def __repr__(self) -> str:
        return f"<IncompleteFrames, {len(self._held)} connections, {self.total_bytes} bytes>"

    def holds(self, connection: C, held_bytes: int, *, new_frame: bool) -> None:
        """Note the bytes of a connection's incomplete frame; `new_frame`: whether the frame before it was completed."""
        before = self._held.get(connection, 0)
        if new_frame or not held_bytes:
            self._held.pop(connection, None)
        if held_bytes:
            self._held[connection] = held_bytes
        self.total_bytes += held_bytes - before

    def to_end(self) -> list[tuple[C, int]]:
        """Remove and return the connections to end, with their bytes; a single connection may hold any frame."""
        ended = []
        while self.total_bytes > self.max_bytes and len(self._held) > 1:
            connection, held_bytes = next(iter(self._held.items()))
            self.holds(connection, 0, new_frame=False)
            ended.append((connection, held_bytes))
        return ended
