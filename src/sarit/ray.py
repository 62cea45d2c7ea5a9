"""Streams for Ray Data: read tasks, each of some pieces of the stream.

    dataset = sarit.ray.read_stream("shop/images", address="node:9090")
    dataset.map_batches(...)

Ray is yours: Sarit brings none.  All nodes of the Ray cluster need Sarit, and reach the streams by the same address.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sarit.core.extras import MissingExtra
from sarit.training.tables import piece_tables

try:
    import ray.data
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask
except ImportError as error:
    raise MissingExtra(f"sarit.ray needs Ray Data, which Sarit does not bring: install ray[data] ({error})") from None

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.training.tables import PieceTables

__all__ = ["StreamDatasource", "read_stream"]


class StreamDatasource(Datasource):  # type: ignore[misc]
    """The pieces of a stream between two cuts, for `ray.data.read_datasource`.

    A task that fails is repeated by Ray, and reads the same events."""

    def __init__(self, tables: PieceTables) -> None:
        super().__init__()
        self._tables = tables

    def get_name(self) -> str:
        """Return the name that Ray shows."""
        return f"Sarit {self._tables.plan.stream}"

    def estimate_inmemory_data_size(self) -> int:
        """Return about how many bytes there are."""
        return self._tables.plan.total_bytes

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Return up to `parallelism` tasks, each of some pieces that follow each other."""
        count = len(self._tables.plan)
        tasks = max(min(parallelism, count), 1)
        ranges = [range(count * task // tasks, count * (task + 1) // tasks) for task in range(tasks)]
        return [
            ReadTask(
                partial(_blocks, self._tables, pieces),
                BlockMetadata(num_rows=None, size_bytes=self._tables.piece_bytes(pieces), exec_stats=None),
                schema=self._tables.schema,
                per_task_row_limit=per_task_row_limit,
            )
            for pieces in ranges
        ]


def _blocks(tables: PieceTables, pieces: range) -> Iterator[pa.Table]:
    import pyarrow as pa

    some = False
    for _, batch in tables.read(pieces):
        some = True
        yield pa.Table.from_batches([batch])
    if not some:
        yield tables.schema.empty_table()


def read_stream(
    stream: str | StreamName,
    start: StreamCut | str | int = "head",
    end: StreamCut | str | int | None = "tail",
    *,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
    **named: Any,
) -> ray.data.Dataset:
    """Return everything between two cuts of a stream as a Ray dataset; its rows have `value`, or the columns.

    `override_num_blocks`, `concurrency`, `ray_remote_args`: as of `ray.data.read_datasource`.  `named`: as of
    `sarit.datasets.stream_dataset`.  Raises NotFound, Truncated, Invalid, Unavailable."""
    tables = piece_tables(stream, start, end, **named)
    return ray.data.read_datasource(
        StreamDatasource(tables),
        override_num_blocks=override_num_blocks,
        concurrency=concurrency,
        ray_remote_args=ray_remote_args,
    )
