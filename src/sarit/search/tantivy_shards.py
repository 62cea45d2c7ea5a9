"""Shards of an index as directories of Tantivy, a library for full-text search.  Needs `sarit[search]`.

*Fields* have numbers in place of their paths: `f0` is the first one of the mapping.  Texts are given as tokens that are
separated by spaces, so that words are what `analyzer.py` says they are, in scans and in shards.  Of each event `_all`
has every text, `_has` the texts that it has, and `_segment`, `_offset`, `_order` and `_time` where and when it is.

*Merges.*  Tantivy merges files in threads of its own, after a commit, and removes those that are merged.  What a commit
consists of is in `meta.json`; if that changes while the files are opened, they are opened again.  Open files stay
readable when they are removed.  Each content of `meta.json` gets a name of its own, `meta-HASH.json`, since a stored
file never changes.

*Bytes.*  Tantivy has four bytes of each document in a `.store` even if no field is stored, of which nearly all repeat.
A shard that is closed has these files compressed, as `.store.zlib`, since it is never merged again, and no search reads
them.  `_has` and keywords have no lengths to score by, which would take a byte each.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import zlib
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import tantivy
from tantivy import FieldType, Occur, Order
from tantivy import Query as TantivyQuery

from sarit.core.errors import Corrupt, Invalid, SaritError
from sarit.search import query as queries
from sarit.search.documents import Place
from sarit.search.field_values import time_of_key
from sarit.search.limits import (
    FACET_CANDIDATES,
    HIT_WINDOWS,
    INDEX_MEMORY_BYTES,
    MAX_FILE_LIST_ATTEMPTS,
    MAX_HISTOGRAM_BUCKETS,
    MAX_PREFIX_TERMS,
    MAX_STORE_FILE_BYTES,
    MIN_WINDOWED_HITS,
)
from sarit.search.mapping import Kind
from sarit.search.ports import ShardAnswer, ShardHit, never
from sarit.search.query import ALL_TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from sarit.env.ports import Buffer
    from sarit.search.documents import Document
    from sarit.search.mapping import Mapping as FieldMapping
    from sarit.search.ports import Indexed, ShardQuestion
    from sarit.search.query import Query, Value

_META: Final = "meta.json"
_MANAGED: Final = ".managed.json"  # the files that Tantivy may remove once they are merged
_ALL: Final = "_all"
_HAS: Final = "_has"
_SEGMENT: Final = "_segment"
_OFFSET: Final = "_offset"
_ORDER: Final = "_order"
_TIME: Final = "_time"
_WHOLE: Final = "raw"  # the tokenizer of values that are one word
_STORE: Final = ".store"
_PACKED: Final = ".store.zlib"
_EDGE: Final = 1 << 10  # to what an order key as a double is exact
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class TantivyShards:
    """Makes shards of Tantivy, and opens them."""

    def __repr__(self) -> str:
        return "<TantivyShards>"

    def create(self, directory: Path, mapping: FieldMapping) -> TantivyWriter:
        """Create an empty shard in a directory, which is made.  Raises OSError."""
        directory.mkdir(parents=True, exist_ok=True)
        with _explained(OSError, f"a shard cannot be made in {directory}"):
            tantivy.Index(_schema(mapping), str(directory))
            meta = json.loads((directory / _META).read_bytes())
            for field in meta["schema"]:  # its Python has no option for it
                if field["options"].get("indexing", {}).get("tokenizer") == _WHOLE:
                    field["options"]["indexing"]["fieldnorms"] = False
            (directory / _META).write_text(json.dumps(meta))
            return TantivyWriter(directory, mapping, tantivy.Index.open(str(directory)))

    def resume(self, directory: Path, mapping: FieldMapping) -> TantivyWriter:
        """Return a writer of the shard whose files are in a directory.  Raises Corrupt, OSError."""
        files = sorted(path.name for path in directory.iterdir() if not path.name.startswith((".", "meta-")))
        index = _opened(directory)
        (directory / _MANAGED).write_text(json.dumps([*files, _META]))
        with _explained(Corrupt, f"the shard in {directory} is damaged"):
            return TantivyWriter(directory, mapping, index)

    def open(self, directory: Path, mapping: FieldMapping) -> TantivyReader:
        """Open the shard whose files are in a directory.  Raises Corrupt, OSError."""
        _unpack_stores(directory)
        return TantivyReader(_opened(directory), mapping)

    def discard(self, directory: Path) -> None:
        """Remove a directory with all its files; succeeds when there is none.  Raises OSError."""
        with suppress(FileNotFoundError):
            for path in directory.iterdir():
                path.unlink(missing_ok=True)
            directory.rmdir()


def _opened(directory: Path) -> tantivy.Index:
    """Return the index of a shard's files.  Raises Corrupt, OSError."""
    found = [path for path in directory.iterdir() if path.name.startswith("meta-")]
    if len(found) != 1:
        raise Corrupt(f"{directory} has {len(found)} commits of a shard, not one: remove the directory")
    (directory / _META).write_bytes(found[0].read_bytes())
    with _explained(Corrupt, f"the shard in {directory} is damaged"):
        index = tantivy.Index.open(str(directory))
        index.config_reader("manual", 1)
        index.reload()
        return index


