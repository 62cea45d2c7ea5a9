"""What a committer needs of the world: a stream to read, how its values are decoded, and tables to append to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from typing import TypeAlias

    import pyarrow as pa

    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.lake.cuts import Snapshot

    # Saves the state of a job, and the cut beyond which retention must not truncate.  Raises Fenced, Unavailable.
    Save: TypeAlias = Callable[[bytes, StreamCut | None], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes of the stream that were truncated before they were read."""

    lost_bytes: int


class Source(Protocol):
    """The stream that a committer reads."""

    stream: StreamName

    async def identity(self) -> str:
        """Return the creation id of the stream, in hexadecimal digits.  Raises NotFound, Unavailable."""

    async def edge(self, which: str) -> StreamCut:
        """Return the cut of the "head" or the "tail".  Raises NotFound, Unavailable."""

    async def next_cut(self, start: StreamCut, distance_bytes: int) -> StreamCut:
        """Return a cut about so many bytes after `start`; `start` itself: there is nothing behind it.

        What is truncated counts nothing: the cut lies behind the gap.  Raises NotFound, Unavailable."""

    async def bytes_behind(self, cut: StreamCut) -> int:
        """Return how many bytes the stream has behind a cut.  Raises NotFound, Unavailable."""

    async def is_finished(self, cut: StreamCut) -> bool:
        """Return whether the stream is sealed, and nothing is behind a cut.  Raises NotFound, Unavailable."""

    async def ingested_ms(self, cut: StreamCut) -> int:
        """Return the time, since 1970, of the newest recorded cut that is nowhere after a cut; if there is none, that
        of the oldest one, or the present time.  Raises NotFound, Unavailable."""

    def read(self, start: StreamCut, end: StreamCut) -> AsyncGenerator[pa.RecordBatch | Gap, None]:
        """Yield what lies between two cuts as batches (event, segment, offset), and the gaps.  Raises NotFound,
        Unavailable, Corrupt."""


class ValueColumns(Protocol):
    """How the payloads of events become columns."""

    schema: pa.Schema

    def read(self, payloads: pa.Array) -> Any:
        """Return `columns` (arrays in the order of the schema) and `bad` (numpy bool): rows that are not decoded."""

    def problem(self, payload: bytes) -> str:
        """Return why a payload is not decoded."""


class Columns(Protocol):
    """Which columns the values of a stream have.  `wants_sample`: they depend on payloads."""

    wants_sample: bool

    async def choose(self, before: str, sample: Sequence[bytes]) -> str:
        """Return a text that names how values are decoded from now on.

        `before`: the text before; empty: there was none.  `sample`: some of the payloads that are decoded next.  Raises
        Invalid, NotFound, Unavailable."""

    async def open(self, chosen: str) -> ValueColumns:
        """Return the columns of such a text, always the same ones.  Raises Invalid, Unavailable."""


@dataclass(frozen=True, slots=True)
class TableView:
    """A table as it was at one moment, all of one metadata file.

    `partitions`: its partition spec as text.  `handle`: for the implementation alone."""

    uuid: str
    format_version: int
    head: int | None
    snapshots: Sequence[Snapshot]
    properties: Mapping[str, str]
    schema: pa.Schema
    partitions: str
    handle: Any = None

    @property
    def sequence(self) -> int:
        """The sequence number of the newest snapshot; 0: there is none."""
        return next((s.sequence for s in self.snapshots if s.id == self.head), 0)


class FileWriter(Protocol):
    """Data files of one commit.  Calls block."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows, in the columns of the table by name.  Raises OSError, Invalid."""

    def close(self) -> Sequence[Any]:
        """Finish the files, durably, and return them for `append`; none: there were no rows."""

    def abort(self) -> None:
        """Delete what was written.  Raises nothing."""


class LakeTables(Protocol):
    """Tables of a catalog, named by the levels of the namespace and the table.  Calls block: make them on a worker."""

    def load(self, name: Sequence[str]) -> TableView | None:
        """Return a table; None: there is none.  Raises Unavailable, Invalid."""

    def create(
        self, name: Sequence[str], schema: pa.Schema, partition_by: str, properties: Mapping[str, str]
    ) -> TableView:
        """Create a table, of format version 2, with hours of the column `partition_by` as partitions; empty: none.

        Raises Exists, Unavailable, Invalid."""

    def evolve(self, name: Sequence[str], view: TableView, schema: pa.Schema) -> TableView:
        """Add and widen columns until the table has those of `schema`.  Raises Conflict, Unavailable, Invalid."""

    def writer(self, view: TableView, prefix: str, ingested_ms: int | None, target_bytes: int) -> FileWriter:
        """Return a writer of files whose names begin with `prefix`, of the partition of a time."""

    def append(
        self,
        view: TableView,
        files: Sequence[Any],
        summary: Mapping[str, str],
        properties: Mapping[str, str],
    ) -> None:
        """Append files as one snapshot, and set properties, in one transaction that is tried once.

        The transaction fails if the table has another newest snapshot than `view`.  Raises Conflict: it failed, and
        nothing was changed, as far as the catalog knows; Unavailable: whether it was made is unknown."""

    def delete(self, view: TableView, files: Sequence[Any]) -> None:
        """Delete files that are in no snapshot.  Raises nothing."""

    def positions(self, view: TableView, ingested_ms: int) -> Sequence[pa.Table]:
        """Return the columns `segment` and `offset` of the rows of a table of dead letters whose `ingested` is this
        time, since 1970.  Raises Unavailable."""
