"""The committer of one stream into one Iceberg table: it loads the table, decides (`commits.py`), and does one step.

    load the table ─▶ next step ─┬─ Create, Adopt, Complete ─▶ load it again
                                    ├─ Plan ─▶ wait for the interval, or for enough bytes ─▶ save the intent ─▶ Finish
                                    └─ Finish ─▶ files ─▶ dead letters ─▶ the commit ─▶ save

*An intent* is finished so: its events are read and decoded into files, which no reader sees; the events that could not
be decoded are committed into the dead-letter table, unless it has that commit; then the rows are committed.  A failure
anywhere leaves the intent, and the next load shows what was done.

*Files of a failed attempt* are deleted only if the catalog has said that the commit failed, and the table, loaded
again, does not have it.  Those of an unknown outcome stay: they are the table's, or orphans.

Whatever blocks or computes is done on a worker thread, so the event loop of the process stays free.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sarit.core import cuts as core_cuts
from sarit.core.cuts import StreamCut
from sarit.core.errors import Conflict, Exists, Invalid, Unavailable
from sarit.lake import commits, cuts, layout
from sarit.lake.dead_letters import DeadLetters
from sarit.lake.job_state import Intent, JobState
from sarit.lake.limits import (
    COMMIT_ATTEMPTS,
    MAX_SAMPLE_EVENTS,
    MAX_TAIL_POLL_SECONDS,
    MIN_TAIL_POLL_SECONDS,
    SAMPLE_EVENTS_OF_BATCH,
    TAIL_POLLS_PER_INTERVAL,
)
from sarit.lake.ports import Gap
from sarit.lake.problems import DEAD_LETTERS, TableProblem
from sarit.lake.statistics import LakeStatistics

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from sarit.env.ports import Env, Worker
    from sarit.lake.dead_letters import DeadLetterWriter
    from sarit.lake.layout import DeadPositions
    from sarit.lake.ports import Columns, FileWriter, LakeTables, Save, Source, TableView, ValueColumns
    from sarit.lake.settings import IcebergSettings

_log = logging.getLogger("sarit.lake")


@dataclass(slots=True)
class _Written:
    """Files and counts of what an intent's events became.  `letters`: None: they were committed before."""

    letters: DeadLetterWriter | None
    dead: DeadPositions | None
    files: list[Any] = field(default_factory=list)
    rows: int = 0
    dead_rows: int = 0
    lost_bytes: int = 0


