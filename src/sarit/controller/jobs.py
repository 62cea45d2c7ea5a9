"""Background jobs of streams: rows beside the records of their stream, each with a fencing number.

    create ─▶ settings, progress: fence 0
    a worker claims it: fence + 1 ─▶ works, and saves its state at each step, on the condition that no other has since
    another worker claims it: fence + 1 ─▶ the next save of the first one raises Fenced, and it ends
    the work returns ─▶ done, on the same condition: no worker claims it again

So two workers that both believe that a job is theirs do no harm: a step counts only once its state is saved, and one of
the two cannot save.  What a job writes elsewhere carries the fence, and is removed or ignored unless the state that
refers to it was saved.

*Two rows* in the table of the stream's scope: settings, which never change, and progress (fence, holder, done, problem,
held, state), which its holder alone writes.  `held` is a cut beyond which retention does not truncate the stream, as
one that a subscriber has released (`background/retention.py`).  A job is created in one batch with the condition that
its stream is unchanged, and the rows go when the stream goes: no stream has the jobs of an earlier one of its name.

*An index* of the jobs to run, in a table of its own, is all that workers poll; claims and saves do not change it.  An
entry is made before its job, and removed when the job is done or found to be deleted, so it may be stale.  The first
job creates the table.  Byte formats: docs/formats/controller-records.md.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from sarit.controller import keys
from sarit.controller.catalog import scan_whole
from sarit.controller.limits import (
    MAX_JOB_HELD_SEGMENTS,
    MAX_JOB_NAME_CHARACTERS,
    MAX_JOB_PROBLEM_CHARACTERS,
    MAX_JOB_SETTINGS_BYTES,
    MAX_JOB_STATE_BYTES,
    MAX_JOBS_OF_STREAM,
)
from sarit.controller.model import codec
from sarit.controller.ports import TableUpdate
from sarit.controller.streams import MAX_ATTEMPTS
from sarit.core.errors import Conflict, Corrupt, Exists, Fenced, Invalid, NotFound, Unavailable
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import StreamName
from sarit.core.versioned_objects import Cursor, pack_long, pack_text
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import TypeAlias

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.cuts import Cut
    from sarit.controller.ports import Tables, TableValue
    from sarit.core.cuts import StreamCut

    Rows: TypeAlias = list[TableValue | None]

_FORMAT: Final = b"\1"


class Save(Protocol):
    """Saves the progress of a job that runs."""

    async def __call__(self, state: bytes, held: StreamCut | None = None) -> None:
        """Save the job's state, in place of the one before, and clear its problem.

        `held`: retention truncates the stream at most up to this cut from now on, until the maximum of its policy is
        reached; None: wherever it likes.  The stream may begin after a first `held` already: read its head afterwards,
        which stays.

        Raises Fenced: another worker has claimed the job, or it was deleted; Unavailable: the state may or may not be
        saved, so the run has to end; Invalid."""


class Kinds(Protocol):
    """The kinds of job that an installation knows."""

    def check(self, key: JobKey, settings: bytes) -> None:
        """Check that a job may be created.  Raises Invalid: no such kind, or settings that it does not take."""

    def describe(self, kind: str, state: bytes) -> Mapping[str, str]:
        """Return a job's state for people; empty: of a kind that is not known here, or it cannot be read."""


_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]*")


