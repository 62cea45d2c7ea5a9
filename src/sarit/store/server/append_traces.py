"""The traces of the appends of one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sarit.env.ports import Clock
    from sarit.env.traces import Traces
    from sarit.store.container.writer_session import ReplySink, WriterSession
    from sarit.wire.frames import Append


class TracedReplies:
    """A `ReplySink` that traces the appends of one connection, and leaves the answers to another one."""

    __slots__ = ("_clock", "_sink", "_traces")

    def __init__(self, sink: ReplySink, traces: Traces, clock: Clock) -> None:
        self._sink = sink
        self._traces = traces
        self._clock = clock

    def __repr__(self) -> str:
        return f"<TracedReplies of {self._sink!r}>"

    def append_arrived(self, append: Append) -> None:
        """Record that the store has read an append."""
        self._traces.append_arrived(append.writer_id, append.last_event_number, self._clock.monotonic())

    def acknowledged(self, session: WriterSession, append: Append, previous: int, end_offset: int) -> None:
        """Answer an append that is durable, and end its trace."""
        self._sink.acknowledged(session, append, previous, end_offset)
        self._traces.append_acknowledged(
            append.writer_id, append.last_event_number, self._clock.monotonic(), session.segment.name, append.length,
            append.events,
        )  # fmt: skip

    def refused(self, session: WriterSession, append: Append, error: BaseException) -> None:
        """Answer an append that is not stored."""
        self._sink.refused(session, append, error)

    def segment_missing(self, session: WriterSession) -> None:
        """End a session whose segment is deleted or merged."""
        self._sink.segment_missing(session)

    def moved(self, session: WriterSession) -> None:
        """End a session whose container has left this store."""
        self._sink.moved(session)
