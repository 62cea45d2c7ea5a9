"""The answer of an index from those of its shards: which shards are asked, by whom, and what a page of hits is.  Pure.

A page goes on behind the last hit of the page before, and shows only what was in the index when the first page was
made: its token holds the cut of that moment.  Shards are shared out to the controllers by rendezvous: each has a number
for each shard, and the one with the highest answers, so that a controller that comes or goes moves few shards.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core import cuts
from sarit.core.errors import Invalid
from sarit.search.field_values import LEAST_KEY, MOST_KEY, time_of_key
from sarit.search.limits import (
    FACET_FACTOR,
    MAX_FACET_VALUES,
    MAX_FACETS,
    MAX_FIELD_PATH_CHARACTERS,
    MAX_PAGE_BYTES,
    MAX_SEARCH_HITS,
    MAX_SEARCH_MS,
    MAX_TIED_HITS,
)
from sarit.search.ports import ShardAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TypeAlias

    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.search.ports import ShardHit
    from sarit.search.state import Shard

    Address: TypeAlias = tuple[str, int]

NEWEST, OLDEST, SCORE = "newest", "oldest", "score"
_FORMAT: Final = 2
_PAGE: Final = struct.Struct(">BqIqqI")


@dataclass(frozen=True, slots=True)
class Page:
    """The place of a page of hits: behind `ties` hits with the order key `key`, of what lies before `cut`.

    `total`, `committed_ms`: of the first page.  `asked`: `Ask.asked` of the search that it goes on with."""

    cut: StreamCut
    key: int
    ties: int
    total: int
    committed_ms: int
    asked: int

    def encode(self) -> bytes:
        """Return the token of the page; empty if it is too long: there are no further pages then."""
        head = _PAGE.pack(_FORMAT, self.key, self.ties, self.total, self.committed_ms, self.asked)
        token = head + cuts.to_bytes(self.cut)
        return token if len(token) <= MAX_PAGE_BYTES else b""

    @classmethod
    def decode(cls, token: bytes, stream: StreamName) -> Page:
        """Return the page of a token that a caller gave.  Raises Invalid."""
        if not _PAGE.size < len(token) <= MAX_PAGE_BYTES or token[0] != _FORMAT:
            raise Invalid("the page is not one that a search returned: search again without it")
        _, key, ties, total, committed_ms, asked = _PAGE.unpack_from(token)
        cut = cuts.from_bytes(token[_PAGE.size :])
        if cut is None or cut.stream != stream or ties > MAX_TIED_HITS or min(total, committed_ms) < 0:
            raise Invalid(f"the page is of a search in another stream than {stream}")
        return cls(cut, key, ties, total, committed_ms, asked)


@dataclass(frozen=True, slots=True)
class Ask:
    """A search, as its caller wants it.

    `low`, `high`: order keys, from `low` to before `high`.  `limit`: of hits of a page.  `page`: where to go on; None:
    at the first hit."""

    query: str
    low: int = LEAST_KEY
    high: int = MOST_KEY
    sort: str = NEWEST
    limit: int = 20
    bucket_ms: int = 0
    facets: tuple[str, ...] = ()
    facet_limit: int = 10
    page: Page | None = None

    def check(self) -> Ask:
        """Return the search if it is within bounds.  Raises Invalid."""
        if self.sort not in (NEWEST, OLDEST, SCORE):
            raise Invalid(f"hits are sorted by {NEWEST}, {OLDEST} or {SCORE}")
        _check_number("the limit of hits", self.limit, 0, MAX_SEARCH_HITS)
        _check_number("the width of buckets in ms", self.bucket_ms, 0, MAX_SEARCH_MS)
        _check_number("the number of facets", len(self.facets), 0, MAX_FACETS)
        _check_number("the limit of a facet", self.facet_limit, 1, MAX_FACET_VALUES)
        if len(set(self.facets)) != len(self.facets) or not all(self.facets):
            raise Invalid("facets are fields, each named once")
        if any(len(field) > MAX_FIELD_PATH_CHARACTERS for field in self.facets):
            raise Invalid(f"a facet's name is longer than {MAX_FIELD_PATH_CHARACTERS} characters")
        if self.page is not None and self.sort == SCORE:
            raise Invalid("hits that are sorted by score have one page: raise the limit, or narrow the query")
        if self.page is not None and self.page.asked != self.asked:
            raise Invalid("the page is of another query, or in another order: search without it first")
        return self

    @property
    def asked(self) -> int:
        """A checksum of the query and the order, by which a page of another search is known."""
        return zlib.crc32(f"{self.sort} {self.query}".encode(errors="replace"))

    def keys(self) -> tuple[int, int]:
        """Return the order keys that the page may have, from the first to before the second."""
        if self.page is None:
            return self.low, self.high
        if self.sort == NEWEST:
            return self.low, min(self.high, self.page.key + 1)
        return max(self.low, self.page.key), self.high

    @property
    def wanted(self) -> int:
        """The hits that each shard has to give: those of the page, those to skip, and one to see whether there are
        more."""
        return self.limit + (self.page.ties if self.page is not None else 0) + 1 if self.limit else 0

    @property
    def facet_values(self) -> int:
        """The values of a facet that each shard has to give: the most frequent of one are not those of all."""
        return min(MAX_FACET_VALUES, self.facet_limit * FACET_FACTOR)


@dataclass(frozen=True, slots=True)
class PageOfHits:
    """A page of an answer.  `next_page`: None: there is none."""

    hits: tuple[ShardHit, ...]
    total: int
    buckets: tuple[tuple[int, int], ...]
    facets: Mapping[str, tuple[tuple[str, int], ...]]
    next_page: Page | None


def _check_number(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise Invalid(f"{what} is {value}; from {least} to {most} are possible")


def choose(shards: Iterable[Shard], low: int, high: int) -> list[Shard]:
    """Return the shards that may have events with order keys from `low` to before `high`."""
    first, last = time_of_key(low), time_of_key(high - 1)
    return [one for one in shards if one.events and first <= one.last_ms and one.first_ms <= last]


def merge(answers: Iterable[ShardAnswer], sort: str, limit: int, facet_values: int) -> ShardAnswer:
    """Return the answers of several shards as one, with at most `limit` hits, and `facet_values` of each facet."""
    hits: list[ShardHit] = []
    total = 0
    buckets = Counter[int]()
    facets: dict[str, Counter[str]] = {}
    for answer in answers:
        hits += answer.hits
        if len(hits) > 2 * limit:
            hits = sorted(hits, key=_RANKS[sort])[:limit]
        total += answer.total
        buckets.update(dict(answer.buckets))
        for field, values in (answer.facets or {}).items():
            facets.setdefault(field, Counter()).update(dict(values))
    return ShardAnswer(
        tuple(sorted(hits, key=_RANKS[sort])[:limit]), total, tuple(sorted(buckets.items())),
        {field: _most_frequent(counts, facet_values) for field, counts in facets.items()} or None,
    )  # fmt: skip


def page_of(ask: Ask, answer: ShardAnswer, cut: StreamCut, committed_ms: int) -> PageOfHits:
    """Return the page of a search, from the merged answer of all its shards.

    `cut`, `committed_ms`: of the index now, for the first page."""
    hits, page = list(answer.hits), ask.page
    if page is not None:
        skipped = 0
        while skipped < page.ties and skipped < len(hits) and hits[skipped].order_key == page.key:
            skipped += 1
        del hits[:skipped]
        cut, committed_ms = page.cut, page.committed_ms
    total = answer.total if page is None else page.total
    shown = tuple(hits[: ask.limit])
    following = None
    if shown and len(hits) > len(shown) and ask.sort != SCORE:
        key = shown[-1].order_key
        ties = sum(hit.order_key == key for hit in shown) + (page.ties if page is not None and page.key == key else 0)
        if ties <= MAX_TIED_HITS:
            following = Page(cut, key, ties, total, committed_ms, ask.asked)
    facets = answer.facets or {}
    found = {field: facets.get(field, ())[: ask.facet_limit] for field in ask.facets}
    return PageOfHits(shown, total, answer.buckets, found, following)


def _most_frequent(counts: Counter[str], most: int) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most])


def _newest(hit: ShardHit) -> tuple[float, int, int, int]:
    return 0.0, -hit.order_key, hit.place.segment, hit.place.offset


def _oldest(hit: ShardHit) -> tuple[float, int, int, int]:
    return 0.0, hit.order_key, hit.place.segment, hit.place.offset


def _best(hit: ShardHit) -> tuple[float, int, int, int]:
    return -hit.score, -hit.order_key, hit.place.segment, hit.place.offset


_RANKS: Final = {NEWEST: _newest, OLDEST: _oldest, SCORE: _best}


def holders(shard: str, members: Sequence[Address]) -> list[Address]:
    """Return the controllers that may answer for a shard, the one that should first."""

    def number(address: Address) -> bytes:
        return hashlib.blake2b(f"{shard}/{address[0]}:{address[1]}".encode(), digest_size=8).digest()

    return sorted(members, key=number, reverse=True)
