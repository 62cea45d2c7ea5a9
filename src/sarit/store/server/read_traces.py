"""The traces of the reads of one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.env.traces import CLIENT_READ, READ_CHUNKS, STORE_READ, WAIT_AT_TAIL

if TYPE_CHECKING:
    from sarit.env.ports import Clock, Env
    from sarit.env.traces import Traces
    from sarit.wire.commands import ReadSegment


class _Read:
    __slots__ = ("arrived", "parked", "trace")

    def __init__(self, trace: int, arrived: float) -> None:
        self.trace = trace
        self.arrived = arrived
        self.parked: float | None = None


class ReadTraces:
    """The sampled reads in progress, by request id; refused reads stay until the connection ends."""

    def __init__(self, traces: Traces, clock: Clock) -> None:
        self._traces = traces
        self._clock = clock
        self._reads: dict[int, _Read] = {}

    def __repr__(self) -> str:
        return f"<ReadTraces, {len(self._reads)} reads>"

    @classmethod
    def of(cls, env: Env) -> ReadTraces | None:
        """Return the traces of a connection; None when tracing is off."""
        return cls(env.traces, env.clock) if env.traces is not None else None

    def arrived(self, command: ReadSegment) -> None:
        """Record that a read has come."""
        trace = self._traces.of_read(command.segment, command.offset, command.request_id)
        if trace is not None:
            self._reads[command.request_id] = _Read(trace, self._clock.monotonic())

    def parked(self, command: ReadSegment) -> None:
        """Record that a read waits at the tail from now on."""
        read = self._reads.get(command.request_id)
        if read is not None and read.parked is None:
            read.parked = self._clock.monotonic()

    def chunks_read(self, command: ReadSegment, began: float) -> None:
        """Record that a read has read chunks."""
        read = self._reads.get(command.request_id)
        if read is not None:
            self._traces.record(read.trace, READ_CHUNKS, STORE_READ, began, self._clock.monotonic())

    def answered(self, command: ReadSegment, length: int) -> None:
        """Record the trace of a read whose reply was handed to the connection."""
        read = self._reads.pop(command.request_id, None)
        if read is None:
            return
        now = self._clock.monotonic()
        if read.parked is not None:
            self._traces.record(read.trace, WAIT_AT_TAIL, STORE_READ, read.parked, now)
        self._traces.record(
            read.trace, STORE_READ, CLIENT_READ, read.arrived, now, segment=command.segment, offset=command.offset,
            bytes=length,
        )  # fmt: skip
