"""The process of one query of the console: SQL of a user who is trusted with nothing but the answer.

`process/query_runner.py` starts it, with pipes and without an environment, and speaks with it as `child_protocol.py`
says.  What the query reaches: the tables that the parent finds with the rights of who asks, read through the pipe.
There are three walls around it:

1. DuckDB opens no file and no address, loads nothing, and takes no settings (`sandbox.py`, `locked`).
2. The process has taken from itself what it could reach otherwise (`env/confinement.py`), before it looks at the
   query: it can open nothing, start nothing, and use a bounded amount of memory and of the processor.
3. The parent bounds time, bytes and rows, and kills it.

The main thread runs the query.  Another one reads the pipe, and ends the process when the parent is gone.
"""

from __future__ import annotations

import os
import queue
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from sarit.core.errors import Forbidden, Invalid, NotFound, SaritError, Unavailable
from sarit.core.texts import cut_text
from sarit.env.confinement import confine, end_with_parent, limit_memory, yield_to_others
from sarit.sql.child_protocol import Frame, Frames, Kind, Query, Read, frame, query_of, relation_of
from sarit.sql.limits import MAX_QUERY_ERROR_CHARS, QUERY_READ_BYTES, QUERY_TEXT_BYTES, QUERY_TEXT_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from sarit.sql.engine import Result
    from sarit.sql.ports import Part

# What an error is, on the other side of the pipe; anything else is Unavailable there.
KINDS: Final[Mapping[str, type[SaritError]]] = {
    "invalid": Invalid, "not-found": NotFound, "forbidden": Forbidden, "unavailable": Unavailable,
}  # fmt: skip
_WARM_UP: Final = """
    WITH a AS (SELECT sarit.offset AS o, count(*) AS n FROM warm.up WHERE sarit.segment >= 0 GROUP BY ALL)
    SELECT o, n, strftime(now(), '%Y'), timestamptz '2026-01-01 00:00:00+00' AT TIME ZONE 'Europe/Berlin',
        '{"a": 1}'::JSON ->> 'a', regexp_matches('abc', 'b+'), uuid(), [1, 2], {'a': 1.5::DECIMAL(4, 1)},
        max(o) OVER (), interval '1 day', date '2026-01-01', cast(o AS HUGEINT)
    FROM a JOIN range(3) AS r(i) ON i = o ORDER BY o DESC
"""
_MEMORY: Final = "the query needs more memory than queries have here: select fewer columns, or sort fewer rows"
_INTERNAL: Final = "the query failed in the engine: "


class Link:
    """The two pipes to the parent.  Any thread may ask; one does at a time."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target
        self._frames = Frames()
        self._received: queue.SimpleQueue[Frame] = queue.SimpleQueue()
        self._asking = threading.Lock()
        self._sending = threading.Lock()

    def __repr__(self) -> str:
        return f"<Link {self._frames!r}>"

    def start(self) -> None:
        """Read the pipe from now on."""
        threading.Thread(target=self._read, name="pipe", daemon=True).start()

    def _read(self) -> None:
        try:
            while data := os.read(self._source, QUERY_READ_BYTES):
                for found in self._frames.feed(data):
                    self._received.put(found)
        finally:
            # The parent is gone, or says what nobody understands: nobody waits for a result.
            os._exit(1)

    def send(self, found: Frame) -> None:
        """Send a frame; waits while the pipe is full.  Raises OSError."""
        left = memoryview(found.encode())
        with self._sending:
            while left:
                left = left[os.write(self._target, left) :]

    def receive(self) -> Frame:
        """Wait for the next frame."""
        return self._received.get()

    def ask(self, found: Frame) -> Frame:
        """Return the answer to a frame.  Raises what the parent answers with FAILED."""
        with self._asking:
            self.send(found)
            answer = self.receive()
        if answer.kind is Kind.FAILED:
            document = answer.json()
            raise KINDS.get(document["kind"], Unavailable)(document["text"])
        return answer


class RemoteTables:
    """The tables of a query, in the parent."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._scans = iter(range(1, 1 << 62))
        self._near: dict[Sequence[str], list[str]] = {}

    def find(self, path: Sequence[str]) -> RemoteRelation | None:
        """Return the relation of a name; None: there is none.  Raises Forbidden, Invalid, Unavailable."""
        import pyarrow as pa

        answer = self._link.ask(frame(Kind.FIND, list(path)))
        if answer.kind is Kind.ABSENT:
            self._near[tuple(path)] = answer.json()
            return None
        number, parts, schema = relation_of(answer)
        return RemoteRelation(
            self._link, lambda: next(self._scans), number, parts, pa.ipc.read_schema(pa.py_buffer(schema))
        )

    def near(self, path: Sequence[str]) -> Sequence[str]:
        """Return names that are like one that was not found."""
        return self._near.get(tuple(path), ())


