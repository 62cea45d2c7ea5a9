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
from sarit.client.writer.key_ranges import Slots
from sarit.core.keyspace import KeyRange
from sarit.core.limits import KIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sarit.client.core.session import Session
    from sarit.client.core.values import SegmentRange, Successor
    from sarit.client.writer.flush_barrier import Mark
    from sarit.client.writer.targets import Target
    from sarit.core.errors import SaritError
    from sarit.core.names import SegmentId

log = logging.getLogger(__name__)

STAY_BYTES: Final = 512 * KIB
STAY_SECONDS: Final = 0.005


class Partitioner:
    """The lanes of one writer.  `held_bytes` are not acknowledged, `sent_blocks` are in flight."""

    def __init__(
        self,
        session: Session,
        target: Target,
        on_progress: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.target = target
        self.held_bytes = 0
        self.sent_blocks = 0
        self.slots: Slots[AppenderDriver] = None  # type: ignore[assignment]
        self.opened = False
        self._session = session
        self._on_progress = on_progress
        self._on_failure = on_failure
        self._drivers: dict[SegmentId, AppenderDriver] = {}
        self._ranges: dict[SegmentId, KeyRange] = {}
        self._reached: dict[SegmentId, KeyRange] = {}
        self._touched: dict[AppenderDriver, None] = {}
        self._given: dict[AppenderDriver, None] = {}
        self._stay: AppenderDriver | None = None  # the lane that takes what has no key, until it has had enough
        self._stay_bytes = 0
        self._stay_until = 0.0

    def __repr__(self) -> str:
        return f"Spread({self.target!r}, {len(self._drivers)} segments, {self.held_bytes} bytes held)"

    async def open(self) -> None:
        """Learn the segments.  Raises NotFound, Sealed, Unavailable."""
        segments = await self.target.ranges()
        self.slots = Slots([(s.low, s.high, self._driver(s)) for s in segments])
        self.opened = True

    def drivers(self) -> list[AppenderDriver]:
        """Every lane."""
        return list(self._drivers.values())

    def release(self) -> None:
        """Leave all connections."""
        for driver in self._drivers.values():
            driver.release()

    def reached(self) -> list[SegmentId]:
        """The segments that hold acknowledged events, without those that later ones of these came after.

        In the middle of a scale a writer may write to a segment when it has written to what follows that already."""
        for driver in self._drivers.values():
            self._note(driver)
        ranges = self._reached
        self._reached = {
            s: keys
            for s, keys in ranges.items()
            if not any(o.epoch > s.epoch and keys.overlaps(ranges[o]) for o in ranges)
        }
        return list(self._reached)

    def _note(self, driver: AppenderDriver) -> None:
        if driver.lane.acked_events:
            self._reached[driver.segment] = self._ranges[driver.segment]

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

    def any_driver(self) -> AppenderDriver:
        """The lane for what has no key; drawn at random, by the width of its range, when it is time for another."""
        env = self._session.env
        now = env.clock.monotonic()
        if self._stay is None or self._stay_bytes <= 0 or now >= self._stay_until:
            self._stay = self.slots.at(env.random.random())
            self._stay_bytes = STAY_BYTES
            self._stay_until = now + STAY_SECONDS
        return self._stay

    def add(self, driver: AppenderDriver, chunk: Chunk) -> None:
        """Give a chunk to a lane."""
        driver.add(chunk)
        if driver is self._stay:
            self._stay_bytes -= chunk.length
        self._touched[driver] = self._given[driver] = None

    def add_all(self, chunks: Iterable[Chunk]) -> None:
        """Give chunks to the only lane; those of events without keys, to the lanes whose turn it is."""
        only = self.slots.only
        for chunk in chunks:
            self.add(only or self.any_driver(), chunk)

    def place(self, events: list[bytes], keys: list[str | None] | None) -> None:
        """Give events to their lanes; those without keys stay with a lane for a while."""
        if not events:
            return
        if self.slots.only is not None or keys is None:
            self.add_all(chunks_of(events, keys))
            return
        of_key = self.slots.of_key
        chosen: dict[AppenderDriver, None] = {}
        loose = self.any_driver() if None in keys else None
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

    def place_intake(self, batch: list[Any]) -> None:
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

    def mark(self, mark: Mark) -> None:
        """Let `mark` pass when everything placed so far is acknowledged."""
        self._mark(mark, self._drivers.values())

    def mark_given(self, mark: Mark) -> None:
        """Let `mark` pass when all lanes that were given something since the last such mark have it acknowledged."""
        given, self._given = self._given, {}
        self._mark(mark, given)

    def _mark(self, mark: Mark, drivers: Iterable[AppenderDriver]) -> None:
        for driver in drivers:
            lane = driver.lane
            if lane.busy:
                mark.one_more()
                lane.marks.append((lane.accepted_events, mark))
        mark.one_done()

    def due(self, more: int = 0) -> bool:
        """Whether a lane may send something now; else acknowledgements come first, and the pump after them.

        `more`: bytes that the only lane is still to be given.  Several lanes are not looked at here, for each mark: the
        pump does it once for many."""
        if not self.opened:
            return False
        only = self.slots.only
        if more and only is not None:
            return only.due(True, more)
        touched = self._touched
        return len(touched) > 1 or any(driver.due(driver is only) for driver in touched)

    def pump(self, urgent: bool) -> None:
        """Let lanes send that have something new to send; `urgent`: all, without gathering."""
        touched = self._touched
        if urgent:
            touched.update(dict.fromkeys(self._drivers.values()))
        if touched:
            self._touched = {}
            for driver in touched:
                driver.pump(urgent, driver is self.slots.only)

    # -- what lanes report ----------------------------------------------------------------------

    def progressed(self, driver: AppenderDriver) -> None:
        """A lane may send again."""
        self._touched[driver] = None
        self._on_progress()

    def failed(self, error: BaseException) -> None:
        """No retry can help."""
        self._on_failure(error)

    def sealed(self, driver: AppenderDriver, error: SaritError) -> None:
        """A segment takes no more."""
        log.info("%s: placing %d bytes elsewhere", error, driver.lane.held_bytes)
        self._session.background.spawn(self._move_on(driver), f"successors of {driver.lane.segment}")

    async def _move_on(self, old: AppenderDriver) -> None:
        try:
            self._hand_over(old, await self.target.successors(old.segment))
        except Exception as error:  # whatever it is: nobody else would tell the writer
            self.failed(error)

    def _hand_over(self, old: AppenderDriver, successors: Sequence[Successor]) -> None:
        """Let `successors` take the place of a lane, and all that it holds.  Raises Corrupt."""
        for successor in successors:
            self._session.follows(self.target.stream, successor.segment, old.segment)
        targets = [(s.low, s.high, self._driver(s)) for s in successors]
        self.slots.replace(old, targets)
        if self._drivers.get(old.segment) is old:
            self._note(old)
            del self._drivers[old.segment], self._ranges[old.segment]
        if self._stay is old:
            self._stay = None
        self._touched.pop(old, None)
        self._given.pop(old, None)  # what it holds is given to its successors
        marks = Counter(mark for _, mark in old.lane.marks)
        for chunk in old.take():
            self._replace(chunk, targets[0][2] if len(targets) == 1 else None)
        for mark, times in marks.items():
            self.mark(mark)
            for _ in range(times - 1):  # once per lane is enough: else they would multiply with every scale
                mark.one_done()
        self._on_progress()

    def _replace(self, chunk: Chunk, only: AppenderDriver | None) -> None:
        if only is not None or chunk.keys is None:
            self.add(only or self.any_driver(), chunk)
            return
        keys: Any = chunk.keys
        keys = keys.to_pylist() if hasattr(keys, "to_pylist") else keys
        if chunk.large:
            self.add(self.slots.of_key[keys[0]] if keys[0] is not None else self.any_driver(), chunk)
        else:
            self.place(split_events(chunk.data), keys)
