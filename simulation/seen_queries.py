"""The rows of continuous queries as everybody who reads or writes them sees them, and when each query held by them.

A row says since which cut its query holds.  It is written only by who has read it, on the condition of its version: so
what was seen is all that was ever true, also of writes whose outcome was unknown.  A removed row says nothing: then the
query held to the cut at which whoever had the job removed it.

A worker that has lost the job may write a row all the same, which the next one corrects.  What such a row says is
*loose*: matches may be there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.controller.keys import SEARCH_TABLE
from sarit.search.continuous_rows import decode_query

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sarit.controller.ports import Tables, TableUpdate, TableValue
    from sarit.core.cuts import StreamCut
    from sarit.search.continuous_rows import ContinuousQuery, Definition

_QUERIES = b"q/"


@dataclass(slots=True)
class JobRun:
    """One run of the job.  `fence`: its number.  `cut`: as it was saved last."""

    fence: int
    cut: StreamCut | None


@dataclass(frozen=True, slots=True)
class Term:
    """A time in which a query held in one form; `end`: None: to the end of the stream.  `loose`: see the head."""

    query: ContinuousQuery
    form: Definition
    begin: StreamCut
    end: StreamCut | None
    loose: bool


class SeenQueries:
    """All that was seen."""

    def __init__(self) -> None:
        self._rows: dict[bytes, dict[int, ContinuousQuery]] = {}  # by key and version
        self._loose: set[tuple[bytes, int]] = set()
        self._tried: dict[tuple[bytes, bytes], int] = {}  # the fence of who tried to write a value
        self._ends: dict[str, StreamCut] = {}  # by id: the cut at which a row was removed, or its query suspended
        self._newest = 0

    def __repr__(self) -> str:
        return f"<SeenQueries, {sum(map(len, self._rows.values()))} rows>"

    def began(self, run: JobRun) -> None:
        """Note that a run of the job began: those with smaller fences have lost it."""
        self._newest = max(self._newest, run.fence)

    def see(self, key: bytes, value: bytes, version: int) -> None:
        """Note a row."""
        versions = self._rows.setdefault(key, {})
        if version not in versions:
            versions[version] = decode_query(value)
            if self._tried.get((key, value), self._newest) < self._newest:
                self._loose.add((key, version))

    def try_to_write(self, update: TableUpdate, run: JobRun) -> None:
        """Note that a run of the job is about to write or to remove a row."""
        query = self._rows[update.key][update.expected]
        if update.value is not None:
            self._tried[update.key, update.value] = run.fence
        ends = update.value is None or decode_query(update.value).holds_from is None
        if ends and run.cut is not None:
            self._ends[query.id] = run.cut

    @property
    def problems(self) -> list[str]:
        """Why queries were suspended."""
        return sorted({query.problem for query in self._all() if query.problem})

    @property
    def by_id(self) -> dict[str, ContinuousQuery]:
        """One row of each query."""
        return {query.id: query for query in self._all()}

    def _all(self) -> Iterator[ContinuousQuery]:
        for versions in self._rows.values():
            yield from versions.values()

    def terms(self, present: Iterable[str]) -> list[Term]:
        """Return when each query held.  `present`: the ids of those that still hold."""
        still, found = set(present), list[Term]()
        for key, versions in self._rows.items():
            by_id: dict[str, list[tuple[bool, ContinuousQuery]]] = {}
            for version in sorted(versions):
                query = versions[version]
                by_id.setdefault(query.id, []).append(((key, version) in self._loose, query))
            for number, rows in by_id.items():
                found += self._terms_of(rows, None if number in still else self._ends.get(number))
        return found

    def _terms_of(self, rows: Sequence[tuple[bool, ContinuousQuery]], end: StreamCut | None) -> Iterator[Term]:
        """Yield the times in which one query held."""
        begins = [
            (loose, query)
            for (loose, query), (_, before) in zip(rows, [(False, None), *rows], strict=False)
            if before is None or (query.adopted, query.holds_from) != (before.adopted, before.holds_from)
        ]
        for (loose, query), (_, later) in zip(begins, [*begins[1:], (False, None)], strict=True):
            if query.adopted is not None and query.holds_from is not None:
                until = end if later is None else later.holds_from or self._ends.get(query.id)
                yield Term(query, query.adopted, query.holds_from, until, loose)


class SeenTables:
    """`Tables`, as far as rows of queries are in them: all that goes through is seen."""

    def __init__(self, tables: Tables, seen: SeenQueries, run: JobRun | None = None) -> None:
        """`run`: whose they are; None: a user's."""
        self._tables = tables
        self._seen = seen
        self._run = run
        self.create = tables.create
        self.position = tables.position

    def __repr__(self) -> str:
        return f"<SeenTables of {self._run}>"

    async def get(self, table: str, keys: Sequence[bytes]) -> list[TableValue | None]:
        """Return rows, as `Tables` does."""
        found = await self._tables.get(table, keys)
        self._see(table, ((key, row) for key, row in zip(keys, found, strict=True) if row is not None))
        return found

    async def scan(self, table: str, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, TableValue]]:
        """Return rows, as `Tables` does."""
        found = await self._tables.scan(table, start, end, limit)
        self._see(table, found)
        return found

    async def update(self, table: str, updates: Sequence[TableUpdate]) -> list[int]:
        """Change rows, as `Tables` does."""
        assert table == SEARCH_TABLE
        ours = [each for each in updates if each.key.startswith(_QUERIES)]
        if self._run is not None:
            for each in ours:
                self._seen.try_to_write(each, self._run)
        versions = await self._tables.update(table, updates)
        for each, version in zip(updates, versions, strict=True):
            if each in ours and each.value is not None:
                self._seen.see(each.key, each.value, version)
        return versions

    def _see(self, table: str, rows: Iterable[tuple[bytes, TableValue]]) -> None:
        assert table == SEARCH_TABLE
        for key, row in rows:
            if key.startswith(_QUERIES):
                self._seen.see(key, row.value, row.version)


__all__ = ["JobRun", "SeenQueries", "SeenTables", "Term"]