class RemoteRelation:
    """A table of the query: its rows come through the pipe, as the query asks for them."""

    def __init__(
        self, link: Link, next_scan: Callable[[], int], number: int, parts: Sequence[Part], schema: pa.Schema
    ) -> None:
        self._link = link
        self._next_scan = next_scan
        self._number = number
        self.parts = parts
        self.schema = schema

    def __repr__(self) -> str:
        return f"<RemoteRelation {self._number}, {len(self.parts)} parts>"

    def read(self, numbers: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some parts.  Raises what the parent's read raises."""
        import pyarrow as pa

        scan = self._next_scan()
        self._link.send(Read(scan, self._number, numbers, columns).frame())
        ended = False
        try:
            while True:
                answer = self._link.ask(frame(Kind.NEXT, scan))
                if answer.kind is Kind.END:
                    ended = True
                    return
                with pa.ipc.open_stream(pa.py_buffer(answer.body)) as reader:
                    yield from reader
        finally:
            if not ended:
                self._link.send(frame(Kind.CLOSE, scan))


class _WarmTables:
    """A table for the first query of the engine, which loads what later ones need."""

    def __init__(self) -> None:
        import pyarrow as pa

        from sarit.sql.ports import Part

        position = pa.array([{"segment": 0, "offset": 1}], pa.struct([("segment", pa.int64()), ("offset", pa.int64())]))
        self._batch = pa.record_batch({"sarit": position, "value": pa.array([b"x"])})
        self.schema = self._batch.schema
        self.parts = [Part(0, 1, 0)]

    def find(self, path: Sequence[str]) -> _WarmTables | None:
        """Return this table, whatever its name."""
        return self

    def near(self, path: Sequence[str]) -> Sequence[str]:
        """Return no names."""
        return ()

    def read(self, numbers: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the one row."""
        yield self._batch.select(
            [name for name in self._batch.schema.names if any(c.startswith(name) for c in columns)]
        )


def main() -> NoReturn:
    """Run one query, and end."""
    end_with_parent()
    yield_to_others()
    # Whatever a library prints must not get between the frames: the parent has thrown away descriptor 2.
    target = os.dup(1)
    os.dup2(2, 1)
    link = Link(0, target)
    link.start()
    try:
        _load()
        link.send(frame(Kind.READY))
        _answer(link, query_of(link.receive()), target + 1)
    except BaseException as error:
        link.send(frame(Kind.ERROR, _document(error)))
    os._exit(0)


def _load() -> None:
    """Import everything that a query needs, because no file can be opened later.  Raises MissingExtra."""
    from sarit.core.extras import require

    require("sql", "SQL over streams")
    import sarit.sql.result_text  # noqa: F401
    from sarit.sql.engine import Engine
    from sarit.sql.sandbox import EngineSettings

    warm = Query(_WARM_UP, "page", 10, 10, QUERY_TEXT_BYTES, 1, 1, 1, 1, 1)
    for query in (warm, replace(warm, form="csv"), replace(warm, sql="SELECT wrong")):
        engine = Engine(cast("Any", _WarmTables()), EngineSettings(threads=1, locked=True))
        try:
            for _ in _Texts(engine.run(query.sql), query):
                pass
        except SaritError as error:
            _document(error)
        engine.close()


def _answer(link: Link, query: Query, descriptors: int) -> None:
    """Run the query, and send its result.  Raises SaritError, and what the engine raises."""
    from sarit.sql.engine import Engine
    from sarit.sql.result_text import columns_of
    from sarit.sql.sandbox import EngineSettings

    settings = EngineSettings(
        memory_bytes=query.memory_bytes, threads=query.threads, limit_bytes=query.limit_bytes, locked=True
    )
    engine = Engine(cast("Any", RemoteTables(link)), settings)
    limit_memory(query.address_bytes)
    guard = confine(descriptors, query.cpu_seconds)
    result = engine.run(query.sql)
    link.send(frame(Kind.COLUMNS, {"columns": columns_of(result.schema), "guard": guard}))
    texts = _Texts(result, query)
    for text in texts:
        for piece in pieces(text) if query.form == "csv" else (text,):
            link.send(Frame(Kind.ROWS, piece))
    link.send(frame(Kind.DONE, {"rows": texts.rows, "complete": texts.complete}))


def pieces(text: bytes, size: int = 4 * QUERY_TEXT_BYTES) -> Iterator[bytes]:
    """Yield a text in pieces of at most `size` bytes, none of which ends within a character."""
    start = 0
    while start < len(text):
        end = min(start + size, len(text))
        while end < len(text) and text[end] & 0xC0 == 0x80:
            end -= 1
        yield text[start:end]
        start = end


class _Texts:
    """The rows of a result as text, some of them at once, as many as the query may have.

    `complete`: whether that is all of them."""

    def __init__(self, result: Result, query: Query) -> None:
        self._result = result
        self._query = query
        self._left_bytes = query.text_bytes
        self.rows = 0
        self.complete = True

    def __iter__(self) -> Iterator[bytes]:
        from sarit.sql.result_text import csv_head

        if self._query.form == "csv":
            yield csv_head(self._result.schema).encode()
            for some in self._some():
                yield b"".join(some)
        else:
            for some in self._some():
                yield b"[" + b",".join(some) + b"]"

    def _some(self) -> Iterator[list[bytes]]:
        some: list[bytes] = []
        size = 0
        for text in self._rows():
            if text is not None:
                data = text.encode()
                self._left_bytes -= len(data)
                if self.rows == self._query.rows or self._left_bytes < 0:
                    self.complete = False
                    break
                self.rows += 1
                some.append(data)
                size += len(data)
            if some and (text is None or size >= QUERY_TEXT_BYTES):
                yield some
                some, size = [], 0
        if some:
            yield some

    def _rows(self) -> Iterator[str | None]:
        """Yield rows, and None after those that were computed at once."""
        from sarit.sql.result_text import csv_lines, row_texts

        query = self._query
        for batch in self._result:
            for start in range(0, batch.num_rows, QUERY_TEXT_ROWS):
                part = batch.slice(start, QUERY_TEXT_ROWS)
                if query.form == "csv":
                    yield from csv_lines(part)
                else:
                    yield from row_texts(part, query.cell_chars, QUERY_TEXT_BYTES)
            yield None


def _document(error: BaseException) -> dict[str, Any]:
    """Return an error as the parent gets it."""
    if isinstance(error, MemoryError) or "Out of Memory Error" in str(error):
        error = Invalid(_MEMORY)
    kind = next((name for name, known in KINDS.items() if isinstance(error, known)), "unavailable")
    text = str(error) if isinstance(error, SaritError) else f"{_INTERNAL}{type(error).__name__}: {error}"
    document: dict[str, Any] = {"kind": kind, "text": cut_text(text, MAX_QUERY_ERROR_CHARS)}
    if isinstance(planned := getattr(error, "planned_bytes", None), int):
        document["planned_bytes"] = planned
    return document


if __name__ == "__main__":
    main()