def _unpack_stores(directory: Path) -> None:
    """Write the files that are compressed in a closed shard.  Raises Corrupt, OSError."""
    for path in directory.iterdir():
        unpacked = directory / (path.name.removesuffix(_PACKED) + _STORE)
        if path.name.endswith(_PACKED) and not unpacked.exists():
            reader = zlib.decompressobj()
            try:
                content = reader.decompress(path.read_bytes(), MAX_STORE_FILE_BYTES)
            except zlib.error as error:
                raise Corrupt(f"{path} is damaged: {error}") from None
            if not reader.eof:
                raise Corrupt(f"{path} is not whole, or has more than {MAX_STORE_FILE_BYTES} bytes")
            unpacked.write_bytes(content)


@contextmanager
def _explained(kind: type[Exception], what: str) -> Iterator[None]:
    """Raise errors of Tantivy as another kind.  Its panics are no subclasses of Exception."""
    try:
        yield
    except SaritError:  # some of them are a ValueError, too
        raise
    except (ValueError, RuntimeError) as error:
        raise kind(f"{what}: {error}") from None
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise kind(f"{what}: {error}") from None
        raise


# -- fields -----------------------------------------------------------------------------------------


def _name(number: int) -> str:
    return f"f{number}"


def _numbered(mapping: FieldMapping) -> dict[str, tuple[str, Kind]]:
    """Return the name and the kind of each field by its path."""
    fields = {field.path: (_name(number), field.kind) for number, field in enumerate(mapping.fields)}
    return {ALL_TEXT: (_ALL, Kind.TEXT)} | fields


def _schema(mapping: FieldMapping) -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field(_HAS, tokenizer_name=_WHOLE, index_option="basic")
    builder.add_unsigned_field(_SEGMENT, fast=True)
    builder.add_unsigned_field(_OFFSET, fast=True)
    builder.add_integer_field(_ORDER, fast=True)
    builder.add_integer_field(_TIME, fast=True)
    for name, kind in _numbered(mapping).values():
        match kind:
            case Kind.TEXT:
                builder.add_text_field(name, tokenizer_name="whitespace", index_option="position")
            case Kind.KEYWORD:
                builder.add_text_field(name, tokenizer_name=_WHOLE, index_option="basic", fast=True)
            case Kind.NUMBER:
                builder.add_float_field(name, indexed=True, fast=True)
            case Kind.TIME:
                builder.add_integer_field(name, indexed=True, fast=True)
            case Kind.BOOLEAN:
                builder.add_boolean_field(name, indexed=True, fast=True)
    return builder.build()


# -- writing ----------------------------------------------------------------------------------------


