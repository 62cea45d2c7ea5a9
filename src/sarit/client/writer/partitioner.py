"""Where the events of a writer go: the lanes of its stream's segments, through all scaling.

When a segment answers that it is sealed, its successors are asked for (`targets.py`), and everything its lane holds
un-acknowledged is placed anew, by key, in order, before anything newer of those keys.

Events without keys stay with one lane for a while before they go on to another, drawn at random: each lane that has
something in flight makes a container and a log work, and many small blocks in many of them cost everybody more time
than a few good ones.  The while is short in bytes and in time, so that all segments get their share of a fast writer
within a second, and a slow one, whose next event comes when the while is over, draws a lane for each.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from sarit.client.core.framing import Chunk, chunks_of, split_events
from sarit.client.writer.appender_driver import AppenderDriver
from sarit.client.writer.key_ranges import KeyRanges
from sarit.core.keyspace import KeyRange
from sarit.core.limits import KIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sarit.client.core.session import Session
    from sarit.client.core.values import SegmentRange, Successor
    from sarit.client.writer.flush_barrier import FlushBarrier
    from sarit.client.writer.targets import Target
    from sarit.core.errors import SaritError
    from sarit.core.names import SegmentId

log = logging.getLogger(__name__)

STICKY_BYTES: Final = 512 * KIB
STICKY_SECONDS: Final = 0.005


class Partitioner:
    """The lanes of one writer.  `unacked_bytes` are not acknowledged, `blocks_in_flight` are in flight."""

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
        self._dispatch_pending: dict[AppenderDriver, None] = {}
        self._since_barrier: dict[AppenderDriver, None] = {}
        self._sticky: AppenderDriver | None = None  # the lane that takes what has no key, until it has had enough
        self._sticky_bytes = 0
        self._sticky_until = 0.0

    def __repr__(self) -> str:
        return (
            f"Partitioner({self.target!r}, {len(self._drivers)} segments, {self.unacked_bytes} bytes not acknowledged)"
        )

    async def open(self) -> None:
        """Learn the segments.  Raises NotFound, Sealed, Unavailable."""
        segments = await self.target.ranges()
        self.key_ranges = KeyRanges([(s.low, s.high, self._driver(s)) for s in segments])
        self.opened = True

    def drivers(self) -> list[AppenderDriver]:
        """Every lane."""
        return list(self._drivers.values())

    def release(self) -> None:
        """Leave all connections."""
        for driver in self._drivers.values():
            driver.release()

    def written_segments(self) -> list[SegmentId]:
        """The segments that hold acknowledged events, without those that later ones of these came after.

        In the middle of a scale a writer may write to a segment when it has written to what follows that already."""
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
        if driver is None:
            self._ranges[segment] = KeyRange(found.low, found.high)
            driver = self._drivers[segment] = AppenderDriver(
                self._session, self.target.stream, segment, self, self.target.name(segment)
            )
        return driver

    # -- placing ------------------------------------------------------------------------------

    def sticky_driver(self) -> AppenderDriver:
        """The lane for what has no key; drawn at random, by the width of its range, when it is time for another."""
        env = self._session.env
        now = env.clock.monotonic()
        if self._sticky is None or self._sticky_bytes <= 0 or now >= self._sticky_until:
            self._sticky = self.key_ranges.at(env.random.random())
            self._sticky_bytes = STICKY_BYTES
            self._sticky_until = now + STICKY_SECONDS
        return self._sticky

    def add(self, driver: AppenderDriver, chunk: Chunk) -> None:
        """Give a chunk to a lane."""
        driver.add(chunk)
        if driver is self._sticky:
            self._sticky_bytes -= chunk.length
        self._dispatch_pending[driver] = self._since_barrier[driver] = None

    def add_all(self, chunks: Iterable[Chunk]) -> None:
        """Give chunks to the only lane; those of events without keys, to the lanes whose turn it is."""
        only = self.key_ranges.only
        for chunk in chunks:
            self.add(only or self.sticky_driver(), chunk)

    def place(self, events: list[bytes], keys: list[str | None] | None) -> None:
        """Give events to their lanes; those without keys stay with a lane for a while."""
        if not events:
            return
        if self.key_ranges.only is not None or keys is None:
            self.add_all(chunks_of(events, keys))
            return
        of_key = self.key_ranges.of_key
        chosen: dict[AppenderDriver, None] = {}
        loose = self.sticky_driver() if None in keys else None
        for key, event in zip(keys, events, strict=True):
            driver = loose if key is None else of_key[key]
            assert driver is not None
            driver.events.append(event)
            driver.keys.append(key)
            chosen[driver] = None
        for driver in chosen:
            for chunk in chunks_of(driver.events, driver.keys[:]):
                self.add(driver, chunk)
            driver.events.clear()
            driver.keys.clear()

    def partition(self, batch: list[Any]) -> None:
        """Give a writer's intake (events, keys before their events, bulks) to the lanes."""
        if type(batch[0]) is bytes:
            try:
                chunks = list(chunks_of(batch))
            except TypeError:  # framing takes bytes alone: there is a key or a bulk among them
                pass
            else:
                self.add_all(chunks)
                return
        kinds = set(map(type, batch))
        if kinds == {str, bytes}:
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
                self.place(events, keys)
                events, keys = [], []
                item.place(self)
        self.place(events, keys)

    def place_barrier(self, barrier: FlushBarrier) -> None:
        """Let `barrier` pass when everything placed so far is acknowledged."""
        self._place_on(barrier, self._drivers.values())

    def place_barrier_since_last(self, barrier: FlushBarrier) -> None:
        """Let `barrier` pass when all lanes that were given something since the last such mark have it acknowledged."""
        given, self._since_barrier = self._since_barrier, {}
        self._place_on(barrier, given)

    def _place_on(self, barrier: FlushBarrier, drivers: Iterable[AppenderDriver]) -> None:
        for driver in drivers:
            appender = driver.appender
            if appender.busy:
                barrier.add_appender()
                appender.barriers.append((appender.accepted_events, barrier))
        barrier.appender_passed()

    def due(self, more: int = 0) -> bool:
        """Whether a lane may send something now; else acknowledgements come first, and the pump after them.

        `more`: bytes that the only lane is still to be given.  Several lanes are not looked at here, for each mark: the
        pump does it once for many."""
        if not self.opened:
            return False
        only = self.key_ranges.only
        if more and only is not None:
            return only.due(True, more)
        pending = self._dispatch_pending
        return len(pending) > 1 or any(driver.due(driver is only) for driver in pending)

    def dispatch(self, urgent: bool) -> None:
        """Let lanes send that have something new to send; `urgent`: all, without gathering."""
        pending = self._dispatch_pending
        if urgent:
            pending.update(dict.fromkeys(self._drivers.values()))
        if pending:
            self._dispatch_pending = {}
            for driver in pending:
                driver.dispatch(urgent, driver is self.key_ranges.only)

    # -- what lanes report ----------------------------------------------------------------------

    def progressed(self, driver: AppenderDriver) -> None:
        """A lane may send again."""
        self._dispatch_pending[driver] = None
        self._on_progress()

    def failed(self, error: BaseException) -> None:
        """No retry can help."""
        self._on_failure(error)

    def sealed(self, driver: AppenderDriver, error: SaritError) -> None:
        """A segment takes no more."""
        log.info("%s: placing %d bytes elsewhere", error, driver.appender.unacked_bytes)
        self._session.background.spawn(self._move_on(driver), f"successors of {driver.appender.segment}")

    async def _move_on(self, old: AppenderDriver) -> None:
        try:
            self._hand_over(old, await self.target.successors(old.segment))
        except Exception as error:  # whatever it is: nobody else would tell the writer
            self.failed(error)

    def _hand_over(self, old: AppenderDriver, successors: Sequence[Successor]) -> None:
        """Let `successors` take the place of a lane, and all that it holds.  Raises Corrupt."""
        for successor in successors:
            self._session.assume_endpoint(self.target.stream, successor.segment, old.segment)
        targets = [(s.low, s.high, self._driver(s)) for s in successors]
        self.key_ranges.replace(old, targets)
        if self._drivers.get(old.segment) is old:
            self._note_written(old)
            del self._drivers[old.segment], self._ranges[old.segment]
        if self._sticky is old:
            self._sticky = None
        self._dispatch_pending.pop(old, None)
        self._since_barrier.pop(old, None)  # what it holds is given to its successors
        barriers = Counter(barrier for _, barrier in old.appender.barriers)
        for chunk in old.take():
            self._replace(chunk, targets[0][2] if len(targets) == 1 else None)
        for barrier, times in barriers.items():
            self.place_barrier(barrier)
            for _ in range(times - 1):  # once per lane is enough: else they would multiply with every scale
                barrier.appender_passed()
        self._on_progress()

    def _replace(self, chunk: Chunk, only: AppenderDriver | None) -> None:
        if only is not None or chunk.keys is None:
            self.add(only or self.sticky_driver(), chunk)
            return
        keys: Any = chunk.keys
        keys = keys.to_pylist() if hasattr(keys, "to_pylist") else keys
        if chunk.large:
            self.add(self.key_ranges.of_key[keys[0]] if keys[0] is not None else self.sticky_driver(), chunk)
        else:
            self.place(split_events(chunk.data), keys)
