"""In which order and at which speed a link copies, as pure decisions.

Higher priority classes go first, and in a class what has waited longest.  The speed is a bound on what is sent in any
time: a piece is sent when all pieces before it have been paid for, and no more is on its way than three eighths of a
second's worth, so that a network that was stuck does not send the rest at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from sarit.core.bucket import Bucket
from sarit.mirror.limits import (
    MAX_DIRECT_BYTES,
    MIN_MIRROR_PIECE_BYTES,
    MIRROR_BATCH_BYTES,
    MIRROR_IN_FLIGHT_BYTES,
    MIRROR_ITEM_BYTES,
    MIRROR_ROUND_BYTES,
    MIRROR_ROUND_SECONDS,
    ROUNDING_SECONDS,
    SHORTEST_TIMER_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_MS_PER_MINUTE: Final = 60_000
_MINUTES_PER_DAY: Final = 24 * 60
# Of a second's bytes: what may be made up for after a timer was late, one piece, and all that is on its way.
_BURST_SHARE: Final = 1 / 16
_PIECE_SHARE: Final = 1 / 8
_IN_FLIGHT_SHARE: Final = 3 / 8


class Turn(NamedTuple):
    """The place of a stream among those that wait: the smallest goes first.  `level`: its class, negated."""

    level: int
    oldest_ms: int


class LinkRate:
    """Bounds from the speed of a link; 0: as fast as it can.  Times in seconds of one monotonic clock."""

    def __init__(self, bytes_per_second: int, now: float) -> None:
        self.bytes_per_second = bytes_per_second
        # Next to nothing is saved up: after a rest the link is not faster than its rate either.
        burst = bytes_per_second * _BURST_SHARE
        self._bucket = Bucket(burst, bytes_per_second, now, most_owed=float("inf")) if bytes_per_second else None

    def __repr__(self) -> str:
        return f"<LinkRate of {self.bytes_per_second or 'any number of'} bytes/s>"

    @property
    def piece_bytes(self) -> int:
        """The most that one call carries."""
        if not self.bytes_per_second:
            return MIRROR_BATCH_BYTES
        return max(MIN_MIRROR_PIECE_BYTES, min(MIRROR_BATCH_BYTES, int(self.bytes_per_second * _PIECE_SHARE)))

    @property
    def in_flight_bytes(self) -> int:
        """The most that is on its way, or in memory, at once."""
        if not self.bytes_per_second:
            return MIRROR_IN_FLIGHT_BYTES
        return max(self.piece_bytes, min(MIRROR_IN_FLIGHT_BYTES, int(self.bytes_per_second * _IN_FLIGHT_SHARE)))

    @property
    def direct_bytes(self) -> int:
        """The longest round that is appended at once."""
        return min(MAX_DIRECT_BYTES, self.piece_bytes)

    @property
    def round_bytes(self) -> int:
        """The bytes after which a round ends: a slow link has short rounds, so that what it has copied counts soon."""
        if not self.bytes_per_second:
            return MIRROR_ROUND_BYTES
        return max(self.direct_bytes, min(MIRROR_ROUND_BYTES, self.bytes_per_second * MIRROR_ROUND_SECONDS))

    def wait(self, now: float) -> float:
        """Return the seconds until another piece may be sent; 0: at once.  No time is too short for a timer."""
        wait = 0.0 if self._bucket is None else self._bucket.wait(now)
        return timer_seconds(wait)

    def use(self, length: int, now: float) -> None:
        """Record that a piece is sent."""
        if self._bucket is not None:
            self._bucket.use(length, now)


def timer_seconds(wait: float) -> float:
    """Return a time to wait that a timer can measure; none at all for what rounding left of a time that is over."""
    return 0.0 if wait < ROUNDING_SECONDS else max(wait, SHORTEST_TIMER_SECONDS)


def closed_seconds(window: tuple[int, int] | None, wall_ms: int) -> float:
    """Return the seconds until a window of minutes of the day (UTC) is open; 0: it is; None: always."""
    if window is None:
        return 0.0
    begin, end = window
    minute = wall_ms / _MS_PER_MINUTE % _MINUTES_PER_DAY
    if begin <= minute < end or (end < begin and (minute >= begin or minute < end)):
        return 0.0
    return (begin - minute) % _MINUTES_PER_DAY * 60


def grouped(lengths: Sequence[int], most_bytes: int, most_items: int) -> list[range]:
    """Cut a list of items of these lengths, in order, into groups for one call each; an item may exceed the bytes."""
    found, start, size = [], 0, 0
    for at, length in enumerate(lengths):
        if at > start and (size + length > most_bytes or at - start >= most_items):
            found.append(range(start, at))
            start, size = at, 0
        size += length
    if start < len(lengths):
        found.append(range(start, len(lengths)))
    return found


def charge(length: int, items: int) -> int:
    """Return what a call counts as, with what it says of each item."""
    return length + items * MIRROR_ITEM_BYTES
