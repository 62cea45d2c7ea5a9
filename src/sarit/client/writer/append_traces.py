"""The traces of one appender's blocks, from the first time that a block is sent to its acknowledgement."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sarit.env.traces import CLIENT_APPEND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.client.writer.segment_appender import Block, SegmentAppender
    from sarit.env.ports import Clock, Env
    from sarit.env.traces import Traces


class AppendTraces:
    """Blocks in flight that are sampled, in order.

    A block that is sent again after a lost connection keeps its span: the time without a connection is part of it."""

    def __init__(self, traces: Traces, clock: Clock) -> None:
        self._traces = traces
        self._clock = clock
        self._noted = 0  # the number of the newest block that was sent
        self._open: deque[tuple[int, Block, float]] = deque()

    def __repr__(self) -> str:
        return f"<AppendTraces, {len(self._open)} blocks>"

    @classmethod
    def of(cls, env: Env) -> AppendTraces | None:
        """Return the traces of a writer, or None if nobody asked for traces."""
        return cls(env.traces, env.clock) if env.traces is not None else None

    def sent(self, appender: SegmentAppender, blocks: Iterable[Block]) -> None:
        """Record that blocks are handed to the connection, in order."""
        now = self._clock.monotonic()
        for block in blocks:
            if block.number > self._noted:
                self._noted = block.number
                trace = self._traces.of_append(appender.writer_id, block.number)
                if trace is not None:
                    self._open.append((trace, block, now))

    def acknowledged(self, appender: SegmentAppender) -> None:
        """Record the spans of the blocks up to the appender's acknowledged number, which are durable."""
        while self._open and self._open[0][1].number <= appender.acked_number:
            trace, block, began = self._open.popleft()
            self._traces.record(
                trace, CLIENT_APPEND, None, began, self._clock.monotonic(), segment=appender.segment,
                bytes=block.length, events=block.events, last_event_number=block.number,
            )  # fmt: skip

    def drop(self) -> None:
        """Forget the open spans, because the segment is sealed: what is not acknowledged goes to its successors."""
        self._open.clear()
