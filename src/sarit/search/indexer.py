"""The indexer of one stream: it adds events to shards, and stores each commit as one step.

    take over ─▶ follow the stream ─▶ download the growing shard ─▶ documents ─▶ the shard, in a local directory
                       ▲                  (with the first event)                         │ every few seconds
                       └───────────────────── save(state, held) ◀── upload ◀─────────────┘

*Each event once.*  A commit uploads files that nobody knows of yet, and then saves the state of the job, which names
them and the cut up to which they reach.  Whoever takes over continues at that cut, with those files; what was uploaded
and not saved, nobody refers to.  Of two indexers one alone can save.

*Old blobs.*  A search may hold a state of some minutes ago.  So a blob that nothing refers to any more is deleted an
hour after it was seen first, and only after a save since then has shown that no other indexer has the job: the blobs of
another one would look the same.

*Many streams.*  A growing shard takes memory and threads, so a process has some only (`growing_slots.py`).  An indexer
waits for its turn before it makes one or takes one up again.  Its turn ends with a commit, while others wait; then the
shard is closed locally, as it is when there have been no events for long.

Whatever blocks or computes is done on a worker thread.
"""

from __future__ import annotations

import logging
import math
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from sarit.core.errors import Conflict, Unavailable
from sarit.search import index_plan
from sarit.search.documents import Place
from sarit.search.field_values import order_key, time_of_key
from sarit.search.growing_slots import GrowingSlots
from sarit.search.index_plan import CommitTimes, Uncommitted
from sarit.search.limits import (
    APPENDED_SECONDS,
    GARBAGE_SECONDS,
    GROWING_TURN_SECONDS,
    HOUSEKEEPING_SECONDS,
    IDLE_SHARD_SECONDS,
    MAX_UNCOMMITTED_BYTES,
    OLD_BLOB_SECONDS,
)
from sarit.search.ports import Indexed
from sarit.search.shard_files import download, read_file, upload
from sarit.search.state import IndexState, Shard, decode_shards, encode_shards
from sarit.search.statistics import IndexStatistics
from sarit.search.sweep import REGISTERED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from sarit.core.cuts import StreamCut
    from sarit.env.ports import Buffer, Env, Worker
    from sarit.search.documents import Document
    from sarit.search.mapping import Mapping as FieldMapping
    from sarit.search.ports import Blobs, EventSlice, EventSource, Rows, Save, ShardEngine, ShardWriter
    from sarit.search.settings import SearchSettings

_log = logging.getLogger("sarit.search")


class Maker(Protocol):
    """Makes documents of events."""

    def document(self, event: bytes) -> Document:
        """Return the document of an event.  Raises Unavailable: the registry of schemas."""


class Fields(Protocol):
    """The fields of the events of a stream.  Calls compute: make them on a worker."""

    def maker(self, mapping: FieldMapping) -> Maker:
        """Return what makes documents with the fields of a mapping."""

    def infer(self, events: Sequence[bytes]) -> FieldMapping:
        """Return the fields of some events."""


class _Growing:
    """The shard that grows, in a local directory.  `stored`: its files in blobs, by name."""

    def __init__(self, shard: Shard, blob: str, directory: Path, writer: ShardWriter, maker: Maker) -> None:
        self.shard = shard
        self.blob = blob
        self.directory = directory
        self.writer = writer
        self.maker = maker
        self.stored = {file.name: file for file in shard.files}

    def __repr__(self) -> str:
        return f"<_Growing {self.shard.id} in {self.directory}>"


