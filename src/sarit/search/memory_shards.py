"""Shards of an index as lists of documents, for tests and the simulation.

A shard is a file for each commit, until several of them are merged, and a file that names them: so its files come and
go as those of Tantivy do.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Corrupt, Invalid
from sarit.search import query as queries
from sarit.search.documents import Document, Place
from sarit.search.field_values import time_of_key
from sarit.search.limits import MAX_HISTOGRAM_BUCKETS, MAX_PREFIX_TERMS
from sarit.search.ports import Indexed, ShardAnswer, ShardHit, never
from sarit.search.query import ALL_TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from sarit.env.ports import Buffer, Files
    from sarit.search.mapping import Mapping as FieldMapping
    from sarit.search.ports import ShardQuestion
    from sarit.search.query import Query

_META: Final = "meta-"
_MERGED_PARTS: Final = 4


class MemoryShards:
    """Makes such shards, and opens them.  `files`: where their directories are."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def __repr__(self) -> str:
        return "<MemoryShards>"

    def create(self, directory: Path, mapping: FieldMapping) -> MemoryWriter:
        """Create an empty shard in a directory, which is made.  Raises OSError."""
        self._files.make_dirs(str(directory))
        return MemoryWriter(mapping, [])

    def resume(self, directory: Path, mapping: FieldMapping) -> MemoryWriter:
        """Return a writer of the shard whose files are in a directory.  Raises Corrupt, OSError."""
        return MemoryWriter(mapping, self._parts(directory))

    def open(self, directory: Path, mapping: FieldMapping) -> MemoryReader:
        """Open the shard whose files are in a directory.  Raises Corrupt, OSError."""
        return MemoryReader([one for part in self._parts(directory) for one in _decoded(part)], mapping)

    def discard(self, directory: Path) -> None:
        """Remove a directory with all its files; succeeds when there is none.  Raises OSError."""
        if self._files.exists(str(directory)):
            for name in self._files.list(str(directory)):
                self._files.remove(str(directory / name))

    def _parts(self, directory: Path) -> list[bytes]:
        names = self._files.list(str(directory))
        metas = [name for name in names if name.startswith(_META)]
        if len(metas) != 1:
            raise Corrupt(f"{directory} has {len(metas)} commits of a shard, not one: remove the directory")
        try:
            wanted = json.loads(self._read(directory / metas[0]))
            return [self._read(directory / name) for name in wanted]
        except (ValueError, FileNotFoundError) as error:
            raise Corrupt(f"the shard in {directory} is damaged: {error}") from None

    def _read(self, path: Path) -> bytes:
        file = self._files.open(str(path), "read")
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()


class MemoryWriter:
    """A shard that grows, in memory."""

    def __init__(self, mapping: FieldMapping, parts: list[bytes]) -> None:
        self._paths = {field.path for field in mapping.fields} | {ALL_TEXT}
        self._parts = parts
        self._added: list[Indexed] = []

    def __repr__(self) -> str:
        return f"<MemoryWriter of {len(self._parts)} parts>"

    def add(self, documents: Sequence[Indexed]) -> None:
        """Add documents.  Raises OSError."""
        self._added += documents

    def commit(self, stored: frozenset[str]) -> tuple[Sequence[str], Mapping[str, Buffer]]:
        """Write everything added to files.

        Returns the names of all files that the shard consists of now, and the contents of those that are not among
        `stored`, which are stored already.  A name never comes again with other contents.  Raises OSError."""
        if self._added:
            self._parts.append(_encoded(self._added))
            self._added = []
            if len(self._parts) > _MERGED_PARTS:
                self._merge()
        contents: dict[str, Buffer] = {_named("part-", part): part for part in self._parts}
        meta = json.dumps(list(contents)).encode()
        contents[_named(_META, meta)] = meta
        return list(contents), {name: content for name, content in contents.items() if name not in stored}

    def _merge(self) -> None:
        self._parts = [_encoded([one for part in self._parts for one in _decoded(part)])]

    def merge(self) -> None:
        """Make the shard one part.  Raises OSError."""
        self.commit(frozenset())
        if len(self._parts) > 1:
            self._merge()

    def close(self) -> None:
        """Release the directory.  Raises nothing."""


def _named(beginning: str, content: bytes) -> str:
    return f"{beginning}{hashlib.sha256(content).hexdigest()[:32]}.json"


def _encoded(documents: Iterable[Indexed]) -> bytes:
    rows = [[one.place.segment, one.place.offset, one.order_key, asdict(one.document)] for one in documents]
    return json.dumps(rows).encode()


def _decoded(part: bytes) -> Iterator[Indexed]:
    rows: Any = json.loads(part)
    for segment, offset, order_key, document in rows:
        yield Indexed(Place(segment, offset), order_key, Document(**document))


