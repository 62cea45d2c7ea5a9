"""Streams for Hugging Face's datasets: an IterableDataset whose shards are pieces of the stream.

    dataset = sarit.datasets.stream_dataset("shop/texts").shuffle(seed=1, buffer_size=10_000)
    for row in dataset:
        ...  # row["value"]

The package datasets is yours: Sarit brings none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sarit.core.extras import MissingExtra
from sarit.training.tables import piece_tables

try:
    from datasets import DatasetInfo, Features, IterableDataset
    from datasets.iterable_dataset import ArrowExamplesIterable
except ImportError as error:
    raise MissingExtra(
        f"sarit.datasets needs Hugging Face's datasets, which Sarit does not bring: install datasets ({error})"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.training.tables import PieceTables

__all__ = ["stream_dataset"]


def stream_dataset(
    stream: str | StreamName,
    start: StreamCut | str | int = "head",
    end: StreamCut | str | int | None = "tail",
    **named: Any,
) -> IterableDataset:
    """Return everything between two cuts of a stream as an IterableDataset; its rows have `value`, or the columns.

    `named`: `address`, `piece_bytes`, `batch_rows`, `columns`, `envelope`, `positions`, `on_error`, `on_truncated`,
    `frames`, `retry_timeout`, `credentials` and `tls`, as of `sarit.training.StreamLoader`.  Shards, epochs, shuffling
    and `state_dict` are those of the package: a shard is a piece, and who resumes within one reads it again up to the
    position.  Of several processes each plans for itself: give all the same cuts.

    Raises NotFound, Truncated, Invalid, Unavailable."""
    tables = piece_tables(stream, start, end, **named)
    info = DatasetInfo(features=Features.from_arrow_schema(tables.schema))
    pieces = list(range(len(tables.plan)))
    return IterableDataset(ArrowExamplesIterable(_tables, {"tables": tables, "pieces": pieces}), info=info)


def _tables(tables: PieceTables, pieces: list[int]) -> Iterator[tuple[tuple[int, int], pa.Table]]:
    """Yield the tables of some pieces, each with a key."""
    import pyarrow as pa

    for at, (piece, batch) in enumerate(tables.read(pieces)):
        yield (piece, at), pa.Table.from_batches([batch])
