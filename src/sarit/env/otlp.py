"""Spans for OpenTelemetry, sent by OTLP over HTTP.  The one module that knows its library; in the extra `traces`.

The library's own tracer is not used: it makes numbers of its own and carries the current span along, and both cost
something on every call.  Here a span that has ended is handed to its exporter, which has a thread and a queue of its
own.  A receiver that is away costs spans, and nothing else.
"""

from __future__ import annotations

import atexit
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from sarit.env.limits import TRACE_CLOSE_SECONDS
from sarit.env.traces import CLIENT_APPEND, CLIENT_CALL, CLIENT_READ, CONTROLLER_CALL, STORE_APPEND, STORE_READ, Traces

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

    from sarit.env.traces import Span, TraceSettings

_KINDS: Final = {
    CLIENT_APPEND: SpanKind.CLIENT, CLIENT_READ: SpanKind.CLIENT, CLIENT_CALL: SpanKind.CLIENT,
    STORE_APPEND: SpanKind.SERVER, STORE_READ: SpanKind.SERVER, CONTROLLER_CALL: SpanKind.SERVER,
}  # fmt: skip
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_NANOSECONDS: Final = 1_000_000_000
_MILLISECONDS: Final = 1000


class OtlpSpans:
    """A `SpanSink`; `processor`: what spans are handed to."""

    def __init__(self, processor: SpanProcessor, service: str) -> None:
        self._processor = processor
        self._resource = Resource.create({"service.name": service, "service.version": version("sarit")})

    def take(self, span: Span) -> None:
        # Read for each span: the wall clock may be set while the process runs.
        offset = time.time_ns() - time.monotonic_ns()
        self._processor.on_end(
            ReadableSpan(
                name=span.name,
                context=_context(span.trace, span.number),
                parent=_context(span.trace, span.parent) if span.parent is not None else None,
                resource=self._resource,
                attributes={f"sarit.{name}": value for name, value in span.values.items()},
                kind=_KINDS.get(span.name, SpanKind.INTERNAL),
                start_time=round(span.began * _NANOSECONDS) + offset,
                end_time=round(span.ended * _NANOSECONDS) + offset,
            )
        )

    def close(self) -> None:
        self._processor.force_flush(round(TRACE_CLOSE_SECONDS * _MILLISECONDS))
        self._processor.shutdown()


def _context(trace: int, span: int) -> Any:
    return SpanContext(trace, span, is_remote=False, trace_flags=_SAMPLED)


def open_traces(settings: TraceSettings, service: str) -> Traces:
    """Return traces that are sent to a receiver.  Raises Invalid when the extra `traces` is not installed."""
    exporter = OTLPSpanExporter(endpoint=f"{settings.address}/v1/traces", timeout=TRACE_CLOSE_SECONDS)
    traces = Traces(OtlpSpans(BatchSpanProcessor(exporter), service), settings.ratio)
    # Whoever makes an environment for a process ends with it; a client has no later moment of its own.
    atexit.register(traces.close)
    return traces