class MemoryReader:
    """A shard at one commit, in memory."""

    def __init__(self, documents: list[Indexed], mapping: FieldMapping) -> None:
        self._documents = documents
        self._paths = {field.path for field in mapping.fields} | {ALL_TEXT}

    def __repr__(self) -> str:
        return f"<MemoryReader of {len(self._documents)} events>"

    def search(self, question: ShardQuestion, check: Callable[[], None] = never) -> ShardAnswer:
        """Return the answer.  Raises Invalid: the query costs too much (MAX_PREFIX_TERMS); what `check` does."""
        check()
        self._check_cost(question.query)
        found = [
            one
            for one in self._documents
            if question.low <= one.order_key < question.high
            and _is_in(question.spans, one.place)
            and matches(question.query, one.document)
        ]
        if question.sort == "score":
            found.sort(key=lambda one: (-_score(question.query, one.document), one.order_key))
        else:
            found.sort(key=lambda one: one.order_key, reverse=question.sort == "newest")
        buckets = Counter(_bucket(one, question.bucket_ms) for one in found) if question.bucket_ms else Counter[int]()
        if len(buckets) > MAX_HISTOGRAM_BUCKETS:
            raise Invalid(f"a histogram has more than {MAX_HISTOGRAM_BUCKETS:,} buckets: choose wider ones")
        return ShardAnswer(
            tuple(
                ShardHit(
                    one.place, one.order_key, _score(question.query, one.document) if question.sort == "score" else 0.0
                )
                for one in found[: question.limit]
            ),
            len(found),
            tuple(sorted(buckets.items())),
            {field: _facet(found, field, question.facet_limit) for field in question.facets} or None,
        )

    def _check_cost(self, query: Query) -> None:
        match query:
            case queries.And(parts) | queries.Or(parts):
                for part in parts:
                    self._check_cost(part)
            case queries.Not(part):
                self._check_cost(part)
            case queries.Prefix(field, beginning):
                terms = {t for one in self._documents for t in _terms(one.document, field) if t.startswith(beginning)}
                if len(terms) > MAX_PREFIX_TERMS:
                    raise Invalid(f"{beginning}* stands for more than {MAX_PREFIX_TERMS:,} words: give more letters")

    def close(self) -> None:
        """Release the files."""


def _is_in(spans: Mapping[int, tuple[int, int]] | None, place: Place) -> bool:
    if spans is None:
        return True
    low, high = spans.get(place.segment, (0, 0))
    return low <= place.offset < high


def _bucket(one: Indexed, bucket_ms: int) -> int:
    return time_of_key(one.order_key) // bucket_ms * bucket_ms


def _facet(found: Sequence[Indexed], field: str, limit: int) -> tuple[tuple[str, int], ...]:
    counts = Counter(value for one in found for value in set(one.document.keywords.get(field, ())))
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit])


def _terms(document: Document, field: str) -> Iterator[str]:
    for tokens in document.texts.get(field, ()):
        yield from tokens
    yield from document.keywords.get(field, ())


def _values(document: Document, field: str) -> list[Any]:
    return [
        value
        for values in (document.keywords, document.numbers, document.times, document.booleans)
        for value in values.get(field, ())
    ]


def _score(query: Query, document: Document) -> float:
    """Return how often the words of a query are in an event: enough to sort by."""
    match query:
        case queries.Term(field, token):
            return float(sum(one == token for one in _terms(document, field)))
        case queries.And(parts) | queries.Or(parts):
            return sum(_score(part, document) for part in parts)
        case _:
            return 0.0


def matches(query: Query, document: Document) -> bool:
    """Return whether an event matches a query, by the definition of each part."""
    match query:
        case queries.Everything():
            return True
        case queries.Term(field, token) | queries.Phrase(field, (token,)):
            return any(token in tokens for tokens in document.texts.get(field, ()))
        case queries.Phrase(field, tokens):
            length, wanted = len(tokens), list(tokens)
            return any(
                list(text[at : at + length]) == wanted
                for text in document.texts.get(field, ())
                for at in range(len(text) - length + 1)
            )
        case queries.Prefix(field, beginning):
            return any(term.startswith(beginning) for term in _terms(document, field))
        case queries.Equals(field, value):
            return any(_same_kind(one, value) and one == value for one in _values(document, field))
        case queries.Range():
            return any(_in_range(one, query) for one in _values(document, query.field))
        case queries.Exists(field):
            return any(document.texts.get(field, ())) or bool(_values(document, field))
        case queries.And(parts):
            return all(matches(part, document) for part in parts)
        case queries.Or(parts):
            return any(matches(part, document) for part in parts)
        case queries.Not(part):
            return not matches(part, document)


def _same_kind(one: object, other: object) -> bool:
    kinds = (str, bool)
    return all(isinstance(one, kind) == isinstance(other, kind) for kind in kinds)


def _in_range(one: Any, query: queries.Range) -> bool:
    low, high = query.low, query.high
    if any(bound is not None and not _same_kind(one, bound) for bound in (low, high)):
        return False
    above = low is None or one > low or (query.with_low and one == low)
    return bool(above and (high is None or one < high or (query.with_high and one == high)))
