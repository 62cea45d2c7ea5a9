"""Metrics as Prometheus reads them: the one module that knows prometheus-client.

Nothing is kept between two scrapes: each one collects what the parts have counted, and writes it as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool

from sarit.admin.metric_table import BY_NAME, Kind
from sarit.core.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    # The name of a metric, the values of its labels in the order of the table, its value.
    Sample = tuple[str, tuple[str, ...], float | Histogram]

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_INFINITY: Final = "+Inf"


class Exposition:
    """Text for Prometheus, from samples that are collected at each call."""

    def __init__(self, collect: Callable[[], Iterable[Sample]]) -> None:
        self._collect = collect

    def __repr__(self) -> str:
        return f"<Exposition of {self._collect}>"

    def __call__(self) -> bytes:
        """Return samples of all metrics now."""
        return _text(self._snapshot())

    async def scrape(self) -> bytes:
        """Answer a scrape; the text, which takes 5 ms, is written on a thread: the event loop serves others."""
        return await run_in_threadpool(_text, self._snapshot())

    def _snapshot(self) -> list[Sample]:
        return [
            (name, labels, value.copy() if isinstance(value, Histogram) else value)
            for name, labels, value in self._collect()
        ]


def _text(samples: list[Sample]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(samples))
    # process_cpu_seconds_total, process_resident_memory_bytes, process_open_fds and others, as everywhere.
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Families:
    """A collector of the Prometheus library."""

    def __init__(self, samples: list[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, each with all its series."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily] = {}
        for name, labels, value in self._samples:
            metric = BY_NAME[name]
            family = families.get(name)
            if family is None:
                family = families[name] = _FAMILIES[metric.kind](name, metric.help, labels=metric.labels)
            assert len(labels) == len(metric.labels), (name, labels)
            if isinstance(value, Histogram):
                assert isinstance(family, HistogramMetricFamily), name
                family.add_metric(labels, _buckets(value), value.total)
            else:
                assert not isinstance(family, HistogramMetricFamily), name
                family.add_metric(labels, value)
        yield from families.values()


_FAMILIES: Final = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    below = 0
    for bound, count in zip((*map(str, map(float, histogram.bounds)), _INFINITY), histogram.counts, strict=True):
        below += count
        found.append((bound, below))
    return found