class Indexer:
    """Indexes one stream for as long as it has the job."""

    def __init__(
        self, settings: SearchSettings, source: EventSource, blobs: Blobs, rows: Rows, engine: ShardEngine,
        fields: Fields, save: Save, env: Env, worker: Worker, directory: Path, state: bytes = b"",
        statistics: IndexStatistics | None = None, slots: GrowingSlots | None = None,
    ) -> None:  # fmt: skip
        """`state`: as it was saved last.  `worker`: runs what blocks; it belongs to the caller.  `directory`: for
        directories of shards, of this indexer alone.  `slots`: of all indexers of the process.  Raises Corrupt."""
        self.settings = settings
        self.state = IndexState.decode(state)
        self.shards: list[Shard] = []
        self.statistics = statistics or IndexStatistics()
        self._source = source
        self._blobs = blobs
        self._rows = rows
        self._engine = engine
        self._fields = fields
        self._save = save
        self._env = env
        self._worker = worker
        self._directory = directory
        self._slots = slots or GrowingSlots()
        self._growing: _Growing | None = None
        self._turn_began = 0.0
        self._added: Uncommitted | None = None
        self._count = 0  # of documents, to tell events of one millisecond apart
        self._housekept_at = self._collected_at = self._fed_at = env.clock.monotonic()
        self._times = CommitTimes(env.clock.monotonic, settings.interval_seconds)
        self._appended: tuple[float, int] | None = None
        self._is_at_tail = False
        # Blobs that nothing refers to, and since when that is known.
        self._old: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Indexer of {self._source.stream}, at {self.state.cut}>"

    async def run(self) -> None:
        """Index until the job is another worker's.  Raises Fenced, Unavailable, Invalid, NotFound, Corrupt, OSError."""
        try:
            cut = await self._take_over()
            found_events = self._source.follow(
                cut, lambda: math.inf if self._added is None else self._times.until_due()
            )
            async with aclosing(found_events) as slices:
                async for found in slices:
                    await self._step(found)
        finally:
            await self._drop_growing()

    async def _step(self, found: EventSlice | None) -> None:
        now = self._env.clock.monotonic()
        if found is None:
            self._is_at_tail = True
        else:
            await self._take(found)
        added = self._added
        if added is not None and (self._times.until_due() <= 0 or added.size >= MAX_UNCOMMITTED_BYTES):
            await self._commit(added)
        # Who has nothing to add at the moment needs no whole turn.
        is_over = self._is_at_tail or now - self._turn_began >= GROWING_TURN_SECONDS
        if is_over and self._added is None and self._slots.is_wanted:
            await self._drop_growing()
        if now - self._housekept_at >= HOUSEKEEPING_SECONDS:
            self._housekept_at = now
            await self._keep_house()

    # -- taking over ----------------------------------------------------------------------------------

    async def _take_over(self) -> StreamCut:
        """Return the cut to go on at, with the shards as they were stored."""
        stream_id = await self._source.identity()
        if self.state.stream_id != stream_id or self.state.cut is None:
            cut = await self._source.edge(self.settings.start)
            await self._store(IndexState(stream_id, cut))
        await self._register()
        state = self.state
        if state.closed is not None:
            listed = await read_file(self._blobs, state.closed)
            self.shards = await self._run(partial(decode_shards, listed))
        self._note()
        assert state.cut is not None
        return state.cut

    async def _register(self) -> None:
        """Enter the index for the sweep, before it has any blob."""
        key, value = REGISTERED + self.state.stream_id.encode(), str(self._source.stream).encode()
        (found,) = await self._rows.get([key])
        try:
            await self._rows.put(key, value, None if found is None else found[1])
        except Conflict:
            raise Unavailable(f"the index of {self._source.stream} is entered by another process; try again") from None

    async def _resume(self, shard: Shard) -> _Growing:
        """Return the growing shard from its stored files."""
        directory = self._new_directory()
        try:
            await download(self._blobs, shard.files, directory, self._env.files, self._worker)
            maker = await self._run(partial(self._fields.maker, shard.mapping))
            writer: ShardWriter = await self._run(partial(self._engine.resume, directory, shard.mapping))
        except BaseException:
            await self._run(partial(self._engine.discard, directory))
            raise
        self._growing = _Growing(shard, shard.files[0].blob, directory, writer, maker)
        self._count = shard.events
        return self._growing

    def _new_directory(self) -> Path:
        return self._directory / self._env.random.bytes(8).hex()

    # -- events ---------------------------------------------------------------------------------------

    async def _take(self, found: EventSlice) -> None:
        """Add the events of a slice to the growing shard."""
        before = self.state.cut if self._added is None else self._added.end
        assert before is not None
        if self._added is None:
            self._added = Uncommitted(found.end)
        if found.events:
            growing = await self._current(found.events)
            appended_ms = await self._appended_ms(before)
            await self._run(partial(self._add, growing, found, appended_ms, self._added))
        self._added.end = found.end
        self._added.lost_bytes += found.lost_bytes
        self._added.size += sum(map(len, found.events))
        self._is_at_tail = False

    async def _current(self, events: Sequence[bytes]) -> _Growing:
        """Return the shard that grows: at hand, or as it is stored, or a new one."""
        self._fed_at = self._env.clock.monotonic()
        if self._growing is not None:
            return self._growing
        asked_at = self._env.clock.monotonic()
        await self._slots.take(self._wait)
        try:
            self._turn_began = self._env.clock.monotonic()
            # Events gather for an interval from now on, not from before a long wait.
            self._times.put_off(self._turn_began - asked_at)
            stored = self.state.growing
            return await (self._open(events) if stored is None or not stored.files else self._resume(stored))
        except BaseException:
            self._slots.give_back()
            raise

    async def _wait(self) -> None:
        """Show, while others have their turns, how far the index is behind, and end if the job is another worker's."""
        await self._store(self.state)
        await self._note_lag()

    async def _open(self, events: Sequence[bytes]) -> _Growing:
        """Make a new shard."""
        mapping = self.settings.mapping
        if mapping is None:
            before = self.shards[-1].mapping if self.shards else None
            found = await self._run(partial(self._fields.infer, events))
            mapping = index_plan.merged(before, found)
        directory = self._new_directory()
        maker = await self._run(partial(self._fields.maker, mapping))
        writer: ShardWriter = await self._run(partial(self._engine.create, directory, mapping))
        assert self.state.cut is not None
        shard_id, now_ms = self._env.random.bytes(8).hex(), self._env.clock.wall_ms()
        shard = Shard(shard_id, mapping, 0, 0, 0, self.state.cut, (), opened_ms=now_ms)
        self._growing = _Growing(shard, self._new_blob(), directory, writer, maker)
        return self._growing

    async def _appended_ms(self, before: StreamCut) -> int:
        """Return about when events behind a cut were appended.  At the tail: now."""
        now = self._env.clock.monotonic()
        if self._is_at_tail:
            self._appended = None
            return self._env.clock.wall_ms()
        if self._appended is None or now - self._appended[0] >= APPENDED_SECONDS:
            self._appended = now, await self._source.appended_ms(before)
        return self._appended[1]

    def _add(self, growing: _Growing, found: EventSlice, appended_ms: int, added: Uncommitted) -> None:
        """Make documents of events, and add them to a shard (on the worker)."""
        documents, times = [], []
        for offset, event in zip(found.offsets, found.events, strict=True):
            document = growing.maker.document(event)
            key = order_key(appended_ms if document.time_ms is None else document.time_ms, self._count)
            self._count += 1
            documents.append(Indexed(Place(found.segment, offset), key, document))
            times.append(time_of_key(key))
            added.partly += bool(document.problem)
        growing.writer.add(documents)
        added.add_times(times)

    # -- commits --------------------------------------------------------------------------------------

    async def _commit(self, added: Uncommitted) -> None:
        """Store what was added, and the cut behind it, in one step."""
        begun, growing, now_ms = self._env.clock.monotonic(), self._growing, self._env.clock.wall_ms()
        if growing is None:  # nothing but truncated bytes was read, and the shard that grows is not here
            stored = self.state.growing
            files = [] if stored is None else list(stored.files)
            state = index_plan.committed(self.state, added, stored, files, _bytes_of(self.shards), now_ms)
        else:
            names, contents = await self._run(partial(growing.writer.commit, frozenset(growing.stored)))
            files = await self._uploaded(growing.blob, names, contents, growing.stored)
            state = index_plan.committed(self.state, added, growing.shard, files, _bytes_of(self.shards), now_ms)
        await self._store(state)
        self._added = None
        self._times.ended(begun)
        if growing is not None:
            assert state.growing is not None
            growing.shard = state.growing
            growing.stored = {file.name: file for file in state.growing.files}
        statistics = self.statistics
        statistics.commits += 1
        statistics.events += added.events
        statistics.partly += added.partly
        statistics.lost_bytes += added.lost_bytes
        self._note()
        await self._note_lag()
        await self._close_if_due()

    async def _uploaded(
        self, blob: str, names: Sequence[str], contents: Mapping[str, Buffer], stored: Mapping[str, Any]
    ) -> list[Any]:
        """Upload new files, and return all files of a shard in order."""
        found = dict(stored) | {file.name: file for file in await upload(self._blobs, blob, contents)}
        return [found[name] for name in names]

    async def _close_if_due(self) -> None:
        state, now_ms = self.state, self._env.clock.wall_ms()
        if state.growing is not None and index_plan.is_due_to_close(state.growing, len(state.encode()), now_ms):
            await self._close_shard()

    async def _close_shard(self) -> None:
        """Merge the growing shard, and store it in a blob of its own: the one in which it grew has many old files."""
        growing = await self._current(())
        await self._run(growing.writer.merge)
        names, contents = await self._run(partial(growing.writer.commit, frozenset()))
        files = await self._uploaded(self._new_blob(), names, contents, {})
        shard = replace(growing.shard, files=tuple(files), closed=True)
        await self._store_shards([*self.shards, shard], None)
        await self._drop_growing()

    async def _store_shards(self, shards: list[Shard], growing: Shard | None) -> None:
        closed = None
        if shards:
            listed = await self._run(partial(encode_shards, shards))
            (closed,) = await upload(self._blobs, self._new_blob(), {"shards": listed})
        stored_bytes = _bytes_of(shards) + (0 if growing is None else index_plan.length_of(growing.files))
        await self._store(
            replace(self.state, closed=closed, closed_shards=len(shards), growing=growing, stored_bytes=stored_bytes)
        )
        self.shards = shards
        self._note()

    async def _store(self, state: IndexState) -> None:
        await self._save(state.encode(), state.cut)
        self.state = state

    def _new_blob(self) -> str:
        return f"{self.state.stream_id}/{self._env.random.bytes(12).hex()}"

    # -- what is old ----------------------------------------------------------------------------------

    async def _keep_house(self) -> None:
        """Close a shard that is old, drop those whose events are truncated, and delete old blobs."""
        if self._added is None:
            await self._close_if_due()
            # A stream in which little happens needs neither threads nor files here: the next event gets them back.
            if self._env.clock.monotonic() - self._fed_at >= IDLE_SHARD_SECONDS:
                await self._drop_growing()
        kept = list(self.shards)
        while kept and await self._source.is_truncated(kept[0].end):
            del kept[0]
        if len(kept) != len(self.shards):
            _log.info("%d shards of %s are truncated", len(self.shards) - len(kept), self._source.stream)
            await self._store_shards(kept, self.state.growing)
        else:
            # An index that was deleted, and made again, shows at a save only; without events there may be none.
            await self._store(self.state)
        await self._note_lag()
        now = self._env.clock.monotonic()
        if now - self._collected_at >= GARBAGE_SECONDS:
            self._collected_at = now
            await self._collect(now)

    async def _collect(self, now: float) -> None:
        """Delete blobs to which nothing has referred for long."""
        needed = index_plan.blobs_of(self.state, self.shards)
        if self._growing is not None:
            needed.add(self._growing.blob)
        found = await self._blobs.names(f"{self.state.stream_id}/")
        self._old = {name: self._old.get(name, now) for name in found if name not in needed}
        due = [name for name, since in self._old.items() if now - since >= OLD_BLOB_SECONDS]
        if due:
            # Nobody else has the job, so nobody has made a blob that was listed.
            await self._store(self.state)
            for name in due:
                await self._blobs.delete(name)
                del self._old[name]

    # -- the world ------------------------------------------------------------------------------------

    def _note(self) -> None:
        statistics, state = self.statistics, self.state
        statistics.shards = len(self.shards) + (state.growing is not None)
        statistics.index_bytes = state.stored_bytes
        statistics.committed_ms = state.committed_ms

    async def _note_lag(self) -> None:
        statistics, cut = self.statistics, self.state.cut
        assert cut is not None
        statistics.lag_bytes = await self._source.bytes_behind(cut)
        if not statistics.lag_bytes:
            statistics.behind_since_ms = None
        elif statistics.behind_since_ms is None or not self._is_at_tail:
            appended = self._appended
            statistics.behind_since_ms = self._env.clock.wall_ms() if appended is None else appended[1]

    async def _drop_growing(self) -> None:
        growing, self._growing = self._growing, None
        if growing is not None:
            try:
                await self._run(growing.writer.close)
                await self._run(partial(self._engine.discard, growing.directory))
            finally:
                self._slots.give_back()

    async def _run(self, call: Callable[[], Any]) -> Any:
        return await self._worker.run(call)


def _bytes_of(shards: Sequence[Shard]) -> int:
    return sum(index_plan.length_of(shard.files) for shard in shards)
