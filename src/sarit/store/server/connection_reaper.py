"""Ends connections that hold memory and do not move; decides alone, and reads no clock.

A connection holds memory of ours in three ways: replies that its client does not take, a frame begun and not
finished, and appends that the disk has not taken yet.  All are bounded for each connection, but thousands of them are
not bounded by that.  So the share of each in unsent replies and in appends shrinks as their number grows
(`unsent_share`, `unacked_share`), and the server looks at all every LOOK_SECONDS.

- Who has not moved for STALLED_SECONDS is ended, with one line in the log.  A client that is paused for less
  (stopped, swapped out, its network cut for a while) is not.
- When all together hold more than the node's bound, those that have stood still longest are ended until they do not.
  One that moved since the last look is ended last, and only for the bound.

A connection that we do not read from (`Connection.paused`) cannot finish its frame: that is not held against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from sarit.core.limits import KIB, MAX_CONNECTION_UNACKED_BYTES, MAX_CONNECTION_UNSENT_BYTES, MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOK_SECONDS: Final = 5.0
STALLED_SECONDS: Final = 60.0
MAX_HELD_BYTES: Final = 1024 * MIB
LEAST_UNSENT_BYTES: Final = 256 * KIB
LEAST_UNACKED_BYTES: Final = 256 * KIB


def unsent_share(connections: int) -> int:
    """Bytes of replies that one of so many connections may leave untaken before we stop answering it.

    A power of two; all shares together stay below MAX_HELD_BYTES, as long as there are less than about 4,000."""
    return _share(connections, MAX_CONNECTION_UNSENT_BYTES, LEAST_UNSENT_BYTES)


def unacked_share(connections: int) -> int:
    """Bytes of appends that one of so many connections may have unacknowledged before we read no more of it.

    As `unsent_share`; a slow disk and a thousand writers else fill the memory with what waits for it."""
    return _share(connections, MAX_CONNECTION_UNACKED_BYTES, LEAST_UNACKED_BYTES)


def _share(connections: int, most: int, least: int) -> int:
    while most > least and most * connections > MAX_HELD_BYTES:
        most //= 2
    return most


@dataclass(frozen=True, slots=True)
class Holding:
    """What one connection holds now, in bytes; `received` counts the reads of its life."""

    unsent_bytes: int
    half_frame_bytes: int
    received: int
    paused: bool

    @property
    def held_bytes(self) -> int:
        """Memory it holds."""
        return self.unsent_bytes + self.half_frame_bytes

    def moved_since(self, before: Holding) -> bool:
        """Whether the client took replies, or sent more of its frame (or could not, for our sake)."""
        took = not self.unsent_bytes or self.unsent_bytes < before.unsent_bytes
        sent = not self.half_frame_bytes or self.paused or self.received != before.received
        return took and sent

    def reason(self) -> str:
        """What it did, for the log."""
        if self.unsent_bytes >= self.half_frame_bytes:
            return f"did not take {self.unsent_bytes} bytes of replies"
        return f"began a frame, sent {self.half_frame_bytes} bytes of it and went silent"


class Held(Protocol):
    """A connection."""

    def holding(self) -> Holding:
        """What it holds now."""


C = TypeVar("C", bound=Held)


class ConnectionReaper(Generic[C]):
    """Remembers since when connections have stood still."""

    def __init__(self, stalled_seconds: float = STALLED_SECONDS, max_held_bytes: int = MAX_HELD_BYTES) -> None:
        self._stalled_seconds = stalled_seconds
        self._max_held_bytes = max_held_bytes
        self._seen: dict[C, tuple[Holding, float]] = {}

    def __repr__(self) -> str:
        return f"<Patience with {len(self._seen)} connections>"

    def look(self, connections: Sequence[C], now: float) -> list[tuple[C, str]]:
        """Which of the open connections to end, and why; `now` in seconds of one monotonic clock."""
        seen: dict[C, tuple[Holding, float]] = {}
        for connection in connections:
            holding = connection.holding()
            if not holding.held_bytes:
                continue
            before = self._seen.get(connection)
            since = now if before is None or holding.moved_since(before[0]) else before[1]
            seen[connection] = (holding, since)
        ended = []
        held = sum(holding.held_bytes for holding, _ in seen.values())
        for connection, (holding, since) in sorted(seen.items(), key=lambda item: item[1][1]):
            stalled = now - since >= self._stalled_seconds
            if not stalled and held <= self._max_held_bytes:
                break
            reason = holding.reason() + (f" for {now - since:.0f} s" if stalled else ", and all together hold too much")
            ended.append((connection, reason))
            held -= holding.held_bytes
            del seen[connection]
        self._seen = seen
        return ended
