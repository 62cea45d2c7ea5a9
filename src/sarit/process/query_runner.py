"""Queries of the console: each in a process of its own, which this module starts, feeds and kills.

`sql/child.py` says what the process is and what holds it.  Here is the other end of its pipes: tables are found and
read by the client of who asks, so the controller decides what a query may read, and its rows go through the pipe as the
query asks for them.  All reads of one query are made on one thread, since the child asks for one thing at a time.

*Bounds*: CONSOLE_MAX_QUERIES at once and one of each user; QUERY_SECONDS from its beginning to its end;
QUERY_PAGE_ROWS or QUERY_CSV_BYTES of its result; the bytes of streams that the page allows.  A query whose page is
left is killed.  Nothing is started or imported before the first query.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sarit.admin.callers import current_peer
from sarit.admin.console.query_view import QueryTooLarge
from sarit.core.errors import Corrupt, Invalid, SaritError, TimedOut, Unavailable
from sarit.core.extras import MissingExtra, install_command, require
from sarit.core.texts import cut_text
from sarit.env.background import Background, shielded
from sarit.process.limits import (
    CONSOLE_MAX_QUERIES,
    QUERY_ADDRESS_BYTES,
    QUERY_ANSWER_BYTES,
    QUERY_CHILD_MEMORY_BYTES,
    QUERY_CPU_SECONDS,
    QUERY_CSV_BYTES,
    QUERY_CSV_ROWS,
    QUERY_ERROR_CHARS,
    QUERY_PAGE_BYTES,
    QUERY_PAGE_CELL_CHARS,
    QUERY_PAGE_ROWS,
    QUERY_PIPE_BYTES,
    QUERY_READ_SHARE,
    QUERY_SECONDS,
    QUERY_STEP_SECONDS,
    QUERY_THREADS,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from sarit.admin.console.query_view import QueryRequest, QueryStep
    from sarit.admin.exposition import Sample
    from sarit.client.aio import Client
    from sarit.env.ports import Env
    from sarit.security.audit import Audit
    from sarit.security.permissions import Caller
    from sarit.serializers.schema_source import SchemaSource
    from sarit.sql.child_protocol import Frame, Query

_log = logging.getLogger("sarit.process")

_CHILD: Final = ("-P", "-m", "sarit.sql.child")
_OUTCOMES: Final = ("done", "failed", "timeout", "cancelled")
_DONE: Final = 72  # Kind.DONE, which is not imported before the first query


class QueryRunner:
    """Runs the queries of one process's console."""

    def __init__(
        self, env: Env, audit: Audit, schemas: Callable[[Caller | None], SchemaSource | None] = lambda _: None,
        seconds: float = QUERY_SECONDS, most: int = CONSOLE_MAX_QUERIES,
    ) -> None:  # fmt: skip
        """`schemas`: returns those that a caller may read; None: there is no registry."""
        self._schemas = schemas
        self._env = env
        self._audit = audit
        self._seconds = seconds
        self._most = most
        self._running: dict[_Run, str] = {}  # by whom
        self._background = Background(_failed)
        self.counts = dict.fromkeys(_OUTCOMES, 0)  # of queries, by how they ended
        self.read_bytes = 0

    def __repr__(self) -> str:
        return f"<QueryRunner, {len(self._running)} of {self._most} queries>"

    @property
    def running(self) -> int:
        """How many queries run."""
        return len(self._running)

    def samples(self) -> Iterator[Sample]:
        """Return samples of what queries have done."""
        for outcome, count in self.counts.items():
            yield "sarit_console_queries_total", (outcome,), count
        yield "sarit_console_query_read_bytes_total", (), self.read_bytes
        yield "sarit_console_queries_running", (), len(self._running)

    def missing(self) -> str:
        """Return how to install what queries need; "" if it is there."""
        try:
            require("sql", "a query")
        except MissingExtra:
            return install_command("sql")
        return ""

    async def run(
        self, client: Client, caller: Caller | None, request: QueryRequest
    ) -> AsyncGenerator[QueryStep, None]:
        """Yield the steps of a query: "columns", "rows" or "csv", now and then "step", and "done" at its end.

        Raises Invalid (wrong SQL), NotFound, Forbidden, QueryTooLarge, TimedOut, Unavailable (too many run)."""
        require("sql", "SQL over streams")
        user = "" if caller is None else caller.name
        self._check_place(user)
        self._audit.note(
            who=user, what="query", resource="", peer=current_peer.get(), allowed=True, why=f"sql: {request.sql}"
        )
        run = _Run(self._env, client, request, self._schemas(caller), self._seconds)
        self._running[run] = user
        outcome = "cancelled"
        try:
            async for step in run.steps():
                yield step
            outcome = "done"
        except (SaritError, QueryTooLarge) as error:
            outcome = "timeout" if isinstance(error, TimedOut) else "failed"
            raise
        finally:
            self.counts[outcome] += 1
            self.read_bytes += run.read_bytes
            await shielded(self._background.spawn(self._end(run), "end of a query"))

    async def _end(self, run: _Run) -> None:
        try:
            await run.end()
        finally:
            self._running.pop(run, None)

    def _check_place(self, user: str) -> None:
        """Raises Unavailable: too many queries run."""
        if user and user in self._running.values():
            raise Unavailable(f"a query of {user} runs already: cancel it, or wait for its end")
        if len(self._running) >= self._most:
            raise Unavailable(
                f"{self._most} queries run on this process, which is the limit: try again when one of them has ended"
            )

    async def close(self) -> None:
        """Kill the processes of all queries, and wait for their end."""
        for run in list(self._running):
            await run.end()
        await self._background.close()