class Committer:
    """Commits a stream into its table until the stream is sealed and all of it is there."""

    def __init__(
        self,
        settings: IcebergSettings,
        source: Source,
        tables: LakeTables,
        columns: Columns,
        save: Save,
        env: Env,
        worker: Worker,
        state: bytes = b"",
        statistics: LakeStatistics | None = None,
    ) -> None:
        """`state`: as it was saved last.  `worker`: runs what blocks; it belongs to the caller.  Raises Corrupt."""
        self.settings = settings
        self.state = JobState.decode(state)
        self.statistics = statistics or LakeStatistics()
        self._source = source
        self._tables = tables
        self._columns = columns
        self._save = save
        self._env = env
        self._worker = worker
        self._name = settings.identifier
        # An intent that this committer has stored itself and not tried yet: nobody has written any of it.
        self._untried = ""
        # When the table was seen to hold the whole stream: what is behind it was appended later.
        self._empty: tuple[StreamCut, int] | None = None

    def __repr__(self) -> str:
        return f"<Committer of {self._source.stream} into {self.settings.table}, at {self.state.cut}>"

    async def run(self) -> None:
        """Commit until the stream has ended.  Raises TableProblem, Fenced, Unavailable, Invalid, NotFound, Corrupt."""
        while not await self.step():
            pass

    async def step(self) -> bool:
        """Carry out the next step.  Returns whether the stream has ended, and is in the table.  Raises as `run`."""
        table = await self._run(lambda: self._tables.load(self._name))
        stream_id = await self._source.identity()
        step = commits.next_step(self.settings, self.state, table, self._source.stream, stream_id)
        match step:
            case commits.Create():
                await self._create(stream_id)
            case commits.Adopt():
                begin = step.begin_at
                cut = begin if isinstance(begin, StreamCut) else await self._cut(begin)
                # A cut from settings or a table is from outside: with one of another stream that stream would be read.
                if cut.stream != self._source.stream:
                    raise Invalid(f"table {self.settings.table} cannot begin at a cut of stream {cut.stream}")
                await self._store(replace(step.state, cut=cut))
            case commits.Complete():
                await self._complete(step)
            case commits.Plan():
                return await self._plan(step.start)
            case commits.Finish():
                assert table is not None
                await self._finish(table, step.intent)
        return False

    # -- before an intent -----------------------------------------------------------------------------

    async def _create(self, stream_id: str) -> None:
        columns = await self._columns.choose("", ())
        values = await self._columns.open(columns)
        schema = layout.table_schema(values.schema, naive_times=self.settings.naive_times)
        properties = {
            cuts.FORMAT: cuts.TABLE_FORMAT, cuts.STREAM_ID: stream_id, cuts.STREAM: str(self._source.stream),
        }  # fmt: skip
        if self.settings.numbered_metadata:
            properties[cuts.NUMBERED_METADATA] = "true"
        try:
            await self._run(lambda: self._tables.create(self._name, schema, layout.PARTITION_COLUMN, properties))
        except Exists:  # another committer created it, or an earlier attempt: the next load shows
            return
        _log.info("table %s was created for stream %s", self.settings.table, self._source.stream)

    async def _cut(self, which: str) -> StreamCut:
        if which in ("head", "tail"):
            return await self._source.edge(which)
        return cuts.parse_cut(which)

    async def _plan(self, start: StreamCut) -> bool:
        """Wait until there is something to commit, and store an intent.  Returns whether the stream has ended."""
        while True:
            now_ms = self._env.clock.wall_ms()
            behind = await self._source.bytes_behind(start)
            self._note_lag(start, behind, now_ms)
            # After a commit that lies in the future, the clock was set back: do not wait until it is there again.
            waited = not 0 <= now_ms - self.state.committed_ms < self.settings.interval_seconds * 1000
            if behind >= self.settings.target_bytes or (behind and waited):
                break
            if await self._source.is_finished(start):
                if not behind:
                    return True
                break
            await asyncio.sleep(self._poll_seconds())
        end = await self._source.next_cut(start, self.settings.target_bytes)
        if end == start:
            await asyncio.sleep(self._poll_seconds())
            return False
        ingested_ms = await self._source.ingested_ms(start)
        if self._empty is not None and self._empty[0] == start:
            ingested_ms = max(ingested_ms, self._empty[1])
        sample = await self._sample(start, end) if self._columns.wants_sample else ()
        columns = await self._columns.choose(self.state.columns, sample)
        self.statistics.ingested_ms = ingested_ms
        intent = Intent(self._env.random.bytes(16).hex(), start, end, ingested_ms, columns)
        await self._store(replace(self.state, intent=intent, columns=columns))
        self._untried = intent.commit
        return False

    async def _sample(self, start: StreamCut, end: StreamCut) -> list[bytes]:
        """Return payloads of the events between two cuts: the first ones of each batch."""
        found: list[bytes] = []
        async with aclosing(self._source.read(start, end)) as parts:
            async for part in parts:
                if isinstance(part, Gap):
                    continue
                head = part.column(0).slice(0, SAMPLE_EVENTS_OF_BATCH)
                found += (await self._run(partial(layout.payloads_of, head))).to_pylist()
                if len(found) >= MAX_SAMPLE_EVENTS:
                    break
        return found[:MAX_SAMPLE_EVENTS]

    def _poll_seconds(self) -> float:
        pause = self.settings.interval_seconds / TAIL_POLLS_PER_INTERVAL
        return min(max(pause, MIN_TAIL_POLL_SECONDS), MAX_TAIL_POLL_SECONDS)

    def _note_lag(self, start: StreamCut, behind: int, now_ms: int) -> None:
        statistics = self.statistics
        statistics.lag_bytes = behind
        if not behind:
            statistics.behind_since_ms = None
            self._empty = start, now_ms
        elif statistics.behind_since_ms is None:
            statistics.behind_since_ms = now_ms

    # -- an intent --------------------------------------------------------------------------------------

    async def _finish(self, table: TableView, intent: Intent) -> None:
        values = await self._columns.open(intent.columns)
        table = await self._evolve(table, values)
        if not self._is_open(table, intent):  # the table was loaded again, and has changed
            return
        letters = DeadLetters(self.settings, self._tables, self.state.stream_id)
        dead = None
        if self._untried != intent.commit:
            dead = await self._run(lambda: letters.committed(intent.commit, intent.ingested_ms))
        self._untried = ""
        written = await self._write(table, intent, values, letters, dead)
        try:
            if written.letters is not None:
                await self._run(partial(letters.commit, intent.commit, written.letters))
        except BaseException:  # the rows were not committed yet, so nobody refers to their files
            await self._run(lambda: self._tables.delete(table, written.files))
            raise
        summary = {
            cuts.STREAM_ID: self.state.stream_id,
            cuts.COMMIT: intent.commit,
            cuts.CUT_FROM: core_cuts.to_text(intent.start),
            cuts.CUT_TO: core_cuts.to_text(intent.end),
            cuts.INGESTED: str(intent.ingested_ms),
        }
        if written.lost_bytes:
            summary[cuts.GAP] = str(written.lost_bytes)
        if written.dead_rows:
            summary[cuts.DEAD_ROWS] = str(written.dead_rows)
        properties = {
            cuts.STREAM_ID: self.state.stream_id,
            cuts.STREAM: str(self._source.stream),
            cuts.COMMIT: intent.commit,
            cuts.CUT: summary[cuts.CUT_TO],
        }
        await self._append(table, intent, written, summary, properties)

    async def _evolve(self, table: TableView, values: ValueColumns) -> TableView:
        schema = layout.table_schema(values.schema, naive_times=self.settings.naive_times)
        try:
            evolved: TableView = await self._run(lambda: self._tables.evolve(self._name, table, schema))
            return evolved
        except Conflict as error:
            raise Unavailable(f"table {self.settings.table} was changed meanwhile: {error}") from None

    async def _append(
        self, table: TableView, intent: Intent, written: _Written, summary: dict[str, str], properties: dict[str, str]
    ) -> None:
        """Commit an intent's files, again on a newer snapshot if others have committed something else meanwhile."""
        for _ in range(COMMIT_ATTEMPTS):
            try:
                await self._run(partial(self._tables.append, table, written.files, summary, properties))
            except Conflict as error:
                self.statistics.conflicts += 1
                _log.info("commit %s into table %s conflicts: %s", intent.commit, self.settings.table, error)
            except Unavailable:
                self.statistics.unknown_outcomes += 1
                raise
            else:
                await self._note(written)
                return
            # Load the table before anything is deleted: a catalog behind a proxy that repeats requests may say Conflict
            # of a commit that was made.
            seen = await self._run(lambda: self._tables.load(self._name))
            if seen is None or has_commit(seen, intent.commit):
                return
            if not self._is_open(seen, intent):
                break
            table = seen
        await self._run(partial(self._tables.delete, table, written.files))
        raise Unavailable(f"table {self.settings.table} is changed by others; commit {intent.commit} is tried again")

    def _is_open(self, table: TableView, intent: Intent) -> bool:
        """Return whether an intent can be committed into a table as it is now."""
        try:
            step = commits.next_step(self.settings, self.state, table, self._source.stream, self.state.stream_id)
        except TableProblem:  # the next load raises it
            return False
        return step == commits.Finish(intent)

    async def _note(self, written: _Written) -> None:
        """Save that an intent is in the table, if the table says so."""
        seen = await self._run(lambda: self._tables.load(self._name))
        step = commits.next_step(self.settings, self.state, seen, self._source.stream, self.state.stream_id)
        if isinstance(step, commits.Complete):  # else it was rolled back at once: the next load shows
            await self._complete(step, written.rows, len(written.files), written.dead_rows, written.lost_bytes)

    async def _complete(
        self, step: commits.Complete, rows: int = 0, files: int = 0, dead_letters: int = 0, lost_bytes: int = 0
    ) -> None:
        """Save that an intent is in the table.  Of one that another process wrote, the counts are in its snapshot."""
        found = step.counts
        if found is not None and not rows and not files:
            rows, files, dead_letters, lost_bytes = found.rows, found.files, found.dead_letters, found.lost_bytes
        statistics = self.statistics
        statistics.committed_ms = self._env.clock.wall_ms()
        statistics.commits += 1
        statistics.rows += rows
        statistics.files += files
        statistics.dead_letters += dead_letters
        statistics.lost_bytes += lost_bytes
        # Until the stream is polled again: what is behind this commit is about as old as what it has.
        statistics.behind_since_ms = statistics.ingested_ms or None
        state = step.state
        await self._store(
            replace(
                state,
                rows=state.rows + rows,
                files=state.files + files,
                dead_letters=state.dead_letters + dead_letters,
                lost_bytes=state.lost_bytes + lost_bytes,
                commits=state.commits + 1,
                committed_ms=statistics.committed_ms,
            )
        )

    async def _write(
        self, table: TableView, intent: Intent, values: ValueColumns, letters: DeadLetters, dead: DeadPositions | None
    ) -> _Written:
        """Read an intent's events, and write them into files."""
        prefix = f"{intent.commit}-{self._env.random.bytes(4).hex()}"
        dead_writer = letters.writer(prefix) if dead is None else None
        written = _Written(dead_writer, dead, dead_rows=0 if dead is None else dead.count)
        writer = await self._run(
            lambda: self._tables.writer(table, prefix, intent.ingested_ms, self.settings.target_bytes)
        )
        try:
            async with aclosing(self._source.read(intent.start, intent.end)) as parts:
                async for part in parts:
                    if isinstance(part, Gap):
                        written.lost_bytes += part.lost_bytes
                        continue
                    await self._run(partial(self._write_batch, part, intent, values, writer, written))
            if dead is not None and not written.lost_bytes:
                letters.check(intent.commit, dead)
            written.files = list(await self._run(writer.close))
        except BaseException:
            await self._run(writer.abort)
            if dead_writer is not None:
                await self._run(dead_writer.abort)
            raise
        return written

    def _write_batch(
        self, batch: pa.RecordBatch, intent: Intent, values: ValueColumns, writer: FileWriter, written: _Written
    ) -> None:
        naive_times = self.settings.naive_times
        found = layout.rows(batch, values, intent.ingested_ms * 1000, naive_times=naive_times, dead=written.dead)
        if found.good is not None:
            writer.write(found.good)
            written.rows += len(found.good)
        if found.dead is None:
            return
        if written.letters is None:
            raise TableProblem(
                DEAD_LETTERS,
                f"events of commit {intent.commit} cannot be decoded any more ({found.dead['error'][0]}), and its dead "
                "letters are committed without them: bring the schemas back as they were",
            )
        written.letters.write(found.dead)
        written.dead_rows += len(found.dead)

    # -- the world ----------------------------------------------------------------------------------------

    async def _store(self, state: JobState) -> None:
        await self._save(state.encode(), state.cut)
        self.state = state

    async def _run(self, call: Callable[[], Any]) -> Any:
        return await self._worker.run(call)


def has_commit(table: TableView, commit: str) -> bool:
    """Return whether a table, or one of its snapshots, has a commit."""
    return table.properties.get(cuts.COMMIT) == commit or any(
        snapshot.summary.get(cuts.COMMIT) == commit for snapshot in table.snapshots
    )
