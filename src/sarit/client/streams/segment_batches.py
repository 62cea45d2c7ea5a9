"""One segment as record batches: the unit of work of a planner (Spark)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.client.reader.cursor import EventCursor, arrow_schema
from sarit.client.reader.fetch import SegmentFetch
from sarit.core.errors import Corrupt

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import pyarrow as pa

    from sarit.client.session.session import Session
    from sarit.core.names import SegmentId, StreamName


async def segment_batches(
    session: Session, stream: StreamName, segment: SegmentId, start: int, end: int | None
) -> AsyncGenerator[pa.RecordBatch, None]:
    """Yield the events of one segment between two offsets as record batches (event, segment, offset).

    `end` None: to the end of the segment, waiting at its tail until it is sealed.  Raises Truncated, NotFound.
    """
    moved = asyncio.Event()
    fetch = SegmentFetch(session, stream, segment, start, end, lambda _: moved.set())
    cursor = EventCursor(segment, start)
    schema = arrow_schema()
    fetch.start()
    try:
        while not fetch.exhausted:
            piece = fetch.take()
            if piece is not None:
                batch = cursor.table(piece, schema)
                if batch is not None:
                    yield batch
                continue
            if fetch.failure is not None:
                raise fetch.failure
            moved.clear()
            if not fetch.ready:
                await moved.wait()
        if cursor.partial_bytes:
            raise Corrupt(f"{fetch.name}: offset {end} is in the middle of an event")
    finally:
        fetch.close()
