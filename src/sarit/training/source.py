"""What a reader for training needs of a stream; the client implements it (`access.py`), and tests do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from sarit.training.plan import Part


class Source(Protocol):
    """One stream.  Calls block; they raise errors of `core.errors`.

    `header_bytes`: how many bytes its segment has before each event."""

    header_bytes: int

    def creation(self) -> str:
        """Return the id that tells the stream from others of its name; empty: the server has no such call."""

    def boundary(self, part: Part, known: int, target: int) -> int:
        """Return where the first event of a part begins that begins at `target` or after it; else the part's end.

        An event begins at `known`, before it.  Raises Truncated, NotFound."""

    def read(self, part: Part, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the events between two boundaries as record batches (event, segment, offset).

        Raises Truncated, NotFound."""

    def close(self) -> None:
        """Release the connections."""