class TantivyWriter:
    """A shard that grows."""

    def __init__(self, directory: Path, mapping: FieldMapping, index: tantivy.Index) -> None:
        self._directory = directory
        self._names = {path: name for path, (name, _) in _numbered(mapping).items()}
        self._index: tantivy.Index | None = index
        self._writer: Any = index.writer(heap_size=INDEX_MEMORY_BYTES, num_threads=1)

    def __repr__(self) -> str:
        return f"<TantivyWriter in {self._directory}>"

    def add(self, documents: Sequence[Indexed]) -> None:
        """Add documents.  Raises OSError."""
        with self._working():
            for one in documents:
                document = tantivy.Document()
                document.add_unsigned(_SEGMENT, one.place.segment)
                document.add_unsigned(_OFFSET, one.place.offset)
                document.add_integer(_ORDER, one.order_key)
                document.add_integer(_TIME, time_of_key(one.order_key))
                self._fill(document, one.document)
                self._writer.add_document(document)

    def _fill(self, document: tantivy.Document, event: Document) -> None:
        names = self._names
        for path, texts in event.texts.items():
            if (name := names.get(path)) is not None and texts:
                for tokens in texts:
                    document.add_text(name, " ".join(tokens))
                if any(texts):
                    document.add_text(_HAS, name)
        if not (event.keywords or event.numbers or event.times or event.booleans):  # as of every text
            return
        for path, keywords in event.keywords.items():
            if path in names:
                for keyword in keywords:
                    document.add_text(names[path], _encodable(keyword))
        for path, numbers in event.numbers.items():
            if path in names:
                for number in numbers:
                    document.add_float(names[path], _plain(number))
        for path, times in event.times.items():
            if path in names:
                for time_ms in times:
                    document.add_integer(names[path], min(max(time_ms, _LEAST), _MOST))
        for path, booleans in event.booleans.items():
            if path in names:
                for boolean in booleans:
                    document.add_boolean(names[path], boolean)

    def commit(self, stored: frozenset[str]) -> tuple[Sequence[str], Mapping[str, Buffer]]:
        """Write everything added to files.

        Returns the names of all files that the shard consists of now, and the contents of those that are not among
        `stored`, which are stored already.  A name never comes again with other contents.  Raises OSError."""
        if self._writer is not None:
            with self._working():
                self._writer.commit()
        for _ in range(MAX_FILE_LIST_ATTEMPTS):
            meta = (self._directory / _META).read_bytes()
            with suppress(FileNotFoundError):
                names = self._files_of(json.loads(meta))
                if self._writer is None:  # there is no merge any more
                    names = [name.removesuffix(_STORE) + _PACKED if name.endswith(_STORE) else name for name in names]
                contents = {name: self._content(name) for name in names if name not in stored}
                if (self._directory / _META).read_bytes() == meta:
                    named = f"meta-{hashlib.sha256(meta).hexdigest()[:32]}.json"
                    return [*names, named], contents if named in stored else contents | {named: meta}
        raise OSError(f"the files of the shard in {self._directory} change too often")

    def _content(self, name: str) -> Buffer:
        """Return the content of a file as it is stored.  Raises OSError."""
        if name.endswith(_PACKED):
            return zlib.compress(_mapped(self._directory / (name.removesuffix(_PACKED) + _STORE)))
        return _mapped(self._directory / name)

    def _files_of(self, meta: Any) -> list[str]:
        segments = {segment["segment_id"].replace("-", "") for segment in meta["segments"]}
        return sorted(path.name for path in self._directory.iterdir() if path.name.partition(".")[0] in segments)

    def merge(self) -> None:
        """Wait for the merges that Tantivy has begun.  Only `commit`, without more documents, and `close` may follow.

        Raises OSError."""
        if self._writer is not None:
            with self._working():
                self._writer.commit()
                writer, self._writer = self._writer, None
                writer.wait_merging_threads()

    def close(self) -> None:
        """Release the directory, which may be deleted then.  Raises nothing."""
        writer, self._writer, self._index = self._writer, None, None
        if writer is not None:
            with suppress(Exception), _explained(OSError, "close"):
                writer.rollback()
            with suppress(Exception), _explained(OSError, "close"):
                writer.wait_merging_threads()

    def _working(self) -> Any:
        return _explained(OSError, f"the shard in {self._directory} cannot be written")