@dataclass(frozen=True, slots=True)
class JobKey:
    """The identity of a job: the kind of work, the stream, and a name among the stream's jobs of that kind."""

    kind: str
    stream: StreamName
    name: str

    def __str__(self) -> str:
        return f"{self.stream}/{self.kind}/{self.name}"

    def check(self) -> JobKey:
        """Return this key if its kind and name are well formed.  Raises Invalid."""
        for word in (self.kind, self.name):
            if len(word) > MAX_JOB_NAME_CHARACTERS or not _NAME.fullmatch(word):
                raise Invalid(
                    f"{word[:MAX_JOB_NAME_CHARACTERS]!a} is no name of a job: use small letters, digits and '-', at "
                    f"most {MAX_JOB_NAME_CHARACTERS}"
                )
        return self

    def rows(self) -> list[bytes]:
        """Return the keys of the job's two rows, settings and progress, in the table of the scope."""
        return [keys.job_key(kind, self.stream.stream, self.kind, self.name) for kind in (keys.JOBS, keys.JOB_PROGRESS)]


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is stored.

    `settings`: the user's choices.  `state`: the progress, in a form of the job's kind.  `fence`: the number of claims.
    `holder`: the worker that has claimed it, as HOST:PORT; empty: none.  `done`: the job is never run again.  `held`:
    retention truncates up to this cut; None: wherever it likes.  `problem`: why the last run ended early; empty: there
    was progress since."""

    key: JobKey
    settings: bytes = b""
    state: bytes = b""
    fence: int = 0
    holder: str = ""
    done: bool = False
    held: Cut | None = None
    problem: str = ""


if TYPE_CHECKING:
    # Works on a job; when it returns, the job is done for ever.  If it raises anything but Fenced, it is called again
    # after a pause, with the state that was saved last.
    Runner: TypeAlias = Callable[[Job, Save], Awaitable[None]]


class FoundJob(NamedTuple):
    """A job, the table that it is in, and the version of its progress, for `JobTable.claim`."""

    job: Job
    table: str
    version: int


class Claim:
    """A job that one worker has claimed, until another one claims it."""

    def __init__(self, tables: Tables, found: FoundJob) -> None:
        self.job, self._table, self._version = found
        self.saves = 0
        self._tables = tables

    def __repr__(self) -> str:
        return f"<Claim of {self.job.key}, fence {self.job.fence}>"

    async def save(self, state: bytes, held: StreamCut | None = None) -> None:
        """Save the job's progress, as `Save` says."""
        positions = None
        if held is not None:
            if held.stream != self.job.key.stream:
                raise Invalid(f"job {self.job.key} cannot hold data of {held.stream}")
            positions = {segment.packed: offset for segment, offset in held.positions.items()}
        job = replace(self.job, state=state, held=positions, problem="")
        if positions is not None and self.job.held is None:
            await self._begin_to_hold(job)
        else:
            await self._write(job)
        self.saves += 1

    async def finish(self) -> None:
        """Mark the job as done.  Raises Fenced, Unavailable."""
        await self._write(replace(self.job, done=True, holder="", held=None, problem=""))

    async def fail(self, problem: str) -> None:
        """Note why a run ended, for people; other progress stays as it is.  Raises Fenced, Unavailable."""
        shown = printable(problem)
        if shown != self.job.problem:  # each attempt to repeat a run may fail in the same way
            await self._write(replace(self.job, problem=shown))

    async def _begin_to_hold(self, job: Job) -> None:
        # Write the stream's record again unchanged, as a new subscriber does: a truncation that was decided before
        # conflicts, and asks again what is held.
        stream_key, row = keys.stream_key(job.key.stream.stream), job.key.rows()[1]
        for _ in range(MAX_ATTEMPTS):
            try:
                stream, progress = await self._tables.get(self._table, [stream_key, row])
            except NotFound:
                raise _fenced(job) from None
            if stream is None or progress is None or progress.version != self._version:
                raise _fenced(job)
            with suppress(Conflict):  # the stream was changed, or another worker has claimed the job
                return await self._update(job, TableUpdate(stream_key, stream.value, stream.version))
        raise Unavailable(f"stream {job.key.stream} is changed by too many others at once; try again")

    async def _write(self, job: Job) -> None:
        try:
            await self._update(job)
        except Conflict:
            raise _fenced(job) from None

    async def _update(self, job: Job, *others: TableUpdate) -> None:
        """Write the job's progress.  Raises Conflict, Fenced (the scope is gone), Unavailable."""
        # Update the very table that the job was found in: a recreated scope has another table, where the same version
        # may be of another job.
        update = TableUpdate(job.key.rows()[1], _encode_progress(job), self._version)
        try:
            self._version = (await self._tables.update(self._table, [update, *others]))[0]
        except NotFound:
            raise _fenced(job) from None
        self.job = job


