"""The rows of continuous queries as everybody who reads or writes them sees them, and when each query held by them.

A row says since which cut its query holds.  It is written only by who has read it, on the condition of its version: so
what was seen is all that was ever true, also of writes whose outcome was unknown.  A removed row says nothing: then the
query held to the cut at which whoever had the job removed it.

A worker that has lost the job may write a row all the same, which the next one corrects.  What such a row says is
*loose*: matches may be there.  So they may behind the cut at which such a worker removed a row or suspended its query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.controller.keys import SEARCH_TABLE
from sarit.search.continuous_rows import decode_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence, Set

    from sarit.controller.ports import Tables, TableUpdate, TableValue
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.search.continuous_rows import ContinuousQuery, Definition

_QUERIES = b"q/"


@dataclass(slots=True)
class JobRun:
    """One run of the job.  `fence`: its number.  `cut`: as it was saved last."""

    fence: int
    cut: StreamCut | None


@dataclass(frozen=True, slots=True)
class Term:
    """A time in which a query held in one form.

    `end`: from this cut on it need not; `latest`: and from this one on it may not; None: to the end of the stream.
    `loose`: see the head."""

    query: ContinuousQuery
    form: Definition
    begin: StreamCut
    end: StreamCut | None
    latest: StreamCut | None
    loose: bool


@dataclass(slots=True)
class _End:
    """The cut at which a run removed a row, or suspended its query.  `loose`: it may have lost the job by then."""

    fence: int
    cut: StreamCut
    loose: bool = True


class SeenQueries:
    """All that was seen."""

    def __init__(self) -> None:
        self._rows: dict[bytes, dict[int, ContinuousQuery]] = {}  # by key and version
        self._loose: set[tuple[bytes, int]] = set()
        self._tried: dict[tuple[bytes, bytes], int] = {}  # the fence of who tried to write a value
        self._ends: dict[tuple[bytes, int], list[_End]] = {}  # by the key and the version before
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

    def try_to_write(self, update: TableUpdate, run: JobRun) -> Callable[[], None]:
        """Note that a run of the job is about to write or to remove a row.  Returns what to call once it has."""
        if update.value is not None:
            self._tried[update.key, update.value] = run.fence
        ends = update.value is None or decode_query(update.value).holds_from is None
        if not ends or run.cut is None:
            return lambda: None
        end = _End(run.fence, run.cut)
        self._ends.setdefault((update.key, update.expected), []).append(end)

        def written() -> None:
            end.loose = run.fence < self._newest

        return written

    @property
    def problems(self) -> Set[tuple[StreamName, str]]:
        """Why queries were suspended, with their outputs."""
        return {(query.adopted.output, query.problem) for query in self._all() if query.problem and query.adopted}

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
            by_id: dict[str, list[int]] = {}
            for version in sorted(versions):
                by_id.setdefault(versions[version].id, []).append(version)
            for number, of_query in by_id.items():
                found += self._terms_of(key, of_query, holds=number in still)
        return found

    def _terms_of(self, key: bytes, versions: Sequence[int], *, holds: bool) -> Iterator[Term]:
        """Yield the times in which one query held.  `holds`: it still does."""
        rows = self._rows[key]
        begins = [
            at for at, version in enumerate(versions) if not at or _form(rows[version]) != _form(rows[versions[at - 1]])
        ]
        for begin, later in zip(begins, [*begins[1:], len(versions)], strict=True):
            query = rows[versions[begin]]
            if query.adopted is None or query.holds_from is None:
                continue
            following = [rows[version].holds_from for version in versions[later:]]
            again = next((cut for cut in following if cut is not None), None)
            end = latest = again
            if (following and following[0] is None) or not (following or holds):
                end, latest = self._end_of(key, versions[begin:later], again)
            yield Term(query, query.adopted, query.holds_from, end, latest, (key, versions[begin]) in self._loose)

    def _end_of(
        self, key: bytes, versions: Sequence[int], again: StreamCut | None
    ) -> tuple[StreamCut | None, StreamCut | None]:  # fmt: skip
        """Return when a term ended: see `Term`.  `versions`: of its rows.  `again`: the cut from which the query held
        then."""
        ends = [end for version in versions for end in self._ends.get((key, version), ())]
        if not ends:
            return again, again
        ends.sort(key=lambda end: end.fence)  # a run saves no smaller cut than those before it
        return ends[0].cut, again if any(end.loose for end in ends) else ends[-1].cut


def _form(query: ContinuousQuery) -> tuple[Definition | None, StreamCut | None]:
    return query.adopted, query.holds_from


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
        run = self._run
        written = [] if run is None else [self._seen.try_to_write(each, run) for each in ours]
        versions = await self._tables.update(table, updates)
        for note in written:
            note()
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
