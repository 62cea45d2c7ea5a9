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
from sarit.core.errors import Conflict, Exists, Unavailable
from sarit.lake import commits, cuts, layout
from sarit.lake.dead_letters import DeadCheck, DeadLetters
from sarit.lake.job_state import Intent, JobState
from sarit.lake.limits import MAX_TAIL_POLL_SECONDS, MIN_TAIL_POLL_SECONDS, TAIL_POLLS_PER_INTERVAL
from sarit.lake.ports import Gap
from sarit.lake.statistics import LakeStatistics

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from sarit.env.ports import Env, Worker
    from sarit.lake.ports import Columns, FileWriter, LakeTables, Save, Source, TableView, ValueColumns
    from sarit.lake.settings import IcebergSettings

_log = logging.getLogger("sarit.lake")


@dataclass(slots=True)
class _Written:
    """Files and counts of what an intent's events became."""

    files: list[Any] = field(default_factory=list)
    rows: int = 0
    lost_bytes: int = 0
    dead: DeadCheck = field(default_factory=DeadCheck)
    dead_files: list[Any] = field(default_factory=list)


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
        self._dead_letters = DeadLetters(settings, tables)
        # An intent that this committer stored itself: nobody can have written any of it before.
        self._own_intent = ""

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
        step = commits.next_step(self.settings, self.state, table, stream_id)
        match step:
            case commits.Create():
                await self._create(stream_id)
            case commits.Adopt():
                begin = step.begin_at
                cut = begin if isinstance(begin, StreamCut) else await self._cut(begin)
                await self._store(replace(step.state, cut=cut))
            case commits.Complete():
                await self._complete(step.state, step.intent)
            case commits.Plan():
                return await self._plan(step.start)
            case commits.Finish():
                assert table is not None
                await self._finish(table, step.intent)
        return False

    # -- before an intent -----------------------------------------------------------------------------

    async def _create(self, stream_id: str) -> None:
        values = await self._columns.open(await self._columns.choose())
        schema = layout.table_schema(values.schema, naive_times=self.settings.naive_times)
        properties = {
            cuts.FORMAT: cuts.TABLE_FORMAT, cuts.STREAM_ID: stream_id, cuts.STREAM: str(self._source.stream),
        }  # fmt: skip
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
            behind = await self._source.bytes_behind(start)
            now_ms = self._env.clock.wall_ms()
            self._note_lag(behind, now_ms)
            waited = now_ms - self.state.committed_ms >= self.settings.interval_seconds * 1000
            if behind >= self.settings.target_bytes or (behind and waited):
                break
            if await self._source.is_finished(start):
                if not behind:
                    return True
                break
            await asyncio.sleep(self._poll_seconds())
        end = await self._source.next_cut(start, self.settings.target_bytes)
        if end == start:
            return False
        intent = Intent(
            self._env.random.bytes(16).hex(), start, end, await self._source.ingested_ms(start),
            await self._columns.choose(),
        )  # fmt: skip
        await self._store(replace(self.state, intent=intent))
        self._own_intent = intent.commit
        return False

    def _poll_seconds(self) -> float:
        pause = self.settings.interval_seconds / TAIL_POLLS_PER_INTERVAL
        return min(max(pause, MIN_TAIL_POLL_SECONDS), MAX_TAIL_POLL_SECONDS)

    def _note_lag(self, behind: int, now_ms: int) -> None:
        statistics = self.statistics
        statistics.lag_bytes = behind
        if not behind:
            statistics.behind_since_ms = None
        elif statistics.behind_since_ms is None:
            statistics.behind_since_ms = now_ms

    # -- an intent --------------------------------------------------------------------------------------

    async def _finish(self, table: TableView, intent: Intent) -> None:
        values = await self._columns.open(intent.columns)
        table = await self._evolve(table, values)
        written = await self._write(table, intent, values)
        own = self._own_intent == intent.commit
        try:
            await self._run(lambda: self._dead_letters.commit(intent, written.dead, written.dead_files, own=own))
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
        if written.dead.rows:
            summary[cuts.DEAD_ROWS] = str(written.dead.rows)
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
        try:
            await self._run(lambda: self._tables.append(table, written.files, summary, properties))
        except Conflict as error:
            self.statistics.conflicts += 1
            # Load the table before anything is deleted: a catalog behind a proxy that repeats requests may say Conflict
            # of a commit that was made.
            seen = await self._run(lambda: self._tables.load(self._name))
            if seen is not None and not has_commit(seen, intent.commit):
                await self._run(lambda: self._tables.delete(table, written.files))
            _log.info("commit %s into table %s is tried again: %s", intent.commit, self.settings.table, error)
            return
        except Unavailable:
            self.statistics.unknown_outcomes += 1
            raise
        await self._note(intent, written)

    async def _note(self, intent: Intent, written: _Written) -> None:
        seen = await self._run(lambda: self._tables.load(self._name))
        step = commits.next_step(self.settings, self.state, seen, self.state.stream_id)
        if not isinstance(step, commits.Complete):  # rolled back at once: the next load shows
            return
        await self._complete(step.state, intent, written)

    async def _complete(self, state: JobState, intent: Intent, written: _Written | None = None) -> None:
        """Save that an intent is in the table.  `written`: None: another process, or an unknown attempt, wrote it."""
        written = written or _Written()
        statistics = self.statistics
        statistics.committed_ms = self._env.clock.wall_ms()
        statistics.commits += 1
        statistics.rows += written.rows
        statistics.files += len(written.files)
        statistics.dead_letters += written.dead.rows
        statistics.lost_bytes += written.lost_bytes
        statistics.behind_since_ms = None
        await self._store(
            replace(
                state,
                rows=state.rows + written.rows,
                files=state.files + len(written.files),
                dead_letters=state.dead_letters + written.dead.rows,
                lost_bytes=state.lost_bytes + written.lost_bytes,
                committed_ms=statistics.committed_ms,
            )
        )

    async def _write(self, table: TableView, intent: Intent, values: ValueColumns) -> _Written:
        """Read an intent's events, and write them into files."""
        written = _Written()
        prefix = f"{intent.commit}-{self._env.random.bytes(4).hex()}"
        writer = await self._run(
            lambda: self._tables.writer(table, prefix, intent.ingested_ms, self.settings.target_bytes)
        )
        dead = self._dead_letters.writer(prefix)
        try:
            async with aclosing(self._source.read(intent.start, intent.end)) as parts:  # type: ignore[type-var]
                async for part in parts:
                    if isinstance(part, Gap):
                        written.lost_bytes += part.lost_bytes
                        continue
                    await self._run(partial(self._write_batch, part, intent, values, writer, dead, written))
            written.files = list(await self._run(writer.close))
            written.dead_files = list(await self._run(dead.close))
        except BaseException:
            await self._run(writer.abort)
            await self._run(dead.abort)
            raise
        return written

    def _write_batch(
        self,
        batch: pa.RecordBatch,
        intent: Intent,
        values: ValueColumns,
        writer: FileWriter,
        dead: FileWriter,
        written: _Written,
    ) -> None:
        found = layout.rows(batch, values, intent.ingested_ms * 1000, naive_times=self.settings.naive_times)
        if found.good is not None:
            writer.write(found.good)
            written.rows += len(found.good)
        if found.dead is not None:
            dead.write(found.dead)
            written.dead.add(found.dead)

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