class _Run:
    """One query, and its process."""

    def __init__(
        self, env: Env, client: Client, request: QueryRequest, schemas: SchemaSource | None, seconds: float
    ) -> None:
        from sarit.process.query_tables import QueryTables
        from sarit.sql.child_protocol import Frames

        self._clock = env.clock
        self._request = request
        self._seconds = seconds
        self._frames = Frames(QUERY_ANSWER_BYTES)
        self._tables = QueryTables(client, request, schemas)
        self._worker = env.threads.worker("query")
        self._process: asyncio.subprocess.Process | None = None
        self._steps: asyncio.Queue[QueryStep] = asyncio.Queue(1)
        self._serving: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._began = env.clock.monotonic()

    def __repr__(self) -> str:
        return f"<_Run of process {None if self._process is None else self._process.pid}>"

    @property
    def read_bytes(self) -> int:
        """How many bytes of streams were read."""
        return self._tables.read_bytes

    async def steps(self) -> AsyncGenerator[QueryStep, None]:
        """Yield what happens, and at least one step in QUERY_STEP_SECONDS.  Raises as `QueryRunner.run`."""
        self._serving = asyncio.ensure_future(self._serve())
        while True:
            try:
                async with asyncio.timeout(QUERY_STEP_SECONDS):
                    name, document = await self._steps.get()
            except TimeoutError:
                name, document = "step", {}
            if name == "failed":
                raise document
            if self._clock.monotonic() - self._began >= self._seconds and name != "done":
                raise TimedOut(f"the query was not done after {self._seconds:g} seconds, and was ended")
            yield name, document | self._progress() if name in ("step", "done") else document
            if name == "done":
                return

    def _progress(self) -> dict[str, Any]:
        return {
            "seconds": round(self._clock.monotonic() - self._began, 3),
            "read_bytes": self._tables.read_bytes,
            "planned_bytes": self._tables.planned_bytes,
        }

    async def _serve(self) -> None:
        """Run the query in a process, up to its last step: "done", or "failed" with the error."""
        try:
            process = self._process = await _start()
            await self._steps.put(("done", await self._answer_all(process)))
        except Exception as error:
            if isinstance(error, Corrupt):
                _log.error("the process of a query of the console did what it should not, and was killed: %s", error)
            if not isinstance(error, SaritError | QueryTooLarge):
                _log.exception("a query of the console failed: internal error")
                error = Unavailable("an unexpected error; see the log of the node")
            await self._steps.put(("failed", error))

    async def _answer_all(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        """Answer what the process asks for until it is done; what it says then.  Raises as `QueryRunner.run`."""
        assert process.stdout is not None
        while True:
            data = await process.stdout.read(QUERY_PIPE_BYTES)
            if not data:
                raise _death(await process.wait())
            for found in self._frames.feed(data):
                if (answer := await self._take(found)) is not None:
                    await self._send(process, answer)
                elif found.kind == _DONE:
                    return _done(found)

    async def _take(self, found: Frame) -> Frame | None:
        """Return the answer to a frame, if it has one.  Raises Corrupt, and what ended the query."""
        from sarit.sql.child_protocol import Kind, number_of, path_of, read_of

        run, tables = self._worker.run, self._tables
        match found.kind:
            case Kind.READY:
                return _query(self._request).frame()
            case Kind.FIND:
                return await run(partial(tables.find, path_of(found)))
            case Kind.READ:
                tables.begin(read_of(found))
            case Kind.NEXT:
                began = self._clock.monotonic()
                answer: Frame = await run(partial(tables.next, number_of(found)))
                worked = self._clock.monotonic() - began
                await asyncio.sleep(worked / QUERY_READ_SHARE - worked)
                return answer
            case Kind.CLOSE:
                await run(partial(tables.close_scan, number_of(found)))
            case Kind.COLUMNS:
                await self._steps.put(("columns", _columns(found)))
            case Kind.ROWS:
                await self._steps.put(_rows(found, self._request.form))
            case Kind.ERROR:
                raise tables.failure or _error(found, self._request.limit_bytes)
            case Kind.DONE:
                pass
            case _:
                raise Corrupt(f"the process of the query sent {found.kind.name}")
        return None

    async def _send(self, process: asyncio.subprocess.Process, answer: Frame) -> None:
        assert process.stdin is not None
        # Where the process has ended, what it said last is still to be read.  uvloop raises RuntimeError then.
        with suppress(ConnectionError, RuntimeError):
            process.stdin.write(answer.encode())
            await process.stdin.drain()

    async def end(self) -> None:
        """Kill the process, and end the reads of the query; called more than once."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        await shielded(self._ending)

    async def _end(self) -> None:
        self._tables.stop()
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await self._worker.run(self._tables.close)
        await self._worker.close()


async def _start() -> asyncio.subprocess.Process:
    """Start a process without an environment, with pipes alone.  Raises Unavailable."""
    # Only where Python finds this program, if not by its installation.
    found = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable, *_CHILD, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env=found, cwd="/",
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise Unavailable(f"no process can be started for the query: {error.strerror}") from None


def _query(request: QueryRequest) -> Query:
    from sarit.sql.child_protocol import Query

    page = request.form == "page"
    return Query(
        request.sql, request.form, QUERY_PAGE_ROWS if page else QUERY_CSV_ROWS, QUERY_PAGE_CELL_CHARS,
        QUERY_PAGE_BYTES if page else QUERY_CSV_BYTES, request.limit_bytes, QUERY_CHILD_MEMORY_BYTES,
        QUERY_ADDRESS_BYTES, QUERY_THREADS, QUERY_CPU_SECONDS,
    )  # fmt: skip


def _columns(found: Frame) -> Any:
    document = found.json()
    if not isinstance(document, dict) or not isinstance(document.get("columns"), list):
        raise Corrupt("the process of the query sent no columns")
    return document


def _rows(found: Frame, form: str) -> QueryStep:
    """Return rows as the process has sent them: a line of JSON, or text of CSV.  Raises Corrupt."""
    if form == "csv":
        return "csv", found.body.decode(errors="replace")
    if not found.body.startswith(b"[") or b"\n" in found.body:
        raise Corrupt("the process of the query sent no rows")
    return "rows", found.body


def _done(found: Frame) -> dict[str, Any]:
    document = found.json()
    try:
        return {"rows": int(document["rows"]), "complete": bool(document["complete"])}
    except (TypeError, KeyError, ValueError):
        raise Corrupt("the process of the query sent no end") from None


def _error(found: Frame, limit_bytes: int) -> Exception:
    """Return the error that the process has sent."""
    from sarit.sql.child import KINDS

    document = found.json()
    if not isinstance(document, dict):
        return Corrupt("the process of the query sent an error that cannot be read")
    planned = document.get("planned_bytes")
    if isinstance(planned, int):
        return QueryTooLarge(planned, limit_bytes)
    return KINDS.get(str(document.get("kind")), Unavailable)(cut_text(str(document.get("text")), QUERY_ERROR_CHARS))


def _death(code: int) -> SaritError:
    """Return the error for a process that ended by itself without a last word."""
    if code == -signal.SIGXCPU:
        return Invalid(f"the query used its {QUERY_CPU_SECONDS:g} seconds of the processor, and was ended")
    if code in (-signal.SIGKILL, -signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS):
        return Invalid("the process of the query was ended: most likely it needed more memory than queries have here")
    return Unavailable(f"the process of the query ended by itself (status {code}): try again")


def _failed(task: asyncio.Task[Any], error: BaseException) -> None:
    _log.error("a query of the console could not be ended: %s", task.get_name(), exc_info=error)
