"""What indexers, searchers and continuous queries need of the world."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.env.ports import Buffer
    from sarit.search.documents import Document, Place
    from sarit.search.mapping import Mapping as FieldMapping
    from sarit.search.query import Query

    # Of a row: its key, its new value (None: it is removed), and the version that it has (None: there is no such row).
    RowChange: TypeAlias = tuple[bytes, bytes | None, int | None]

    # Saves the state of a job, and the cut beyond which retention must not truncate.  Raises Fenced, Unavailable.
    Save: TypeAlias = Callable[[bytes, StreamCut | None], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class EventSlice:
    """Events of one segment that follow one another: `offsets` says where the header of each begins.

    `lost_bytes`: bytes before them that were truncated before they were read.  `end`: the cut behind everything that
    was read so far."""

    segment: int
    offsets: Sequence[int]
    events: Sequence[bytes]
    end: StreamCut
    lost_bytes: int = 0


def endless() -> float:
    """Return the seconds until something is due that never is."""
    return math.inf


class EventSource(Protocol):
    """The stream that an indexer, or continuous queries, read."""

    stream: StreamName

    async def identity(self) -> str:
        """Return the creation id of the stream, in hexadecimal digits.  Raises NotFound, Unavailable."""

    async def edge(self, which: str) -> StreamCut:
        """Return the cut of the "head" or the "tail".  Raises NotFound, Unavailable."""

    async def bytes_behind(self, cut: StreamCut) -> int:
        """Return how many bytes the stream has behind a cut.  Raises NotFound, Unavailable."""

    async def is_finished(self, cut: StreamCut) -> bool:
        """Return whether the stream is sealed, and nothing is behind a cut.  Raises NotFound, Unavailable."""

    async def is_before(self, earlier: StreamCut, later: StreamCut) -> bool:
        """Return whether a cut is nowhere behind another one; False, too, if segments of them are not known any more.
        Raises Unavailable."""

    async def is_truncated(self, cut: StreamCut) -> bool:
        """Return whether everything before a cut is truncated.  Raises NotFound, Unavailable."""

    async def appended_ms(self, cut: StreamCut) -> int:
        """Return about when the events behind a cut were appended, since 1970.  Raises NotFound, Unavailable."""

    def follow(
        self, start: StreamCut, until_due: Callable[[], float] = endless
    ) -> AsyncGenerator[EventSlice | None, None]:
        """Yield the events behind a cut as they come, in the order of each segment and of segments that succeed one
        another; None whenever there is nothing at hand.  Raises NotFound, Unavailable, Corrupt.

        `until_due`: the seconds after which None is wanted at the latest."""


class Blobs(Protocol):
    """Named runs of bytes that grow at their ends, durable and readable by every process of the installation."""

    async def append(self, name: str, parts: Sequence[bytes]) -> int:
        """Append parts, durably, to a blob that may not exist yet.  Returns the offset of the first of them.

        What a caller that failed appended lies before it: nobody refers to it.  Raises Unavailable."""

    async def read(self, name: str, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset`.  Raises NotFound, Corrupt (it is shorter), Unavailable."""

    async def delete(self, name: str) -> None:
        """Delete a blob; succeeds when it does not exist.  Raises Unavailable."""

    async def names(self, prefix: str) -> list[str]:
        """Return the names of all blobs that begin with a prefix, in order, those of failed creations included.

        Raises Unavailable."""


