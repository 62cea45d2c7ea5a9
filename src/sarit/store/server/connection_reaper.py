"""Chooses the connections to end because they hold memory and make no progress; the caller passes the time.

A connection holds memory in three ways: replies that its client does not take, a frame that is begun and not
finished, and appends that are not durable yet.  Each is bounded per connection.  Thousands of connections need a bound
for all together, so the limits per connection shrink as the number of connections grows (`unsent_limit`,
`unacked_limit`), and the listener evaluates all connections every REAP_INTERVAL_SECONDS:

- A connection that made no progress for CONNECTION_STALLED_SECONDS is ended, with one line in the log.  A client that
  pauses for less (stopped, swapped out, its network cut for a while) survives.
- While all connections together hold more than MAX_CONNECTIONS_MEMORY_BYTES, those without progress for longest are
  ended.  A connection that made progress since the last evaluation is ended last, and only for this bound.

A connection that sent no complete request in its first FIRST_REQUEST_SECONDS is also ended: the number of connections
is bounded.

A connection that we do not read from (`StoreConnection.paused`) cannot finish its frame, so it counts as progressing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from sarit.store.limits import (
    CONNECTION_STALLED_SECONDS,
    FIRST_REQUEST_SECONDS,
    MAX_CONNECTION_UNACKED_BYTES,
    MAX_CONNECTION_UNSENT_BYTES,
    MAX_CONNECTIONS_MEMORY_BYTES,
    MIN_CONNECTION_UNACKED_BYTES,
    MIN_CONNECTION_UNSENT_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def unsent_limit(connections: int, total: int = MAX_CONNECTIONS_MEMORY_BYTES) -> int:
    """Return the bytes of unsent replies at which a connection gets no more answers, with `connections` open ones.

    All limits together stay below `total` bytes, down to MIN_CONNECTION_UNSENT_BYTES for each."""
    return _limit(connections, total, MAX_CONNECTION_UNSENT_BYTES, MIN_CONNECTION_UNSENT_BYTES)


def unacked_limit(connections: int, total: int = MAX_CONNECTIONS_MEMORY_BYTES) -> int:
    """Return the bytes of unacknowledged appends at which a connection is not read, with `connections` open ones.

    Without this limit a slow disk and a thousand writers would fill the memory with appends that wait."""
    return _limit(connections, total, MAX_CONNECTION_UNACKED_BYTES, MIN_CONNECTION_UNACKED_BYTES)


def _limit(connections: int, total: int, maximum: int, minimum: int) -> int:
    # Halve the limit, so that it changes only when the number of connections has about doubled.
    while maximum > minimum and maximum * connections > total:
        maximum //= 2
    return maximum


@dataclass(frozen=True, slots=True)
class ConnectionMemory:
    """The memory that one connection holds now, in bytes; `reads`: how often its socket was read since it opened."""

    unsent_bytes: int
    incomplete_frame_bytes: int
    reads: int
    paused: bool

    @property
    def total_bytes(self) -> int:
        """The sum of all memory of the connection."""
        return self.unsent_bytes + self.incomplete_frame_bytes

    def progressed_since(self, before: ConnectionMemory) -> bool:
        """Return whether the client took replies and sent more of its frame since `before`, as far as it had to."""
        took = not self.unsent_bytes or self.unsent_bytes < before.unsent_bytes
        sent = not self.incomplete_frame_bytes or self.paused or self.reads != before.reads
        return took and sent

    def reason(self) -> str:
        """Return what the connection did, for the log."""
        if self.unsent_bytes >= self.incomplete_frame_bytes:
            return f"did not take {self.unsent_bytes} bytes of replies"
        return f"sent {self.incomplete_frame_bytes} bytes of a frame and stalled"


class Reapable(Protocol):
    """A connection.  `opened`: when it opened, by the reaper's clock.  `requested`: whether it sent a request."""

    opened: float
    requested: bool

    def memory(self) -> ConnectionMemory:
        """Return the memory that the connection holds now."""


C = TypeVar("C", bound=Reapable)


class ConnectionReaper(Generic[C]):
    """The reaper of one listener: it tracks since when each connection has made no progress."""

    def __init__(
        self, stalled_seconds: float = CONNECTION_STALLED_SECONDS, max_bytes: int = MAX_CONNECTIONS_MEMORY_BYTES
    ) -> None:
        self._stalled_seconds = stalled_seconds
        self._max_bytes = max_bytes
        self._seen: dict[C, tuple[ConnectionMemory, float]] = {}

    def __repr__(self) -> str:
        return f"<ConnectionReaper, {len(self._seen)} connections hold memory>"

    def select_silent(self, connections: Sequence[C], now: float) -> list[C]:
        """Return the open connections to end because they sent no request in time; `now` as for `select`."""
        return [c for c in connections if not c.requested and now - c.opened >= FIRST_REQUEST_SECONDS]

    def select(self, connections: Sequence[C], now: float) -> list[tuple[C, str]]:
        """Return the connections to end, with the reason; `now`: seconds of one monotonic clock."""
        seen: dict[C, tuple[ConnectionMemory, float]] = {}
        for connection in connections:
            memory = connection.memory()
            # Skip a connection that holds no memory, however long it is idle.
            if not memory.total_bytes:
                continue
            before = self._seen.get(connection)
            # `since` is the last evaluation that saw progress.
            since = now if before is None or memory.progressed_since(before[0]) else before[1]
            seen[connection] = (memory, since)
        ended = []
        total = sum(memory.total_bytes for memory, _ in seen.values())
        # Begin with the longest without progress, so that the loop may stop at the first one not to end.
        for connection, (memory, since) in sorted(seen.items(), key=lambda item: item[1][1]):
            stalled = now - since >= self._stalled_seconds
            if not stalled and total <= self._max_bytes:
                break
            cause = f" for {now - since:.0f} s" if stalled else "; all connections hold too much"
            ended.append((connection, memory.reason() + cause))
            # Subtract its memory, which the caller frees, so that the next ones may stay.
            total -= memory.total_bytes
            del seen[connection]
        # Replace the dict, so that closed connections are forgotten.
        self._seen = seen
        return ended
