"""Routes the events of a writer to segments, also while the stream scales.

*Key ranges.*  `KeyRanges` assigns parts of the key space [0, 1) to appenders.  When the segment of an appender is
sealed, its successors get the ranges of that appender, and only those.  Ranges of appenders not known to be sealed
stay, even where a successor covers them too.  Thus an event can only follow its predecessors of the same key: what the
old appender still holds goes to the successor before newer events.

*Sealed segments.*  When a segment answers that it is sealed, its successors are requested (`targets.py`).  Everything
its appender holds unacknowledged is placed again, by key, in order, before anything newer of those keys.

*Events without keys* stay with one appender (it is *sticky*) for a share of bytes or a short time before the next is
drawn.  Each appender with blocks in flight costs a container and a log some work, and many small blocks cost more than
a few large ones.  So shares are small in the first round alone and double with each: a hundred events reach all
segments, and a fast writer is soon at STICKY_BYTES.  Draws of one round are a segment's width apart, from a random
start: a round leaves out no segment, and segments of unequal width get events by their width.  A slow writer draws an
appender for each event.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sarit.client.core.framing import Chunk, chunks_of, framed_bytes, split_events
from sarit.client.limits import (
    FIRST_STICKY_BYTES,
    MAX_CACHED_KEYS,
    STICKY_BYTES,
    STICKY_SECONDS,
    WRITE_CHUNK_BYTES,
)
from sarit.client.writer.appender_driver import AppenderDriver
from sarit.client.writer.segment_appender import FlushBarrier
from sarit.core.errors import Corrupt
from sarit.core.keyspace import KeyRange, hash_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sarit.client.core.values import SegmentRange, Successor
    from sarit.client.session.session import Session
    from sarit.client.writer.targets import Target
    from sarit.core.errors import SaritError
    from sarit.core.names import SegmentId

log = logging.getLogger(__name__)

L = TypeVar("L")


class _AppenderOfKey(dict[str, L]):
    """Key -> appender; hashes a key that it has not seen.  Indexing it is the cheapest way from key to appender."""

    __slots__ = ("_key_ranges",)

    def __init__(self, key_ranges: KeyRanges[L]) -> None:
        super().__init__()
        self._key_ranges = key_ranges

    def __missing__(self, key: str) -> L:
        # A hash costs 0.5 to 1 µs (docs/decisions/0401).  Cleared as a whole: an order of use would cost each event.
        if len(self) >= MAX_CACHED_KEYS:
            self.clear()
        appender = self[key] = self._key_ranges.at(hash_key(key))
        return appender


class KeyRanges(Generic[L]):
    """The key space by appender, as ranges (low, high, appender) in ascending order.

    `of_key[key]` is the appender of a key; `only` the one that takes everything, if one does.  A key hash equal to a
    segment's upper bound belongs to that segment (naming.md 3)."""

    __slots__ = ("_highs", "_ranges", "of_key", "only")

    def __init__(self, ranges: Sequence[tuple[float, float, L]]) -> None:
        self._set(sorted(ranges, key=lambda found: found[0]))

    def _set(self, ranges: list[tuple[float, float, L]]) -> None:
        end = 0.0
        for low, high, _ in ranges:
            # Compared exactly: neighbours share the double that the controller assigned.
            if low != end:
                raise Corrupt(f"the stream's segments leave a hole in the key space at {end}")
            end = high
        if end != 1.0:
            raise Corrupt(f"the stream's segments end at {end}, not at 1.0")
        # Neighbours of one appender, which a merge leaves, become one range: if it is the only one, its appender is
        # `only`.
        joined: list[tuple[float, float, L]] = []
        for low, high, appender in ranges:
            if joined and joined[-1][2] is appender:
                joined[-1] = (joined[-1][0], high, appender)
            else:
                joined.append((low, high, appender))
        self._ranges = joined
        self._highs = [high for _, high, _ in joined]
        # A new cache: the old one may name an appender that was replaced.
        self.of_key: dict[str, L] = _AppenderOfKey(self)
        self.only: L | None = joined[0][2] if len(joined) == 1 else None

    def __len__(self) -> int:
        return len(self._ranges)

    def at(self, position: float) -> L:
        """Return the appender that takes `position` of the key space."""
        # The first upper bound at or above it: a bound belongs to the range below.
        return self._ranges[bisect_left(self._highs, position)][2]

    def replace(self, old: L, successors: Sequence[tuple[float, float, L]]) -> None:
        """Hand the ranges of `old` to `successors` (their ranges and appenders).  Raises Corrupt."""
        ranges = []
        for low, high, appender in self._ranges:
            if appender is not old:
                # Stays, even where a successor covers it (a merge): its appender may hold events of those keys.
                ranges.append((low, high, appender))
                continue
            for start, end, successor in successors:
                # Cut to the old range: the rest of a merged successor belongs to appenders not known to be sealed.
                if max(low, start) < min(high, end):
                    ranges.append((max(low, start), min(high, end), successor))
        self._set(sorted(ranges, key=lambda found: found[0]))