class Rows(Protocol):
    """Rows of the installation, by keys in the order of their bytes; each has a version."""

    async def get(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        """Return (value, version) of each key; None: there is none.  Raises Unavailable."""

    async def put(self, key: bytes, value: bytes | None, version: int | None) -> int:
        """Set the value of a key, or remove it (None), if it has a version; None: if there is none.

        Returns the new version; of a removal -1.  Raises Conflict, and changes nothing; Unavailable."""

    async def put_all(self, changes: Sequence[RowChange], mark: tuple[bytes, bytes] | None = None) -> list[int]:
        """Do the same for several rows, for all or for none.  Raises Conflict, Unavailable.

        `mark`: a key and the value that it gets together with them, whatever it has."""

    async def scan(self, prefix: bytes) -> list[tuple[bytes, bytes, int]]:
        """Return (key, value, version) of all keys that begin with a prefix, ascending.  Raises Unavailable."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """One document to index.  `order_key`: as of `field_values.order_key`; hits are sorted by it."""

    place: Place
    order_key: int
    document: Document


class ShardWriter(Protocol):
    """A shard that grows, in a local directory.  Calls block."""

    def add(self, documents: Sequence[Indexed]) -> None:
        """Add documents.  Raises OSError."""

    def commit(self, stored: frozenset[str]) -> tuple[Sequence[str], Mapping[str, Buffer]]:
        """Write everything added to files.

        Returns the names of all files that the shard consists of now, and the contents of those that are not among
        `stored`, which are stored already.  A name never comes again with other contents.  Raises OSError."""

    def merge(self) -> None:
        """Make the shard as small and as fast as it can be, before its last commit.  Raises OSError."""

    def close(self) -> None:
        """Release the directory, which may be deleted then.  Raises nothing."""


@dataclass(frozen=True, slots=True)
class ShardHit:
    """An event of a shard that matches.  `score`: how well; 0.0 unless hits are sorted by it."""

    place: Place
    order_key: int
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class ShardQuestion:
    """A question to one shard.

    `low`, `high`: order keys, from `low` to before `high`.  `sort`: "newest", "oldest" or "score".  `limit`: of hits.
    `bucket_ms`: the width of the buckets of the histogram over time; 0: none is wanted.  `facets`: fields of keywords
    whose values are counted, and `facet_limit` of the most frequent of each.  `spans`: by the packed ids of segments:
    only their events with low <= offset < high count, for hits and for all other parts of the answer; None: all do.
    `keys`: order keys from the first to before the second of which all events of the shard have theirs; None: any."""

    query: Query
    low: int
    high: int
    sort: str = "newest"
    limit: int = 20
    bucket_ms: int = 0
    facets: tuple[str, ...] = ()
    facet_limit: int = 10
    spans: Mapping[int, tuple[int, int]] | None = None
    keys: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ShardAnswer:
    """The answer of a shard.  `total`: of matching events.  `buckets`: (begin in ms, events), ascending.  `facets`: of
    each field (value, events), the most frequent first."""

    hits: tuple[ShardHit, ...]
    total: int
    buckets: tuple[tuple[int, int], ...] = ()
    facets: Mapping[str, tuple[tuple[str, int], ...]] | None = None


def never() -> None:
    """Go on with a search: its caller never gives it up."""


class ShardReader(Protocol):
    """A shard at one commit, opened from the files in a local directory.  Calls block."""

    def search(self, question: ShardQuestion, check: Callable[[], None] = never) -> ShardAnswer:
        """Return the answer.  Raises Invalid: the query costs too much (MAX_PREFIX_TERMS); what `check` does.

        `check`: called between the pieces of the work, and raises once nobody waits for the answer."""

    def close(self) -> None:
        """Release the files."""


class ShardEngine(Protocol):
    """Makes shards and opens them: Tantivy's, or in memory for the simulation.  Calls block.

    The directory of a shard that exists has exactly the files of one commit, as `ShardWriter.commit` named them."""

    def create(self, directory: Path, mapping: FieldMapping) -> ShardWriter:
        """Create an empty shard in a directory, which is made.  Raises OSError."""

    def resume(self, directory: Path, mapping: FieldMapping) -> ShardWriter:
        """Return a writer of the shard whose files are in a directory.  Raises Corrupt, OSError."""

    def open(self, directory: Path, mapping: FieldMapping) -> ShardReader:
        """Open the shard whose files are in a directory.  Raises Corrupt, OSError."""

    def discard(self, directory: Path) -> None:
        """Remove a directory with all its files; succeeds when there is none.  Raises OSError."""
