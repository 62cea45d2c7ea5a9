"""What the engine reads: relations, each a list of parts that are read alone.

A part is a run of rows of which some bounds are known before anything is read: its segment, its offsets, and between
which times it was ingested.  The engine compares a query's filters with the bounds and leaves parts out
(`sql/pruning.py`); rows of the others it filters itself.  So a relation filters nothing, and the engine can be in
another process than the streams: everything here but the batches is plain values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Part:
    """A run of rows, and the bounds of each row in it; None: not known.

    `number`: by which the relation knows it.  `bytes`: to be read for it.  `segment`: the packed id.  `start`, `end`:
    offsets; every row's is at least `start`, and below `end`.  `ingested_us`: the least and the greatest
    `sarit.ingested`, in microseconds since 1970; every row has one."""

    number: int
    bytes: int
    segment: int | None = None
    start: int | None = None
    end: int | None = None
    ingested_us: tuple[int, int] | None = None


class Relation(Protocol):
    """One table of a query as it was when the query began: whatever is appended later is not in it."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""

    @property
    def parts(self) -> Sequence[Part]:
        """All of its rows, each in one part.  Their numbers differ."""

    def read(self, numbers: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return the rows of some parts, in no order; batches have the columns in the order given.

        `columns`: names of the schema, at least one; of a struct also one field as `sarit.segment`, in which case the
        other fields of the struct are null or set.  Called on any thread; closing the iterator ends the read.
        Raises what a read of the stream raises."""


class Tables(Protocol):
    """The tables that a query can name."""

    def find(self, path: Sequence[str]) -> Relation | None:
        """Return the relation of a name such as ("shop", "orders"); None: there is none.  Raises Forbidden, Invalid.

        Called on any thread, once for each name of a query."""

    def near(self, path: Sequence[str]) -> Sequence[str]:
        """Return names that are like one that was not found, as SQL has them, the nearest first."""
