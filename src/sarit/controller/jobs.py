"""Background jobs of streams: rows of one of the controller's tables, each with a fencing number.

    create ─▶ row: settings, state, fence 0
    a worker claims it: fence + 1 ─▶ works, and saves its state at each step, on the condition that its row is unchanged
    another worker claims it: fence + 1 ─▶ the next save of the first one raises Fenced, and it ends

So two workers that both believe that a job is theirs do no harm: a step counts when its state is saved, and one of the
two cannot save.  Whatever a job writes elsewhere carries the fence, and is taken back or ignored unless the state that
names it was saved.  The table is created with the first job.  Bytes: docs/formats/controller-records.md.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sarit.controller.catalog import PAGE
from sarit.controller.keys import JOBS_TABLE
from sarit.controller.limits import MAX_JOB_NAME_CHARACTERS, MAX_JOB_SETTINGS_BYTES, MAX_JOB_STATE_BYTES, MAX_JOBS
from sarit.controller.ports import TableUpdate
from sarit.core.errors import Conflict, Corrupt, Exists, Fenced, Invalid, NotFound
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import StreamName
from sarit.core.versioned_objects import Cursor, pack_int, pack_long

if TYPE_CHECKING:
    from sarit.controller.ports import Tables, TableValue

_FORMAT: Final = b"\1"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]*")


@dataclass(frozen=True, slots=True)
class JobKey:
    """Which job: `kind` says what is done, `name` tells several of a kind on one stream apart."""

    kind: str
    stream: StreamName
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.stream}/{self.name}"

    def check(self) -> JobKey:
        """Return the key.  Raises Invalid: its kind or name cannot be one."""
        for word in (self.kind, self.name):
            if len(word) > MAX_JOB_NAME_CHARACTERS or not _NAME.fullmatch(word):
                raise Invalid(
                    f"{word[:MAX_JOB_NAME_CHARACTERS]!a} is no name of a job: use small letters, digits and '-', at "
                    f"most {MAX_JOB_NAME_CHARACTERS}"
                )
        return self


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is stored.  `settings`: what a user chose.  `state`: how far it is.  `fence`: counts its claims."""

    key: JobKey
    settings: bytes = b""
    state: bytes = b""
    fence: int = 0


class ClaimedJob:
    """A job that one worker has claimed, until another one claims it."""

    def __init__(self, tables: Tables, job: Job, version: int) -> None:
        self.job = job
        self._tables = tables
        self._version = version

    def __repr__(self) -> str:
        return f"<ClaimedJob {self.job.key}, fence {self.job.fence}>"

    async def save(self, state: bytes) -> None:
        """Save how far the job is.  Raises Fenced: another worker has claimed it, or it was deleted; Unavailable: it is
        not known whether it was saved, so the job is to be claimed again; Invalid."""
        job = replace(self.job, state=state)
        try:
            self._version = await _write(self._tables, job, self._version)
        except (Conflict, NotFound):
            raise Fenced(f"job {job.key} is another worker's now, or was deleted") from None
        self.job = job


class JobTable:
    """All jobs of an installation."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def __repr__(self) -> str:
        return f"<JobTable of {self._tables!r}>"

    async def position(self) -> int | None:
        """Return a number that rises with every change of a job; None: there never was one.  Raises Unavailable."""
        try:
            return await self._tables.position(JOBS_TABLE)
        except NotFound:
            return None

    async def list(self) -> list[Job]:
        """Return all jobs, in order of their keys.  Raises Unavailable, Corrupt."""
        found: list[Job] = []
        start = b""
        with suppress(NotFound):
            while rows := await self._tables.scan(JOBS_TABLE, start, None, PAGE):
                found += [_decode(key, value) for key, value in rows]
                start = rows[-1][0] + b"\0"
        return found

    async def create(self, key: JobKey, settings: bytes = b"") -> None:
        """Add a job.  Raises Exists, Invalid."""
        with suppress(Exists):
            await self._tables.create(JOBS_TABLE)
        if len(await self.list()) >= MAX_JOBS:
            raise Invalid(f"there are {MAX_JOBS} jobs, which is the limit: delete some")
        try:
            await _write(self._tables, Job(key.check(), settings), NOT_EXISTS)
        except Conflict:
            raise Exists(f"job {key}") from None

    async def delete(self, key: JobKey) -> None:
        """Remove a job; the worker that has it ends at its next step.  Raises NotFound."""
        (found,) = await self._tables.get(JOBS_TABLE, [_key(key)])
        if found is None:
            raise NotFound(f"job {key}")
        await self._tables.update(JOBS_TABLE, [TableUpdate(_key(key), None, found.version)])

    async def claim(self, key: JobKey) -> ClaimedJob:
        """Take a job from whoever has it.  Raises NotFound, Conflict (another one has claimed it now), Unavailable."""
        (found,) = await self._tables.get(JOBS_TABLE, [_key(key)])
        if found is None:
            raise NotFound(f"job {key}")
        job = _decode(_key(key), found)
        job = replace(job, fence=job.fence + 1)
        return ClaimedJob(self._tables, job, await _write(self._tables, job, found.version))


async def _write(tables: Tables, job: Job, expected: int) -> int:
    for what, value, most in (
        ("settings", job.settings, MAX_JOB_SETTINGS_BYTES),
        ("state", job.state, MAX_JOB_STATE_BYTES),
    ):
        if len(value) > most:
            raise Invalid(f"the {what} of job {job.key} have {len(value)} bytes; the most is {most}")
    parts = _FORMAT, pack_long(job.fence), pack_int(len(job.settings)), job.settings, job.state
    (version,) = await tables.update(JOBS_TABLE, [TableUpdate(_key(job.key), b"".join(parts), expected)])
    return version


def _key(key: JobKey) -> bytes:
    return str(key).encode()


def _decode(key: bytes, value: TableValue) -> Job:
    try:
        kind, scope, stream, name = key.decode().split("/")
        cursor = Cursor(value.value)
        if (found := cursor.take(1)) != _FORMAT:
            raise Invalid(f"its format is {found[0]}, and {_FORMAT[0]} is known")
        fence, settings = cursor.compact_long(), cursor.take(cursor.compact_int())
        return Job(JobKey(kind, StreamName(scope, stream), name), settings, cursor.take_rest(), fence)
    except (Invalid, ValueError) as error:
        raise Corrupt(f"the row of a job is damaged: {error}") from None
