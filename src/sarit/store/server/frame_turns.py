"""Shares the event loop among connections: bounds the frames of one that are served before others have a turn.

One read brings up to 256 KiB, that is, 32,000 frames of 8 bytes.  uvloop reads from one socket 32 times before it reads
the next one.  So frames are counted over reads: after FRAMES_PER_TURN of them the connection waits for its next turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.store.limits import FRAMES_PER_TURN

if TYPE_CHECKING:
    from sarit.env.ports import Buffer

    Frames = list[tuple[int, Buffer]]


class FrameTurns:
    """The frames of one connection that came and are not served yet, in order.

    `left`: how many more frames this turn may serve; at 0 the turn is over."""

    __slots__ = ("_at", "_frames", "left")

    def __init__(self) -> None:
        self._frames: Frames = []
        self._at = 0  # the position of the first frame that is not served
        self.left = FRAMES_PER_TURN

    def __repr__(self) -> str:
        return f"<FrameTurns, {len(self._frames) - self._at} frames wait, {self.left} left in this turn>"

    def received(self, frames: Frames) -> Frames:
        """Add frames that came, and return those to serve now."""
        if not self._frames:
            if len(frames) <= self.left:  # nearly always, so save the call of `_share`
                self.left -= len(frames)
                return frames
            self._frames = frames
        else:
            self._frames += frames
        return self._share()

    def next_turn(self) -> Frames:
        """Begin a turn, and return the frames to serve in it."""
        self.left = FRAMES_PER_TURN
        return self._share()

    def clear(self) -> None:
        """Drop the frames that wait."""
        self._frames, self._at = [], 0

    def _share(self) -> Frames:
        frames, first = self._frames, self._at
        count = len(frames) - first
        if count <= self.left:
            self.left -= count
            self._frames, self._at = [], 0
            return frames[first:] if first else frames
        self._at = first + self.left
        self.left = 0
        return frames[first : self._at]
