"""The continuous queries of one stream, carried out: every match goes to its query's output exactly once.

    changes of queries ─▶ events of a second ─▶ index in memory ─▶ all queries ─▶ matches ─▶ a transaction on each
       output ─▶ flushed ─▶ save {cut, end of the batch, transactions} ─▶ commit them ─▶ the next batch

Only a saved state counts (`continuous_plan.py`): whoever is killed before has left transactions behind that nobody
commits; whoever is killed after has left an intent, which the next one carries out before anything else.  A worker that
has lost the job cannot save, and so commits nothing that another one has written again.

A batch without matches is not saved at once: asking about its events again finds nothing either.  While no query holds,
nothing is read, and the first one that is adopted holds from the tail of that moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sarit.core.errors import Unavailable
from sarit.search.continuous_matches import encoded, next_ones
from sarit.search.continuous_plan import ContinuousState, Intent, Outcome, Written, part_of
from sarit.search.continuous_ports import OutputProblem
from sarit.search.limits import (
    CONTINUOUS_ADOPTION_SECONDS,
    CONTINUOUS_BATCH_SECONDS,
    CONTINUOUS_EVENT_POLL_SECONDS,
    CONTINUOUS_LAG_SECONDS,
    CONTINUOUS_SAVE_SECONDS,
    CONTINUOUS_SLICE_EVENTS,
    MAX_CONTINUOUS_BATCH_BYTES,
    MAX_CONTINUOUS_BATCH_EVENTS,
    MAX_CONTINUOUS_REPEATS,
    MAX_COUNTED_CONTINUOUS,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence

    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.env.ports import Env, Worker
    from sarit.search.continuous_matches import Match
    from sarit.search.continuous_plan import Proof
    from sarit.search.continuous_ports import OpenTransaction, Outputs
    from sarit.search.continuous_set import Asked, QuerySet
    from sarit.search.ports import EventSlice, EventSource, Save

_log = logging.getLogger("sarit.search")


@dataclass(slots=True)
class Batch:
    """Events that queries are asked about together.  `end`: the cut behind them."""

    end: StreamCut
    places: list[tuple[int, int]] = field(default_factory=list)
    events: list[bytes] = field(default_factory=list)
    bytes: int = 0
    lost_bytes: int = 0

    def add(self, found: EventSlice) -> None:
        """Add a slice."""
        self.places += [(found.segment, offset) for offset in found.offsets]
        self.events += found.events
        self.bytes += sum(map(len, found.events))
        self.lost_bytes += found.lost_bytes
        self.end = found.end

    @property
    def is_full(self) -> bool:
        """Whether the batch takes no more events."""
        return len(self.events) >= MAX_CONTINUOUS_BATCH_EVENTS or self.bytes >= MAX_CONTINUOUS_BATCH_BYTES

    @property
    def last(self) -> dict[int, int]:
        """The offset of the last event of each segment."""
        return dict(self.places)


@dataclass(slots=True)
class _Begun:
    """A transaction of a batch that is not saved yet."""

    transaction: OpenTransaction
    before: StreamCut
    proof: Proof
    matches: int = 0

    def written(self, output: StreamName) -> Written:
        return Written(output, self.transaction.id, self.before, self.proof, self.matches)


@dataclass(slots=True)
class ContinuousStatistics:
    """Counters of the continuous queries of one stream in this process."""

    queries: int = 0
    suspended: int = 0
    events: int = 0
    matches: int = 0
    by_query: Counter[str] = field(default_factory=Counter)  # matches, by the name of their query
    repeated: int = 0  # transactions that were aborted after they were recorded, and written again
    lag_bytes: int = 0  # of the stream, behind the cut up to which the queries were asked
    behind_since_ms: int | None = None  # since when there is something behind; None: nothing is
    problem: str = ""  # why no query is asked; empty: they are

    def count(self, events: Sequence[tuple[str, bytes]]) -> None:
        """Count matches.  `events`: each with the name of its query."""
        self.matches += len(events)
        self.by_query.update(name for name, _ in events)
        if len(self.by_query) > MAX_COUNTED_CONTINUOUS:  # of many that have come and gone
            self.by_query = Counter(dict(self.by_query.most_common(MAX_COUNTED_CONTINUOUS // 2)))


class Continuous:
    """Asks about the events of a stream until it is sealed and all of it was asked about."""

    def __init__(
        self, source: EventSource, queries: QuerySet, outputs: Outputs, save: Save, env: Env, worker: Worker,
        state: ContinuousState, statistics: ContinuousStatistics | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:  # fmt: skip
        """`state`: as it was saved last, of this stream.  `worker`: runs what takes time; it belongs to the caller."""
        self.state = state
        self.statistics = statistics or ContinuousStatistics()
        self._source = source
        self._queries = queries
        self._outputs = outputs
        self._save = save
        self._clock = env.clock
        self._worker = worker
        self._pause = pause
        self._saved: ContinuousState | None = state  # as it is stored, for certain
        self._saved_at = env.clock.monotonic()
        self._measured_at: float | None = None

    def __repr__(self) -> str:
        return f"<Continuous on {self._source.stream}, {self._queries!r}>"

    async def run(self) -> None:
        """Ask until the stream has ended.  Raises Fenced, Unavailable, NotFound, Corrupt."""
        await self._queries.load()
        await self.resolve()
        while not await self._follow():
            pass

    @property
    def cut(self) -> StreamCut:
        """The cut up to which the queries were asked."""
        assert self.state.cut is not None
        return self.state.cut

    # -- batches ------------------------------------------------------------------------------------

    async def _follow(self) -> bool:
        """Ask about one batch after another.  Returns whether the stream has ended; False: begin to read again."""
        if not await self._adopt():
            if await self._source.is_finished(self.cut):
                await self._store(self.state)
                return True
            await self._save_at_times()
            await self._pause(CONTINUOUS_BATCH_SECONDS)
            return False
        async with aclosing(self._source.follow(self.cut)) as slices:
            while True:
                batch, begin = await self._gather(slices), self.cut
                # After the events were read: rights that were taken away before an event was written are gone.
                if not await self._adopt() or self.cut != begin or not await self._process(batch):
                    return False
                await self._note_lag()
                if not batch.events and await self._source.is_finished(self.cut):
                    await self._store(self.state)
                    return True

    async def _adopt(self) -> bool:
        """Adopt the changes of queries at the present cut.  Returns whether any query holds then."""
        while True:
            await self._queries.load()
            asked = await self._queries.asked()
            if not asked.queries:  # nothing was missed: what is before the tail is of no query
                self.state = replace(self.state, cut=await self._source.edge("tail"))
            await self._change()
            if not self._queries.is_stale:
                break
        asked = await self._queries.asked()
        self.statistics.queries, self.statistics.suspended = len(self._queries), self._queries.suspended
        return bool(asked.queries)

    async def _change(self) -> None:
        """Carry out the changes that are due, or some of them if they are many: events wait for a moment only."""
        begun = self._clock.monotonic()
        while changes := await self._queries.changes(self.cut):
            # Stored even if it is the same: a worker that has lost the job learns it here.
            await self._store(self.state)
            await self._queries.apply(changes)
            if self._queries.is_stale or self._clock.monotonic() - begun >= CONTINUOUS_ADOPTION_SECONDS:
                return

    async def _gather(self, slices: AsyncGenerator[EventSlice | None, None]) -> Batch:
        """Return what comes within the time of a batch; none: nothing came."""
        batch, begun = Batch(self.cut), self._clock.monotonic()
        async for found in slices:
            if found is not None:
                batch.add(found)
            late = self._clock.monotonic() - begun >= CONTINUOUS_BATCH_SECONDS
            if batch.is_full or late:
                break
            if found is None:
                await self._pause(CONTINUOUS_EVENT_POLL_SECONDS)
        else:  # nothing can come any more, or the stream has to be asked again
            await self._pause(CONTINUOUS_EVENT_POLL_SECONDS)
        return batch

    async def _process(self, batch: Batch) -> bool:
        """Bring the matches of a batch to the outputs.  Returns whether that was done; False: an output cannot be
        written to, and the batch has to be asked about again without its queries."""
        begun: dict[StreamName, _Begun] = {}
        try:
            await self._write(batch, await self._queries.asked(), begun)
            for each in begun.values():
                await each.transaction.flush()
        except OutputProblem as error:
            await self._discard(begun)
            self._queries.note_problem(error.output, str(error))
            return False
        except BaseException as error:
            await self._leave(begun, error)
            raise
        self.statistics.events += len(batch.events)
        state = replace(
            self.state,
            events=self.state.events + len(batch.events),
            lost_bytes=self.state.lost_bytes + batch.lost_bytes,
        )
        if not begun:
            self.state = replace(state, cut=batch.end)
            await self._save_at_times()
            return True
        await self._record(replace(state, intent=self._intent(batch.end, batch.last, begun)), begun)
        await self.resolve()
        return True

    def _intent(self, end: StreamCut, last: dict[int, int], begun: dict[StreamName, _Begun]) -> Intent:
        return Intent(end, last, tuple(each.written(output) for output, each in begun.items()))

    async def _record(self, state: ContinuousState, begun: dict[StreamName, _Begun]) -> None:
        """Save an intent.  Its transactions are left to their leases whatever happens: it may be saved although the
        save failed, and then the next worker commits them."""
        try:
            await self._store(state)
        finally:
            for each in begun.values():
                each.transaction.release()

    async def _discard(self, begun: dict[StreamName, _Begun]) -> None:
        """Abort the transactions of a batch that no saved state names."""
        for each in begun.values():
            await each.transaction.abort()

    async def _leave(self, begun: dict[StreamName, _Begun], error: BaseException) -> None:
        """Abort them after an error; leave them to their leases if this task has to end at once."""
        if isinstance(error, Exception):
            await self._discard(begun)
        for each in begun.values():
            each.transaction.release()

    # -- matches ------------------------------------------------------------------------------------

    async def _write(self, batch: Batch, asked: Asked, begun: dict[StreamName, _Begun]) -> None:
        """Write the matches of a batch into transactions, which are begun as they are needed."""
        for first in range(0, len(batch.events), CONTINUOUS_SLICE_EVENTS):
            part = slice(first, first + CONTINUOUS_SLICE_EVENTS)
            matches = await self._worker.run(lambda part=part: self._matches(batch, part, asked))  # type: ignore[misc]
            while found := await self._worker.run(lambda matches=matches: next_ones(matches)):  # type: ignore[misc]
                for output, (proof, events) in found.items():
                    if output not in begun:
                        before = await self._outputs.tail(output)
                        begun[output] = _Begun(await self._outputs.begin(output), before, proof)
                    await begun[output].transaction.write(events)
                    begun[output].matches += len(events)
                    self.statistics.count(events)

    def _matches(self, batch: Batch, part: slice, asked: Asked) -> Iterator[Match]:
        """Return an iterator over the matches of a part of a batch: those of a query in the order of the events."""
        places, events = batch.places[part], batch.events[part]
        timed = self._queries.language.batch(events, asked.compiled.wanted)
        return encoded(asked, asked.compiled.match(timed.index), places, events, timed.times)

    # -- intents ------------------------------------------------------------------------------------

    async def resolve(self) -> None:
        """Carry out the intent that is stored, if there is one.  Raises Unavailable, Fenced."""
        for _ in range(MAX_CONTINUOUS_REPEATS):
            if (intent := self.state.intent) is None:
                return
            aborted = [each for each in intent.written if await self._outcome(each) is Outcome.ABORTED]
            if not aborted:
                self.state = self.state.done(self._clock.wall_ms())
                return
            await self._repeat(intent, aborted)
        raise Unavailable(
            "transactions with matches are aborted again and again: look who aborts them, or why they expire"
        )

    async def _outcome(self, each: Written) -> Outcome:
        outcome = await self._outputs.commit(each.output, each.transaction)
        if outcome is Outcome.GONE:
            _log.warning("%d matches are lost with their output: stream %s is gone", each.matches, each.output)
        if outcome is not Outcome.UNKNOWN:
            return outcome
        found = await self._outputs.has(each.output, each.before, each.proof)
        if found is None:
            _log.error(
                "nobody knows whether the %d matches of transaction %s are in %s: they are not written again",
                each.matches, each.transaction, each.output,
            )  # fmt: skip
            self.state = replace(self.state, unclear=self.state.unclear + 1)
        return Outcome.ABORTED if found is False else Outcome.COMMITTED

    async def _repeat(self, intent: Intent, aborted: Sequence[Written]) -> None:
        """Write the matches of transactions again that were aborted although they were recorded, and save the new
        intent: with them alone, since the others were committed."""
        self.statistics.repeated += len(aborted)
        lacking = {each.output for each in aborted}
        _log.warning(
            "transactions with matches for %s were aborted, and are written again", ", ".join(map(str, lacking))
        )
        batch = await self._read_again(intent)
        begun: dict[StreamName, _Begun] = {}
        while True:
            try:
                await self._write(batch, await self._queries.asked_for(lacking), begun)
                for each in begun.values():
                    await each.transaction.flush()
                break
            except OutputProblem as error:
                await self._discard(begun)
                begun = {}
                self._queries.note_problem(error.output, str(error))
                lacking.discard(error.output)
            except BaseException as error:
                await self._leave(begun, error)
                raise
        committed = sum(each.matches for each in intent.written if each not in aborted)
        new = self._intent(intent.end, dict(intent.last), begun)
        await self._record(replace(self.state, intent=new, matches=self.state.matches + committed), begun)

    async def _read_again(self, intent: Intent) -> Batch:
        """Return the events of an intent's batch, as far as they still exist."""
        batch = Batch(self.cut)
        async with aclosing(self._source.follow(self.cut)) as slices:
            async for found in slices:
                if found is None:
                    if not await self._source.bytes_behind(batch.end):
                        break
                    await self._pause(CONTINUOUS_EVENT_POLL_SECONDS)
                    continue
                batch.add(part_of(intent, found))
                if await self._source.is_before(intent.end, found.end):
                    break
        return batch

    async def _note_lag(self) -> None:
        """Note how far the queries are behind, now and then: each segment of the stream is asked for it."""
        now = self._clock.monotonic()
        if self._measured_at is None or now - self._measured_at >= CONTINUOUS_LAG_SECONDS:
            self._measured_at = now
            self.statistics.lag_bytes = await self._source.bytes_behind(self.cut)
            self.statistics.problem = ""
            if not self.statistics.lag_bytes:
                self.statistics.behind_since_ms = None
            elif self.statistics.behind_since_ms is None:
                self.statistics.behind_since_ms = self._clock.wall_ms()

    async def _save_at_times(self) -> None:
        """Save progress without matches, now and then: retention holds what is behind the saved cut."""
        if self.state != self._saved and self._clock.monotonic() - self._saved_at >= CONTINUOUS_SAVE_SECONDS:
            await self._store(self.state)

    async def _store(self, state: ContinuousState) -> None:
        """Save a state.  What it says is true only then."""
        self._saved = None
        await self._save(state.encode(), state.cut)
        self.state = self._saved = state
        self._saved_at = self._clock.monotonic()
