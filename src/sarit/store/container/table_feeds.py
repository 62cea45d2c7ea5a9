"""Feeds: the newest changes of tables that are followed, in memory, with removals, in the order of their batches.

A feed begins when somebody asks for the changes of a table.  It knows what was applied since then, as far back as the
bounds of all feeds together allow.  Who asks for more has to read the table, and may follow it from there on.  After a
restart, or at another store, only a table that did not change meanwhile can be followed on.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from sarit.store.container.operations import serialized_bytes
from sarit.store.limits import MAX_FOLLOWED_TABLES, TABLE_FEED_BYTES, TABLE_FEED_OVERHEAD_BYTES

if TYPE_CHECKING:
    from sarit.store.container.operations import Entry, UpdateTable


class _Feed:
    """The changes of one table behind the position `since`."""

    __slots__ = ("batches", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        self.batches: deque[UpdateTable] = deque()


class TableFeeds:
    """The feeds of one container's tables, by the ids of their segments."""

    def __init__(self) -> None:
        self._feeds: OrderedDict[int, _Feed] = OrderedDict()  # the one that was not asked for the longest is first
        self._order: deque[int] = deque()  # the tables of all batches, oldest first
        self._bytes = 0

    def __repr__(self) -> str:
        return f"<TableFeeds of {len(self._feeds)} tables, {self._bytes} bytes>"

    def __len__(self) -> int:
        return len(self._feeds)

    def note(self, operation: UpdateTable) -> None:
        """Keep a batch that was applied, if its table is followed."""
        feed = self._feeds.get(operation.segment)
        if feed is None or not operation.entries:
            return
        feed.batches.append(operation)
        self._order.append(operation.segment)
        self._bytes += _cost(operation)
        while self._bytes > TABLE_FEED_BYTES:
            self._drop_oldest()

    def read(self, segment: int, length: int, position: int, limit: int) -> tuple[list[Entry], int] | None:
        """Return the changes of a table behind a position, in whole batches of about `limit` bytes, and the position
        behind them.  None: they are not known.  Follows the table from now on.  `length`: the table's position."""
        feed = self._feeds.get(segment)
        if feed is None:
            feed = self._feeds[segment] = _Feed(length)
            while len(self._feeds) > MAX_FOLLOWED_TABLES:
                self._forget(next(iter(self._feeds)))
        self._feeds.move_to_end(segment)
        if position == length:
            return [], position
        if not feed.since <= position < length:
            return None
        found: list[Entry] = []
        size = 0
        for batch in feed.batches:
            if batch.length <= position:
                continue
            if not found and batch.entries[0].version != position:
                return None  # the position is within a batch
            size += _cost(batch)
            if size > limit:
                break
            found += batch.entries
            position_after = batch.length
        return (found, position_after) if found else None  # a batch longer than `limit` is not given in pieces

    def _drop_oldest(self) -> None:
        segment = self._order.popleft()
        feed = self._feeds.get(segment)
        if feed is not None and feed.batches:
            batch = feed.batches.popleft()
            self._bytes -= _cost(batch)
            feed.since = batch.length

    def _forget(self, segment: int) -> None:
        feed = self._feeds.pop(segment)
        self._bytes -= sum(map(_cost, feed.batches))
        self._order = deque(one for one in self._order if one != segment)


def _cost(operation: UpdateTable) -> int:
    """Return the memory of a batch: keys and values, and the objects around them."""
    return sum(serialized_bytes(entry) + TABLE_FEED_OVERHEAD_BYTES for entry in operation.entries)