def _mapped(path: Path) -> Buffer:
    """Return the content of a file that may be removed meanwhile.  Raises OSError."""
    with path.open("rb") as file:
        if path.name and file.seek(0, 2) == 0:
            return b""
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _encodable(text: str) -> str:
    """Return a text without halves of surrogate pairs, which are no characters."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _plain(number: float) -> float:
    """Return a number as Tantivy compares it: -0.0 is another one than 0.0 there."""
    return float(number) + 0.0


# -- reading ----------------------------------------------------------------------------------------


class TantivyReader:
    """A shard at one commit."""

    def __init__(self, index: tantivy.Index, mapping: FieldMapping) -> None:
        self._fields = _numbered(mapping)
        self._index: tantivy.Index | None = index
        self._schema = index.schema
        self._searcher: Any = index.searcher()
        self._edges: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return "<TantivyReader>"

    def search(self, question: ShardQuestion, check: Callable[[], None] = never) -> ShardAnswer:
        """Return the answer.  Raises Invalid: the query costs too much (MAX_PREFIX_TERMS); Corrupt; what `check` does.

        `check`: called between the pieces of the work."""
        with _explained(Corrupt, "a shard cannot be searched"):
            query = self._whole(question, check)
            check()
            buckets = self._buckets(query, question.bucket_ms) if question.bucket_ms else ()
            facets = {}
            for field in question.facets:
                check()
                facets[field] = self._facet(query, field, question.facet_limit)
            check()
            total = sum(count for _, count in buckets) if question.bucket_ms else self._counted(question)
            found, total = self._found(query, question, total, check)
            addresses = [address for _, address in found]
            columns = [self._searcher.fast_field_values(name, addresses) for name in (_SEGMENT, _OFFSET, _ORDER)]
            scores = [float(score) if question.sort == "score" else 0.0 for score, _ in found]
            return ShardAnswer(
                tuple(
                    ShardHit(Place(segment, offset), order_key, score)
                    for segment, offset, order_key, score in zip(*columns, scores, strict=True)
                ),
                total,
                buckets,
                facets or None,
            )

    def _counted(self, question: ShardQuestion) -> int | None:
        """Return how many documents a question finds, if it shows without finding them; else None."""
        if question.spans is not None or not _has_whole(question):
            return None
        match question.query:
            case queries.Everything():
                return int(self._searcher.num_docs)
            case queries.Term(field, token):
                name, kind = self._fields.get(field, ("", Kind.TEXT))
                return int(self._searcher.doc_freq(name, _encodable(token))) if name and kind is Kind.TEXT else None
        return None

    def _found(
        self, query: TantivyQuery, question: ShardQuestion, total: int | None, check: Callable[[], None]
    ) -> tuple[list[Any], int]:
        """Return the first hits, as (sorted by, address), and how many there are.  `total`: the latter, if known."""
        limit, search = question.limit, self._searcher.search
        if total is not None and not min(total, limit):
            return [], total
        if question.sort == "score":
            found = search(query, max(1, limit), count=total is None)
        else:
            order = {
                "order_by_field": _ORDER, "order": Order.Desc if question.sort == "newest" else Order.Asc,
            }  # fmt: skip
            if total is not None and total >= MIN_WINDOWED_HITS:
                for low, high in _windows(question, total, self._key_edges()):
                    part = [(Occur.Must, query), (Occur.Must, _unscored(self._within(_ORDER, low, high)))]
                    found = search(TantivyQuery.boolean_query(part), limit, count=False, **order)
                    if len(found.hits) == limit:  # the others come before or after all of these
                        return found.hits, total
                    check()
            found = search(query, max(1, limit), count=total is None, **order)
        return found.hits[:limit], found.count if total is None else total

    def _key_edges(self) -> tuple[int, int]:
        """Return the order keys, from the first to before the second, between which all are, about."""
        if self._edges is None:
            asked = {"least": {"min": {"field": _ORDER}}, "most": {"max": {"field": _ORDER}}}
            found = self._searcher.aggregate(TantivyQuery.all_query(), asked)
            self._edges = int(found["least"]["value"]) - _EDGE, int(found["most"]["value"]) + _EDGE
        return self._edges

    def close(self) -> None:
        """Release the files."""
        self._index = self._searcher = None

    def _whole(self, question: ShardQuestion, check: Callable[[], None]) -> TantivyQuery:
        clauses = [(Occur.Must, self._translate(question.query, check))]
        if not _has_whole(question):
            clauses.append((Occur.Must, _unscored(self._within(_ORDER, question.low, question.high))))
        if question.spans is not None:
            spans = [
                (
                    Occur.Should,
                    TantivyQuery.boolean_query(
                        [
                            (Occur.Must, self._within(_SEGMENT, segment, segment + 1)),
                            (Occur.Must, self._within(_OFFSET, low, high)),
                        ]
                    ),
                )
                for segment, (low, high) in question.spans.items()
            ]
            within = TantivyQuery.boolean_query(spans) if spans else TantivyQuery.empty_query()
            clauses.append((Occur.Must, _unscored(within)))
        return TantivyQuery.boolean_query(clauses) if len(clauses) > 1 else clauses[0][1]

    def _within(self, name: str, low: int, high: int) -> TantivyQuery:
        """Return a query for values of a fast field from `low` to before `high`."""
        kind = FieldType.Integer if name == _ORDER else FieldType.Unsigned
        least, most = (_LEAST, _MOST) if kind is FieldType.Integer else (0, (1 << 64) - 1)
        return TantivyQuery.range_query(
            self._schema, name, kind, max(low, least), min(high, most), include_upper=high > most
        )

    def _buckets(self, query: TantivyQuery, bucket_ms: int) -> tuple[tuple[int, int], ...]:
        asked = {"b": {"histogram": {"field": _TIME, "interval": bucket_ms, "min_doc_count": 1}}}
        try:
            found = self._searcher.aggregate(query, asked)["b"]["buckets"]
        except ValueError:
            raise _too_many_buckets(bucket_ms) from None
        if len(found) > MAX_HISTOGRAM_BUCKETS:
            raise _too_many_buckets(bucket_ms)
        return tuple((int(one["key"]), one["doc_count"]) for one in found)

    def _facet(self, query: TantivyQuery, path: str, limit: int) -> tuple[tuple[str, int], ...]:
        name, kind = self._fields.get(path, ("", Kind.TEXT))
        if kind is not Kind.KEYWORD:
            return ()
        terms = {"field": name, "size": max(1, limit), "segment_size": max(limit, FACET_CANDIDATES)}
        found = self._searcher.aggregate(query, {"f": {"terms": terms}})["f"]["buckets"]
        counted = [(one["key"], one["doc_count"]) for one in found][:limit]
        return tuple(sorted(counted, key=lambda one: (-one[1], one[0])))

    # -- queries --------------------------------------------------------------------------------------

    def _translate(self, query: Query, check: Callable[[], None]) -> TantivyQuery:
        """Return a query as Tantivy has it.  Raises Invalid, and what `check` does."""
        check()
        match query:
            case queries.Everything():
                return TantivyQuery.all_query()
            case queries.Not(part):
                return self._all_of((queries.Not(part),), check)
            case queries.And(parts):
                return self._all_of(parts, check)
            case queries.Or(parts):
                return TantivyQuery.boolean_query([(Occur.Should, self._translate(part, check)) for part in parts])
            case _:
                name, kind = self._fields.get(query.field, ("", Kind.TEXT))
                return self._leaf(query, name, kind) if name else TantivyQuery.empty_query()

    def _all_of(self, parts: Sequence[Query], check: Callable[[], None]) -> TantivyQuery:
        clauses = [
            (Occur.MustNot, self._translate(part.part, check))
            if isinstance(part, queries.Not)
            else (Occur.Must, self._translate(part, check))
            for part in parts
        ]
        if all(occur == Occur.MustNot for occur, _ in clauses):  # which alone find nothing
            clauses.append((Occur.Must, TantivyQuery.all_query()))
        return TantivyQuery.boolean_query(clauses)

    def _leaf(self, query: Query, name: str, kind: Kind) -> TantivyQuery:
        match query:
            case queries.Term(_, token) if kind is Kind.TEXT:
                return TantivyQuery.term_query(self._schema, name, _encodable(token))
            case queries.Phrase(_, tokens) if kind is Kind.TEXT:
                return TantivyQuery.phrase_query(self._schema, name, [_encodable(token) for token in tokens])
            case queries.Prefix(_, beginning) if kind in (Kind.TEXT, Kind.KEYWORD):
                return self._beginning(name, _encodable(beginning))
            case queries.Equals(_, value) if _fits(value, kind):
                return TantivyQuery.term_query(self._schema, name, _as_stored(value, kind))
            case queries.Range(_, low, high) if kind is Kind.KEYWORD:
                return self._between(name, query)
            case queries.Range(_, low, high) if kind in (Kind.NUMBER, Kind.TIME):
                if any(bound is not None and not _fits(bound, kind) for bound in (low, high)):
                    return TantivyQuery.empty_query()
                if low is None and high is None:
                    return TantivyQuery.exists_query(name)
                return TantivyQuery.range_query(
                    self._schema, name, FieldType.Float if kind is Kind.NUMBER else FieldType.Integer,
                    None if low is None else _as_stored(low, kind), None if high is None else _as_stored(high, kind),
                    include_lower=low is None or query.with_low, include_upper=high is None or query.with_high,
                )  # fmt: skip
            case queries.Exists():
                if kind is Kind.TEXT:
                    return TantivyQuery.term_query(self._schema, _HAS, name)
                return TantivyQuery.exists_query(name)
        return TantivyQuery.empty_query()

    def _beginning(self, name: str, beginning: str) -> TantivyQuery:
        found = self._searcher.terms_with_prefix(name, beginning, limit=MAX_PREFIX_TERMS + 1)
        return self._any_of(name, [term for term, _ in found], f"{beginning}*")

    def _between(self, name: str, query: queries.Range) -> TantivyQuery:
        """Return a query for the keywords between two bounds, for which Tantivy has none in Python."""
        low, high = query.low, query.high
        if not all(bound is None or isinstance(bound, str) for bound in (low, high)):
            return TantivyQuery.empty_query()
        common = _common_beginning(str(low), str(high)) if low is not None and high is not None else ""
        found = self._searcher.terms_with_prefix(name, _encodable(common), limit=MAX_PREFIX_TERMS + 1)
        if len(found) > MAX_PREFIX_TERMS:
            raise _too_many_terms("this range")
        return self._any_of(name, [term for term, _ in found if _lies_between(term, query)], "this range")

    def _any_of(self, name: str, terms: list[str], what: str) -> TantivyQuery:
        if len(terms) > MAX_PREFIX_TERMS:
            raise _too_many_terms(what)
        return TantivyQuery.term_set_query(self._schema, name, terms) if terms else TantivyQuery.empty_query()


def _has_whole(question: ShardQuestion) -> bool:
    """Return whether the order keys of a question are those of all events of the shard."""
    first, behind = question.keys or (_LEAST, _MOST + 1)
    return question.low <= first and question.high >= behind


def _windows(question: ShardQuestion, total: int, edges: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of order keys, at the end that is wanted, in which the first hits may be.  Any range is correct.

    Events may lie evenly in time, or very many in one millisecond: so ranges are small at first."""
    first, behind = max(question.low, edges[0]), min(question.high, edges[1])
    for factor in HIT_WINDOWS:
        width = max(2 * _EDGE, int((behind - first) * question.limit / total * factor))
        if width < behind - first:
            yield (behind - width, _MOST + 1) if question.sort == "newest" else (_LEAST, first + width)