class Partitioner:
    """The appenders of one writer; `unacked_bytes` and `blocks_in_flight` are sums over all of them."""

    def __init__(
        self,
        session: Session,
        target: Target,
        on_progress: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.target = target
        self.unacked_bytes = 0
        self.blocks_in_flight = 0
        self.key_ranges: KeyRanges[AppenderDriver] = None  # type: ignore[assignment]
        self.opened = False
        self._session = session
        self._on_progress = on_progress
        self._on_failure = on_failure
        self._drivers: dict[SegmentId, AppenderDriver] = {}
        self._ranges: dict[SegmentId, KeyRange] = {}
        self._written: dict[SegmentId, KeyRange] = {}
        # Dicts as ordered sets: a simulation must repeat the order.
        self._dispatch_pending: dict[AppenderDriver, None] = {}
        self._since_barrier: dict[AppenderDriver, None] = {}
        self._sticky: AppenderDriver | None = None  # gets the events without keys, until the next is drawn
        self._sticky_bytes = 0
        self._sticky_until = 0.0
        self._share_bytes = FIRST_STICKY_BYTES
        self._round_left = 0  # draws
        self._drawn_at = 0.0  # of the key space

    def __repr__(self) -> str:
        return (
            f"Partitioner({self.target!r}, {len(self._drivers)} segments, {self.unacked_bytes} bytes not acknowledged)"
        )

    def check(self) -> None:
        """Raises AssertionError when the sums are not those of the appenders.  For tests."""
        appenders = [driver.appender for driver in self._drivers.values()]
        assert self.unacked_bytes == sum(appender.unacked_bytes for appender in appenders)
        assert self.blocks_in_flight == sum(appender.blocks_in_flight for appender in appenders)

    async def open(self) -> None:
        """Request the active segments.  Raises NotFound, Sealed, Unavailable."""
        segments = await self.target.ranges()
        self.key_ranges = KeyRanges([(s.low, s.high, self._driver(s)) for s in segments])
        self.opened = True

    def unacked_events(self) -> int:
        """Return the events that were placed and are not acknowledged."""
        appenders = [driver.appender for driver in list(self._drivers.values())]
        return sum(appender.accepted_events - appender.acked_events for appender in appenders)

    def release(self) -> None:
        """Let go of the connections of all segments."""
        for driver in self._drivers.values():
            driver.release()

    def written_segments(self) -> list[SegmentId]:
        """Return the segments with acknowledged events, without predecessors of others among them.

        In the middle of a scale a writer may write to a segment after it has written to a successor of that segment."""
        for driver in self._drivers.values():
            self._note_written(driver)
        ranges = self._written
        self._written = {
            s: keys
            for s, keys in ranges.items()
            if not any(o.epoch > s.epoch and keys.overlaps(ranges[o]) for o in ranges)
        }
        return list(self._written)

    def _note_written(self, driver: AppenderDriver) -> None:
        if driver.appender.acked_events:
            self._written[driver.segment] = self._ranges[driver.segment]

    def _driver(self, found: SegmentRange | Successor) -> AppenderDriver:
        segment = found.segment
        driver = self._drivers.get(segment)
        # A merge names its segment as successor of several: the driver exists the second time.
        if driver is None:
            self._ranges[segment] = KeyRange(found.low, found.high)
            driver = self._drivers[segment] = AppenderDriver(
                self._session, self.target.stream, segment, self, self.target.name(segment)
            )
        return driver

    # -- placing ------------------------------------------------------------------------------

    def sticky_driver(self) -> AppenderDriver:
        """Return the driver for events without keys.

        Another is drawn, by the width of its range, after a share of bytes or STICKY_SECONDS."""
        now = self._session.env.clock.monotonic()
        if self._sticky is None or self._sticky_bytes <= 0 or now >= self._sticky_until:
            self._sticky = self._draw()
            self._sticky_bytes = self._share_bytes
            self._sticky_until = now + STICKY_SECONDS
        return self._sticky

    def _draw(self) -> AppenderDriver:
        """Return the next appender of this round, or the first of a new one."""
        count = len(self.key_ranges)
        if self._round_left:
            self._drawn_at = (self._drawn_at + 1 / count) % 1.0
        else:
            self._round_left = count
            self._drawn_at = self._session.env.random.random()
            if self._sticky is not None:
                self._share_bytes = min(2 * self._share_bytes, STICKY_BYTES)
        self._round_left -= 1
        return self.key_ranges.at(self._drawn_at)

    def chunk_bytes(self, length: Callable[[], int]) -> int:
        """Return the longest chunk of a batch without keys, so that the batch reaches all segments.

        `length`: of the batch, in bytes; it is asked while shares are small only."""
        if self.key_ranges.only is not None:
            return WRITE_CHUNK_BYTES
        if self._share_bytes < STICKY_BYTES:
            self._share_bytes = max(self._share_bytes, min(STICKY_BYTES, -(-length() // len(self.key_ranges))))
        return self._share_bytes

    def add(self, driver: AppenderDriver, chunk: Chunk) -> None:
        """Give a chunk to an appender."""
        driver.appender.add(chunk)
        self.unacked_bytes += chunk.length
        if driver is self._sticky:
            self._sticky_bytes -= chunk.length
        self._dispatch_pending[driver] = self._since_barrier[driver] = None

    def add_all(self, chunks: Iterable[Chunk]) -> None:
        """Give chunks to the only appender; events without keys go to the sticky one."""
        only = self.key_ranges.only
        for chunk in chunks:
            self.add(only or self.sticky_driver(), chunk)

    def place(self, events: list[bytes], keys: list[str | None] | None) -> None:
        """Give events to their appenders; those without keys stay with one for a while."""
        if not events:
            return
        if self.key_ranges.only is not None or keys is None:
            self.add_all(chunks_of(events, keys, self.chunk_bytes(lambda: framed_bytes(events))))
            return
        of_key = self.key_ranges.of_key
        # `events` and `keys` of all drivers are empty between two calls.
        chosen: dict[AppenderDriver, None] = {}
        # One appender for all events without keys in this batch.
        loose = self.sticky_driver() if None in keys else None
        for key, event in zip(keys, events, strict=True):
            driver = loose if key is None else of_key[key]
            assert driver is not None
            driver.events.append(event)
            driver.keys.append(key)
            chosen[driver] = None
        for driver in chosen:
            # The chunk retains the list of keys: hence a copy.  Events are copied by the framing.
            for chunk in chunks_of(driver.events, driver.keys[:]):
                self.add(driver, chunk)
            driver.events.clear()
            driver.keys.clear()

    def partition(self, batch: list[Any]) -> None:
        """Give a writer's intake (events, keys before their events, bulks) to the appenders."""
        if type(batch[0]) is bytes:
            # Optimistic: the framing of plain events checks the types (docs/decisions/0401).  It raises before any is
            # added.
            try:
                chunks = chunks_of(batch, None, self.chunk_bytes(lambda: framed_bytes(batch)))
            except TypeError:  # framing takes bytes alone: there is a key or a bulk among them
                pass
            else:
                self.add_all(chunks)
                return
        kinds = set(map(type, batch))
        if kinds == {str, bytes}:
            # Keys and events alternate, unless an event has no key: then one of the slices is mixed.
            keys, events = batch[::2], batch[1::2]
            if set(map(type, keys)) == {str} and set(map(type, events)) == {bytes}:
                self.place(events, keys)
                return
        self._place_mixed(batch)

    def _place_mixed(self, batch: list[Any]) -> None:
        events: list[bytes] = []
        keys: list[str | None] = []
        key: str | None = None
        for item in batch:
            kind = type(item)
            if kind is bytes:
                events.append(item)
                keys.append(key)
                key = None
            elif kind is str:
                key = item
            else:
                # A bulk: first what was written before it, for the order of each key.
                self.place(events, keys)
                events, keys = [], []
                item.place(self)
        self.place(events, keys)

    def place_barrier(self, done: Callable[[], None]) -> None:
        """Call `done` when everything placed so far is acknowledged."""
        FlushBarrier(done, [driver.appender for driver in self._drivers.values()])

    def place_barrier_since_last(self, done: Callable[[], None]) -> None:
        """Call `done` when all appenders that were given something since the last such barrier have it acknowledged."""
        given, self._since_barrier = self._since_barrier, {}
        FlushBarrier(done, [driver.appender for driver in given])

    def due(self, more: int = 0) -> bool:
        """Return whether an appender may send something now; otherwise a dispatch follows the next acknowledgements.

        `more`: bytes that the only appender is still to be given.  Several appenders are not evaluated here, for each
        barrier: the dispatch does it once for many."""
        if not self.opened:
            return False
        only = self.key_ranges.only
        # The intake is not placed yet: count it as if the only appender had it.
        if more and only is not None:
            return only.due(True, more)
        pending = self._dispatch_pending
        return len(pending) > 1 or any(driver.due(driver is only) for driver in pending)

    def dispatch(self, urgent: bool) -> None:
        """Let the appenders with new chunks send; `urgent`: all appenders, without batching."""
        pending = self._dispatch_pending
        if urgent:
            # Appenders without new chunks may hold some back to batch them.
            pending.update(dict.fromkeys(self._drivers.values()))
        if pending:
            self._dispatch_pending = {}
            only = self.key_ranges.only
            for driver in pending:
                if driver.appender.unacked_bytes:  # otherwise there is nothing to send and no need to connect
                    driver.dispatch(urgent, driver is only)

    # -- what drivers report --------------------------------------------------------------------

    def progressed(self, driver: AppenderDriver) -> None:
        """Schedule a dispatch of a driver, which may send again."""
        self._dispatch_pending[driver] = None
        self._on_progress()

    def failed(self, error: BaseException) -> None:
        """Note an error that cannot be retried."""
        self._on_failure(error)

    def sealed(self, driver: AppenderDriver, error: SaritError) -> None:
        """Record that a segment is sealed."""
        # The driver keeps its range until the successors are known: newer events of its keys queue behind the older
        # ones.
        log.info("%s: placing %d bytes elsewhere", error, driver.appender.unacked_bytes)
        self._session.background.spawn(self._move_on(driver), f"successors of {driver.appender.segment}")

    async def _move_on(self, old: AppenderDriver) -> None:
        try:
            self._hand_over(old, await self.target.successors(old.segment))
        except Exception as error:  # any error: otherwise the writer would not be notified
            self.failed(error)

    def _hand_over(self, old: AppenderDriver, successors: Sequence[Successor]) -> None:
        """Replace an appender by its `successors`, which get all that it holds.  Raises Corrupt."""
        # Nothing is awaited here: no event is placed between the new ranges and the last old chunk.
        for successor in successors:
            self._session.assume_endpoint(self.target.stream, successor.segment, old.segment)
        targets = [(s.low, s.high, self._driver(s)) for s in successors]
        # The ranges first: `_replace` places by them.
        self.key_ranges.replace(old, targets)
        if self._drivers.get(old.segment) is old:
            self._note_written(old)
            del self._drivers[old.segment], self._ranges[old.segment]
        if self._sticky is old:
            self._sticky = None
        self._dispatch_pending.pop(old, None)
        self._since_barrier.pop(old, None)  # what it holds is given to its successors
        # Keep the barriers, which `take` clears.  A barrier may have several entries here, from earlier hand-overs.
        barriers = Counter(barrier for _, barrier in old.appender.barriers)
        for chunk in old.take():
            self._replace(chunk, targets[0][2] if len(targets) == 1 else None)
        for barrier, times in barriers.items():
            # One entry per appender is enough: entries would multiply with every scale.  So all of its entries end
            # here.
            barrier.place_on([driver.appender for driver in self._drivers.values()])
            for _ in range(times - 1):
                barrier.end_wait()
        self._on_progress()

    def _replace(self, chunk: Chunk, only: AppenderDriver | None) -> None:
        if only is not None or chunk.keys is None:
            self.add(only or self.sticky_driver(), chunk)
            return
        keys: Any = chunk.keys
        keys = keys.to_pylist() if hasattr(keys, "to_pylist") else keys
        if chunk.large:
            # A single event, too long for an append: it stays as it is.
            self.add(self.key_ranges.of_key[keys[0]] if keys[0] is not None else self.sticky_driver(), chunk)
        else:
            # Framed again: the successors may divide it.
            self.place(split_events(chunk.data), keys)
