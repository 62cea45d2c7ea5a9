"""Traces: what one append, one read or one call did, and for how long, in every process that it went through.

A *trace* is a tree of spans.  A span has a name, a begin and an end.  There is no tracer unless somebody asked for one
(`Env.traces` is None): then each place that could record something makes one comparison.

*Nothing is added to a protocol.*  Client and store derive the number of a trace from what both know anyway: of an
append, the writer's id and the number of its last event; of a read, segment, offset and request id; of a call, its
request id.  A span's number is derived from that of its trace and its name, so a store can name the client's span as
the parent of its own without having seen it (docs/decisions/0930).

*Sampling* is decided by the trace's number alone, by the rule of OpenTelemetry's ratio sampler.  Client and store with
the same ratio sample the same traces; of two ratios, the lower one samples a subset of the traces of the higher one.

An append is traced as a block, which may hold thousands of events: nothing is done for each event.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from sarit.core.errors import Invalid
from sarit.env.limits import MAX_TRACED_APPENDS, SPAN_NUMBER_BYTES, TRACE_NUMBER_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

Value = str | int | float | bool

# Names of spans, each at most once in a trace.  The indentation is the tree.
CLIENT_APPEND: Final = "client append"
STORE_APPEND: Final = "store append"
WAIT_FOR_FRAME: Final = "wait for a frame"
FRAME: Final = "frame"
LOG_SYNC: Final = "log sync"
ACKNOWLEDGE: Final = "apply and acknowledge"
CLIENT_READ: Final = "client read"
STORE_READ: Final = "store read"
WAIT_AT_TAIL: Final = "wait at the tail"
READ_CHUNKS: Final = "read chunks"
CLIENT_CALL: Final = "client call"
CONTROLLER_CALL: Final = "controller call"

DEFAULT_TRACE_RATIO: Final = 0.01

_LOW_BITS: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """Where spans go, as the address of an OTLP/HTTP receiver, and which part of the traces is taken, in (0, 1]."""

    address: str
    ratio: float


@dataclass(frozen=True, slots=True)
class Span:
    """A span that has ended; `began` and `ended` are seconds of the monotonic clock."""

    name: str
    trace: int
    number: int
    parent: int | None
    began: float
    ended: float
    values: Mapping[str, Value]


class SpanSink(Protocol):
    """Where spans go."""

    def take(self, span: Span) -> None:
        """Take a span, without waiting or raising an error."""

    def close(self) -> None:
        """Send the spans not sent yet.  Blocks for a few seconds at most."""


def parse_traces(text: str, ratio: float) -> TraceSettings:
    """Return the settings in `otlp=http://HOST:PORT`, the base URL of an OTLP/HTTP receiver.  Raises Invalid."""
    kind, _, address = text.partition("=")
    try:
        parts = urlsplit(address)
        known = kind == "otlp" and parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        known = False
    if not known:
        raise Invalid(f"{text!r} does not say where traces go: write otlp=http://HOST:4318")
    if not 0 < ratio <= 1:
        raise Invalid(f"{ratio:g} is no ratio of traces: write a number above 0, and at most 1")
    return TraceSettings(address.rstrip("/"), ratio)


class TracedAppend:
    """An append that a store has not acknowledged yet."""

    __slots__ = ("arrived", "durable")

    def __init__(self, arrived: float) -> None:
        self.arrived = arrived
        self.durable = 0.0


class Traces:
    """Makes the spans of one process; used by its event loop alone.

    `appends`: those of a store that are under way, by trace.  `synced`: when the log's write and sync of the frames
    that it reports at this moment began and ended; the log sets it just before it reports them."""

    __slots__ = ("_bound", "_sink", "appends", "synced")

    def __init__(self, sink: SpanSink, ratio: float) -> None:
        self._sink = sink
        self._bound = round(ratio * (1 << 64))
        self.appends: OrderedDict[int, TracedAppend] = OrderedDict()
        self.synced: tuple[float, float] | None = None

    def __repr__(self) -> str:
        return f"<Traces, {len(self.appends)} appends>"

    # -- numbers --------------------------------------------------------------------------------

    def of_append(self, writer: bytes, event_number: int) -> int | None:
        """Return the trace of the append that ends with this event; None: it is not sampled."""
        return self._sampled(b"append", writer + event_number.to_bytes(8, "big", signed=True))

    def of_read(self, segment: str, offset: int, request_id: int) -> int | None:
        """Return the trace of a read; None: it is not sampled."""
        numbers = offset.to_bytes(8, "big", signed=True) + request_id.to_bytes(8, "big", signed=True)
        return self._sampled(b"read", numbers + segment.encode())

    def of_call(self, request_id: str) -> int | None:
        """Return the trace of a call of the controller; None: it is not sampled, or its client gave it no id."""
        return self._sampled(b"call", request_id.encode()) if request_id else None

    def _sampled(self, kind: bytes, key: bytes) -> int | None:
        trace = int.from_bytes(blake2b(key, digest_size=TRACE_NUMBER_BYTES, person=kind).digest(), "big")
        return trace if 0 < trace & _LOW_BITS < self._bound else None

    # -- spans ----------------------------------------------------------------------------------

    def record(self, trace: int, name: str, parent: str | None, began: float, ended: float, **values: Value) -> None:
        """Record a span that has ended; `parent`: the name of its parent, None for the root of the trace."""
        above = span_number(trace, parent) if parent is not None else None
        self._sink.take(Span(name, trace, span_number(trace, name), above, began, ended, values))

    def append_arrived(self, writer: bytes, event_number: int, now: float) -> None:
        """Note the time at which a store has read an append."""
        trace = self.of_append(writer, event_number)
        if trace is not None:
            self.appends[trace] = TracedAppend(now)
            if len(self.appends) > MAX_TRACED_APPENDS:  # some connections ended before the acknowledgement
                self.appends.popitem(last=False)

    def append_acknowledged(
        self, writer: bytes, event_number: int, now: float, segment: str, length: int, events: int
    ) -> None:
        """Record the spans of an append whose acknowledgement a store has sent."""
        trace = self.of_append(writer, event_number)
        append = self.appends.pop(trace, None) if trace is not None else None
        if trace is None or append is None:
            return
        if append.durable:
            self.record(trace, ACKNOWLEDGE, STORE_APPEND, append.durable, now)
        self.record(
            trace, STORE_APPEND, CLIENT_APPEND, append.arrived, now, segment=segment, bytes=length, events=events
        )

    def append_durable(self, writer: bytes, event_number: int, frame: int, sent: float, now: float) -> None:
        """Record the spans of an append's frame, which is durable now; `sent`: when the store handed it to the log."""
        trace = self.of_append(writer, event_number)
        append = self.appends.get(trace) if trace is not None else None
        if trace is None or append is None:
            return
        append.durable = now
        self.record(trace, WAIT_FOR_FRAME, STORE_APPEND, append.arrived, sent)
        self.record(trace, FRAME, STORE_APPEND, sent, now, frame=frame)
        if self.synced is not None:
            self.record(trace, LOG_SYNC, FRAME, *self.synced)

    def close(self) -> None:
        """Send the spans not sent yet."""
        self._sink.close()


def span_number(trace: int, name: str) -> int:
    """Return the number of a span; every process computes the same."""
    digest = blake2b(
        trace.to_bytes(TRACE_NUMBER_BYTES, "big") + name.encode(), digest_size=SPAN_NUMBER_BYTES, person=b"span"
    )
    return int.from_bytes(digest.digest(), "big") or 1