class JobTable:
    """All jobs of an installation."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tables = catalog.tables

    def __repr__(self) -> str:
        return f"<JobTable of {self._catalog!r}>"

    # -- for users ----------------------------------------------------------------------------------

    async def create(self, key: JobKey, settings: bytes = b"") -> None:
        """Add a job to a stream.  Raises Exists, NotFound (there is no such stream), Invalid."""
        _check_bytes(key.check(), "settings", settings, MAX_JOB_SETTINGS_BYTES)
        stream_key, rows = keys.stream_key(key.stream.stream), key.rows()
        for _ in range(MAX_ATTEMPTS):
            table, (stream, found) = await self._get(key.stream.scope, [stream_key, rows[0]])
            if stream is None or codec.is_deleting(stream.value):
                raise NotFound(f"stream {key.stream} does not exist")
            # Enter an existing job, too: a worker may have removed the entry before the job's rows were written.
            await self._enter(key)
            if found is not None:
                raise Exists(f"job {key} exists")
            if len(await self._catalog.stream_records(key.stream, keys.JOBS)) >= MAX_JOBS_OF_STREAM:
                raise Invalid(f"stream {key.stream} has {MAX_JOBS_OF_STREAM} jobs, which is the limit: delete some")
            updates = [
                TableUpdate(stream_key, stream.value, stream.version),  # unchanged, to conflict with a deletion
                TableUpdate(rows[0], _FORMAT + settings, NOT_EXISTS),
                TableUpdate(rows[1], _encode_progress(Job(key)), NOT_EXISTS),
            ]
            try:
                await self._catalog.update(key.stream.scope, updates, table)
            except Conflict:
                continue
            await self._enter(key)  # a worker that found no job yet may have removed the entry
            return
        raise Unavailable(f"stream {key.stream} is changed by too many others at once; try again")

    async def list(self, stream: StreamName) -> list[Job]:
        """Return all jobs of a stream, done ones included, in order of kind and name.  Raises NotFound (scope),
        Unavailable, Corrupt."""
        settings = await self._catalog.stream_records(stream, keys.JOBS)
        progress = dict(await self._catalog.stream_records(stream, keys.JOB_PROGRESS))
        found = []
        for row, value in settings:
            kind, name = row.decode().split("/")[-2:]
            key = JobKey(kind, stream, name)
            if (state := progress.get(key.rows()[1])) is not None:  # otherwise it was deleted in between
                found.append(_decode(key, value, state))
        return found

    async def delete(self, key: JobKey) -> None:
        """Remove a job.  A worker that runs it gets Fenced at its next save.  Raises NotFound, Unavailable."""
        (entry,) = await self._entry(key)
        for _ in range(MAX_ATTEMPTS):
            table, (settings, _) = await self._get(key.stream.scope, rows := key.rows())
            if settings is None:
                raise NotFound(f"job {key} does not exist")
            updates = [TableUpdate(rows[0], None, settings.version), TableUpdate(rows[1], None, NO_VERSION)]
            with suppress(Conflict):  # another client deleted the job
                await self._catalog.update(key.stream.scope, updates, table)
                if entry is not None:
                    await self.remove_entry(key, entry.version)
                return
        raise Unavailable(f"job {key} is changed by too many others at once; try again")

    async def find(self, key: JobKey) -> FoundJob | None:
        """Return a job with its progress; None: it does not exist.  Raises Unavailable, Corrupt."""
        with suppress(NotFound):
            table, (settings, progress) = await self._get(key.stream.scope, key.rows())
            if settings is not None and progress is not None:
                return FoundJob(_decode(key, settings, progress), table, progress.version)
        return None

    # -- for workers --------------------------------------------------------------------------------

    async def claim(self, found: FoundJob, holder: str) -> Claim:
        """Claim a job for `holder`, also if another worker holds it.  Raises Fenced (it was changed since it was
        found), Unavailable."""
        claim = Claim(self._tables, found)
        await claim._write(replace(found.job, fence=found.job.fence + 1, holder=holder))
        return claim

    async def release(self, found: FoundJob) -> None:
        """Leave a job, as it was found, to other workers.  Raises Fenced: it was changed since; Unavailable."""
        await Claim(self._tables, found)._write(replace(found.job, holder=""))

    async def position(self) -> int | None:
        """Return a number that rises when a job is created or ends; None: there was no job yet.  Raises Unavailable."""
        try:
            return await self._tables.position(keys.JOBS_TABLE)
        except NotFound:
            return None

    async def entries(self) -> dict[JobKey, int]:
        """Return the jobs to run from the index, each with the version of its entry.  Raises Unavailable, Corrupt."""
        with suppress(NotFound):
            return {_decode_key(key): value.version for key, value in await scan_whole(self._tables, keys.JOBS_TABLE)}
        return {}

    async def remove_entry(self, key: JobKey, version: int) -> None:
        """Remove the entry of an ended job, unless the entry has another version now.  Raises Unavailable."""
        with suppress(Conflict):
            await self._tables.update(keys.JOBS_TABLE, [TableUpdate(str(key).encode(), None, version)])

    async def _enter(self, key: JobKey) -> None:
        with suppress(Exists):
            await self._tables.create(keys.JOBS_TABLE)
        await self._tables.update(keys.JOBS_TABLE, [TableUpdate(str(key).encode(), b"\1", NO_VERSION)])

    async def _entry(self, key: JobKey) -> Rows:
        try:
            return await self._tables.get(keys.JOBS_TABLE, [str(key).encode()])
        except NotFound:
            return [None]

    async def _get(self, scope: str, wanted: Sequence[bytes]) -> tuple[str, Rows]:
        """Return the name of a scope's table, and rows of it.  Raises NotFound (scope)."""

        async def get(table: str) -> tuple[str, Rows]:
            return table, await self._tables.get(table, wanted)

        return await self._catalog.in_scope(scope, get)


