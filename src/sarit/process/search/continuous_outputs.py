"""The outputs of the continuous queries of streams, as a controller counts them, and the ways that they make.

A query on A with output B, and one on B with output A: each match would be an event that the other query is asked
about, for ever.  So no query is made whose output leads back to its stream.  The queries of a stream are read from
their rows now and then, and those that are made here meanwhile are added: two that are made at the same time, or by two
controllers within CONTINUOUS_COUNT_SECONDS, may still make a circle.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from sarit.core.errors import Invalid, NotFound
from sarit.process.limits import (
    CONTINUOUS_COUNT_SECONDS,
    COUNTED_QUERIES_AT_ONCE,
    MAX_CONTINUOUS_OUTPUTS,
    MAX_CONTINUOUS_QUERIES,
    MAX_CONTINUOUS_WAY_STREAMS,
    MAX_COUNTED_CONTINUOUS_STREAMS,
)
from sarit.search.continuous_rows import decode_query, query_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sarit.core.names import StreamName
    from sarit.env.ports import Clock
    from sarit.search.ports import Rows


class ContinuousOutputs:
    """The number of queries of streams, and their outputs."""

    def __init__(self, rows: Rows, stream_id: Callable[[StreamName], Awaitable[str]], clock: Clock) -> None:
        """`stream_id`: returns the creation id of a stream; raises NotFound."""
        self._rows = rows
        self._stream_id = stream_id
        self._clock = clock
        self._counts: dict[str, tuple[float, int, set[StreamName]]] = {}  # by stream: when, queries, outputs

    def __repr__(self) -> str:
        return f"<ContinuousOutputs of {len(self._counts)} streams>"

    async def check(self, stream: StreamName, stream_id: str, output: StreamName) -> None:
        """Check that a stream may have one query more.  Raises Invalid: it has too many queries or outputs."""
        _, count, outputs = await self._counted(stream_id)
        if count >= MAX_CONTINUOUS_QUERIES:
            raise Invalid(f"stream {stream} has {count} continuous queries, which is the limit: delete some")
        if len(outputs | {output}) > MAX_CONTINUOUS_OUTPUTS:
            raise Invalid(f"the continuous queries of {stream} have {len(outputs)} outputs, which is the limit")

    def add(self, stream_id: str, output: StreamName) -> None:
        """Count a query that was made."""
        if known := self._counts.get(stream_id):
            at, count, outputs = known
            self._counts[stream_id] = at, count + 1, outputs | {output}

    async def way(self, start: StreamName, end: StreamName) -> Sequence[StreamName]:
        """Return streams of which each has a query with the next one as its output, from the first to the last; none:
        there is no such way.  Raises Invalid: there are too many streams to say."""
        before: dict[StreamName, StreamName | None] = {start: None}
        waiting = deque([start])
        while waiting:
            at = waiting.popleft()
            if at == end:
                return _from_the_start(before, end)
            for output in sorted(await self._outputs_of(at)):
                if output not in before:
                    before[output] = at
                    waiting.append(output)
            if len(before) > MAX_CONTINUOUS_WAY_STREAMS:
                raise Invalid(
                    f"continuous queries lead from {start} to more than {MAX_CONTINUOUS_WAY_STREAMS} streams, which is "
                    f"too many to see whether one of them is {end}: delete some, or choose another output"
                )
        return ()

    async def _outputs_of(self, stream: StreamName) -> set[StreamName]:
        try:
            return (await self._counted(await self._stream_id(stream)))[2]
        except NotFound:  # the stream was deleted, and its queries with it
            return set()

    async def _counted(self, stream_id: str) -> tuple[float, int, set[StreamName]]:
        now = self._clock.monotonic()
        known = self._counts.get(stream_id)
        if known is not None and now - known[0] < CONTINUOUS_COUNT_SECONDS:
            return known
        rows, found = await self._rows.scan(query_key(stream_id, "")), set()
        for at, (_, value, _) in enumerate(rows):
            if at % COUNTED_QUERIES_AT_ONCE == 0:
                await asyncio.sleep(0)  # the event loop serves other calls, too
            query = decode_query(value)
            if (definition := query.wanted or query.adopted) is not None:
                found.add(definition.output)
        if len(self._counts) >= MAX_COUNTED_CONTINUOUS_STREAMS:
            self._counts.clear()
        self._counts[stream_id] = counted = now, len(rows), found
        return counted


def _from_the_start(before: dict[StreamName, StreamName | None], end: StreamName) -> list[StreamName]:
    found, at = [end], before[end]
    while at is not None:
        found.append(at)
        at = before[at]
    return found[::-1]
