"""The continuous queries of a stream that hold, as their rows say, and the changes of them that are due.

Who has the job looks whether rows have changed, and which queries have to be suspended, at the begin of each batch.  It
stores the progress before it adopts a query: so the batch that the query holds from begins at that very cut, whoever
carries it out.  A row is written only if it is as it was read; a worker that has lost the job changes none that the
next one has seen.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sarit.core.errors import Conflict, Corrupt, Invalid
from sarit.core.limits import NOT_EXISTS
from sarit.core.texts import cut_text
from sarit.search.continuous_queries import CompiledQueries
from sarit.search.continuous_rows import changes_key, decode_query, encode_query, mapping_key, query_key, write_rows
from sarit.search.limits import (
    CONTINUOUS_OUTPUT_CHECK_SECONDS,
    CONTINUOUS_ROWS_AT_ONCE,
    MAX_CONTINUOUS_CHANGES,
    MAX_CONTINUOUS_PROBLEM_CHARACTERS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set
    from typing import TypeAlias

    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.env.ports import Env, Worker
    from sarit.search.continuous_ports import Outputs, QueryLanguage, Rights
    from sarit.search.continuous_rows import ContinuousQuery, Maker
    from sarit.search.ports import Rows
    from sarit.search.query import Query

    _Sorted: TypeAlias = tuple[Sequence[bytes], Mapping[tuple[Maker, StreamName], Sequence[bytes]]]

_log = logging.getLogger("sarit.search")


@dataclass(frozen=True, slots=True)
class Change:
    """A row that has to be written.  `query`: None: it is removed.  `adopts`: the query holds from now on."""

    key: bytes
    version: int
    query: ContinuousQuery | None
    adopts: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """The queries that events are asked about, by the keys of their rows: those that hold, compiled together."""

    queries: dict[bytes, ContinuousQuery] = field(default_factory=dict)
    compiled: CompiledQueries = field(default_factory=CompiledQueries)

    def put(self, key: bytes, query: ContinuousQuery, bound: Query) -> None:
        """Add a query, or change it."""
        self.queries[key] = query
        self.compiled.put(key, bound)

    def remove(self, key: bytes) -> None:
        """Remove a query, if it is there."""
        self.queries.pop(key, None)
        self.compiled.remove(key)


class QuerySet:
    """The continuous queries of one stream, for who has its job."""

    def __init__(
        self, stream: StreamName, stream_id: str, rows: Rows, outputs: Outputs, rights: Rights,
        languages: Callable[[bytes], QueryLanguage], env: Env, worker: Worker, *, fresh: bool = False,
    ) -> None:  # fmt: skip
        """`languages`: makes the language of an encoded mapping; of no bytes that of no fields.

        `fresh`: the job has no progress, so no query holds yet, whatever its row says."""
        self.language: QueryLanguage = languages(b"")
        self._stream = stream
        self._stream_id = stream_id
        self._rows = rows
        self._outputs = outputs
        self._rights = rights
        self._languages = languages
        self._clock = env.clock
        self._worker = worker
        self._mark: int | None = None  # the version of the row of changes; None: the rows have to be read again
        self._loaded = fresh
        self._mapping = b""
        self._found: dict[bytes, tuple[ContinuousQuery, int]] = {}
        self._compiled: dict[str, Query | str] = {}  # by the text; a text: why there is none
        self._checked: dict[StreamName, tuple[float, str]] = {}  # when an output was checked, and its problem
        self._asked = Asked()
        self._touched: set[bytes] = set()  # keys of queries that have changed since `_asked` was brought up to date
        self._sorted: _Sorted | None = None

    def __repr__(self) -> str:
        return f"<QuerySet of {self._stream}, {len(self._found)} queries>"

    def __len__(self) -> int:
        return len(self._found)

    @property
    def suspended(self) -> int:
        """How many queries hold for no event although their users want it."""
        return sum(query.problem != "" for query, _ in self._found.values())

    def note_problem(self, output: StreamName, why: str) -> None:
        """Record that an output cannot be written to: its queries are suspended by the next changes."""
        self._checked[output] = self._clock.monotonic(), why or "it cannot be written to"

    async def load(self) -> None:
        """Read the rows again if one of them has changed, and the rules of access.  Raises Unavailable."""
        await self._rights.refresh()
        # Before the rows: who changes one meanwhile gives this row another version, and they are read again.
        (mark,) = await self._rows.get([changes_key(self._stream_id)])
        version = NOT_EXISTS if mark is None else mark[1]
        if version == self._mark:
            return
        (mapping,) = await self._rows.get([mapping_key(self._stream_id)])
        encoded = b"" if mapping is None else mapping[0]
        if encoded != self._mapping:
            self.language = await self._worker.run(lambda: self._languages(encoded))
            self._mapping, self._compiled = encoded, {}
            self._touched.update(self._found)
        rows = await self._rows.scan(query_key(self._stream_id, ""))
        found = await self._worker.run(lambda: self._decoded(rows))
        await self._compile(found)
        both = self._found.keys() | found.keys()
        self._touched.update(key for key in both if self._found.get(key) != found.get(key))
        self._found, self._mark, self._loaded = found, version, True
        self._sorted = None

    def _decoded(self, rows: Sequence[tuple[bytes, bytes, int]]) -> dict[bytes, tuple[ContinuousQuery, int]]:
        """Return the queries of rows with their versions, by their keys.  Rows that are damaged are left out."""
        found: dict[bytes, tuple[ContinuousQuery, int]] = {}
        for key, value, version in rows:
            before = self._found.get(key)
            if before is not None and before[1] == version:
                found[key] = before
                continue
            try:
                query = decode_query(value)
            except Corrupt as error:
                _log.error("continuous query %s does not hold: %s", key.decode(errors="replace"), error)
                continue
            trusted = not self._loaded or _same(query, before)
            found[key] = query if trusted else _unadopted(query), version
        return found

    async def _compile(self, found: dict[bytes, tuple[ContinuousQuery, int]]) -> None:
        definitions = (each for query, _ in found.values() for each in (query.wanted, query.adopted))
        texts = {each.text for each in definitions if each is not None}
        self._compiled = {text: query for text, query in self._compiled.items() if text in texts}
        missing = sorted(texts - self._compiled.keys())
        if missing:
            self._compiled |= await self._worker.run(lambda: {text: self._query(text) for text in missing})

    def _query(self, text: str) -> Query | str:
        try:
            return self.language.query(text)
        except Invalid as error:
            return str(error) or "the query cannot be read"

    async def changes(self, cut: StreamCut) -> list[Change]:
        """Return the changes that are due before a batch that begins at a cut: some of them, if they are many, so that
        events wait for a moment only.  Raises Unavailable."""
        waiting, holding = self._sorted_out()
        found: list[Change] = []
        # Who has lost rights is first.
        for (maker, output), keys in holding.items():
            problem = self._rights.problem(maker, self._stream, output) or self._checked.get(output, (0.0, ""))[1]
            for key in keys if problem else ():
                query, version = self._found[key]
                found.append(Change(key, version, query.suspend(problem)))
        for key in waiting:
            if len(found) >= MAX_CONTINUOUS_CHANGES:
                break
            change = await self._change_of(key, cut)
            if change is not None:
                found.append(change)
        return found

    def _sorted_out(self) -> _Sorted:
        """Return the keys of the queries that wait for a change, and of those that hold, by maker and output."""
        if self._sorted is None:
            waiting: list[bytes] = []
            holding: dict[tuple[Maker, StreamName], list[bytes]] = {}
            for key, (query, _) in self._found.items():
                wanted = query.wanted
                if wanted is None or query.is_pending or query.problem or isinstance(self._compiled[wanted.text], str):
                    waiting.append(key)
                else:
                    holding.setdefault((wanted.maker, wanted.output), []).append(key)
            self._sorted = waiting, holding
        return self._sorted

    async def _change_of(self, key: bytes, cut: StreamCut) -> Change | None:
        query, version = self._found[key]
        wanted = query.wanted
        if wanted is None:
            return Change(key, version, None)
        compiled = self._compiled[wanted.text]
        problem = self._rights.problem(wanted.maker, self._stream, wanted.output)
        if not problem and isinstance(compiled, str):
            problem = compiled
        if not problem:
            problem = await self._problem_of(wanted.output)
        if not problem:
            return Change(key, version, query.adopt(cut), adopts=True)
        suspended = query.suspend(problem)
        return None if suspended == query else Change(key, version, suspended)

    async def _problem_of(self, output: StreamName) -> str:
        """Return why an output cannot be written to, as it was found a moment ago or is now; empty: it can."""
        now = self._clock.monotonic()
        at, problem = self._checked.get(output, (None, ""))
        if at is None or now - at >= CONTINUOUS_OUTPUT_CHECK_SECONDS:
            problem = cut_text(await self._outputs.problem(output), MAX_CONTINUOUS_PROBLEM_CHARACTERS)
            self._checked[output] = now, problem
        return problem

    async def apply(self, changes: Sequence[Change]) -> None:
        """Write changes into their rows.  A row that its user has changed meanwhile is read again.  Raises
        Unavailable."""
        for first in range(0, len(changes), CONTINUOUS_ROWS_AT_ONCE):
            part = changes[first : first + CONTINUOUS_ROWS_AT_ONCE]
            rows = [(each.key, None if each.query is None else encode_query(each.query), each.version) for each in part]
            try:
                versions = await write_rows(self._rows, self._stream, self._stream_id, rows)
            except Conflict:  # none of them is written: all come again once the rows are read again
                self._mark = None
                continue
            for change, version in zip(part, versions, strict=True):
                self._note(change, version)

    def _note(self, change: Change, version: int) -> None:
        """Record that a row was written, with its new version."""
        self._sorted = None
        self._touched.add(change.key)
        if change.query is None:
            del self._found[change.key]
            return
        self._found[change.key] = change.query, version
        if change.query.problem:
            name, why = change.query.name, change.query.problem
            _log.warning("continuous query %s of %s does not hold: %s", name, self._stream, why)

    @property
    def is_stale(self) -> bool:
        """Whether a row was changed by its user while the changes of the job were written."""
        return self._mark is None

    async def asked(self) -> Asked:
        """Return the queries that hold now.  They stay the same until `load` or `apply` is called."""
        if self._touched:
            touched, self._touched = self._touched, set()
            await self._worker.run(lambda: self._bring_up_to_date(touched))
        return self._asked

    def _bring_up_to_date(self, touched: Iterable[bytes]) -> None:
        for key in touched:
            if (bound := self._bound(key)) is None:
                self._asked.remove(key)
            else:
                self._asked.put(key, self._found[key][0], bound)

    def _bound(self, key: bytes) -> Query | None:
        """Return what events are asked about for the query of a row; None: it does not hold."""
        query = self._found[key][0] if key in self._found else None
        if query is None or query.adopted is None or query.holds_from is None:
            return None
        bound = self._compiled[query.adopted.text]
        if isinstance(bound, str) or self._rights.problem(query.adopted.maker, self._stream, query.adopted.output):
            return None
        return bound

    async def asked_for(self, outputs: Set[StreamName]) -> Asked:
        """Return the queries that held when the last batch began, and hold still, for some outputs."""
        return await self._worker.run(lambda: self._asked_for(outputs))

    def _asked_for(self, outputs: Set[StreamName]) -> Asked:
        found = Asked()
        for key, (query, _) in self._found.items():
            if query.adopted is None or query.adopted.output not in outputs:
                continue
            if (bound := self._bound(key)) is not None:
                found.put(key, query, bound)
        return found


def _same(query: ContinuousQuery, before: tuple[ContinuousQuery, int] | None) -> bool:
    """Return whether a row whose user has changed it says as before what holds."""
    if query.holds_from is None:
        return True
    return before is not None and (query.adopted, query.holds_from) == (before[0].adopted, before[0].holds_from)


def _unadopted(query: ContinuousQuery) -> ContinuousQuery:
    """Return a query as not adopted: another worker, which has lost the job since, adopted it at a cut that may lie
    before those that were asked about here."""
    return replace(query, adopted=None, holds_from=None)