def _unscored(query: TantivyQuery) -> TantivyQuery:
    return TantivyQuery.const_score_query(query, 0.0)


def _too_many_terms(what: str) -> Invalid:
    return Invalid(f"{what} stands for more than {MAX_PREFIX_TERMS:,} words of a part of the index: give more letters")


def _too_many_buckets(bucket_ms: int) -> Invalid:
    return Invalid(
        f"a histogram by {bucket_ms:,} ms has more than {MAX_HISTOGRAM_BUCKETS:,} buckets: choose wider ones, or less "
        "time"
    )


def _fits(value: Value, kind: Kind) -> bool:
    match kind:
        case Kind.KEYWORD:
            return isinstance(value, str)
        case Kind.BOOLEAN:
            return isinstance(value, bool)
        case Kind.NUMBER:
            return isinstance(value, int | float) and not isinstance(value, bool)
        case Kind.TIME:
            return isinstance(value, int) and not isinstance(value, bool)
        case _:
            return False


def _as_stored(value: Value, kind: Kind) -> Value:
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, bool):
        return value
    return _plain(value) if kind is Kind.NUMBER else min(max(int(value), _LEAST), _MOST)


def _common_beginning(low: str, high: str) -> str:
    at = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:at]


def _lies_between(term: str, query: queries.Range) -> bool:
    low, high = query.low, query.high
    above = low is None or term > str(low) or (query.with_low and term == low)
    return above and (high is None or term < str(high) or (query.with_high and term == high))