def _fenced(job: Job) -> Fenced:
    return Fenced(f"job {job.key} is another worker's now, or is gone")


def printable(problem: str) -> str:
    """Return an error's text as it is stored and shown: bounded, and of characters that can be printed."""
    return "".join(one if one.isprintable() else " " for one in problem[:MAX_JOB_PROBLEM_CHARACTERS])


def held_cut(progress: bytes) -> Cut | None:
    """Return the cut that the progress of a job holds for it; None: it holds nothing.  Raises Corrupt."""
    try:
        return _decode_progress(progress).held
    except Invalid as error:
        raise Corrupt(f"the record of a job is damaged: {error}") from None


def _check_bytes(key: JobKey, what: str, value: bytes, most: int) -> None:
    if len(value) > most:
        raise Invalid(f"the {what} of job {key} have {len(value)} bytes; the most is {most}")


def _encode_progress(job: Job) -> bytes:
    _check_bytes(job.key, "state", job.state, MAX_JOB_STATE_BYTES)
    if job.held is not None and len(job.held) > MAX_JOB_HELD_SEGMENTS:
        raise Invalid(f"job {job.key} holds {len(job.held)} segments; the most is {MAX_JOB_HELD_SEGMENTS}")
    held = b"\0" if job.held is None else b"\1" + codec.pack_cut(job.held)
    head = (_FORMAT, bytes((job.done,)), pack_long(job.fence), pack_text(job.holder), pack_text(job.problem), held)
    return b"".join((*head, job.state))


class _Progress(NamedTuple):
    done: bool
    fence: int
    holder: str
    problem: str
    held: Cut | None
    state: bytes


def _decode_progress(row: bytes) -> _Progress:
    cursor = _opened(row)
    done, fence, holder, problem = bool(cursor.number(1)), cursor.compact_long(), cursor.text(), cursor.text()
    held = codec.take_cut(cursor) if cursor.number(1) else None
    return _Progress(done, fence, holder, problem, held, cursor.take_rest())


def _opened(row: bytes) -> Cursor:
    cursor = Cursor(row)
    if (found := cursor.take(1)) != _FORMAT:
        raise Invalid(f"its format is {found[0]}, and {_FORMAT[0]} is known")
    return cursor


def _decode(key: JobKey, settings: TableValue, progress: TableValue) -> Job:
    try:
        chosen, found = _opened(settings.value).take_rest(), _decode_progress(progress.value)
        return Job(key, chosen, found.state, found.fence, found.holder, found.done, found.held, found.problem)
    except Invalid as error:
        raise Corrupt(f"the record of job {key} is damaged: {error}") from None


def _decode_key(key: bytes) -> JobKey:
    try:
        scope, stream, kind, name = key.decode().split("/")
        return JobKey(kind, StreamName(scope, stream), name)
    except ValueError as error:
        raise Corrupt(f"the index of jobs is damaged: {error}") from None
