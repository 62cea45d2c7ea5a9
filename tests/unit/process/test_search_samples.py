"""Metrics of the indexes of streams."""

from __future__ import annotations

from sarit.admin.metric_table import METRICS
from sarit.core.names import StreamName
from sarit.process.jobs import continuous
from sarit.process.jobs.search_samples import samples
from sarit.search.continuous import ContinuousStatistics
from sarit.search.statistics import IndexStatistics


def test_each_declared_metric_has_a_sample_with_its_labels():
    counters = IndexStatistics(3, 1000, 4, 5, 6, 7, 8, behind_since_ms=1000, committed_ms=2000, problem="no space")
    found = {name: (labels, value) for name, labels, value in samples({StreamName("shop", "orders"): counters}, 61_000)}
    declared = {each.name: each.labels for each in METRICS}
    assert found.keys() == {name for name in declared if name.startswith("sarit_search_")}
    assert all(len(labels) == len(declared[name]) for name, (labels, _) in found.items())
    assert found["sarit_search_lag_seconds"] == (("shop/orders",), 60)
    assert found["sarit_search_stopped"] == (("shop/orders",), 1)
    assert found["sarit_search_events_total"] == (("shop/orders",), 1000)
    assert found["sarit_search_gap_bytes_total"] == (("shop/orders",), 5)


def test_index_that_runs_is_not_stopped_and_not_behind():
    found = dict((name, value) for name, _, value in samples({StreamName("a", "b"): IndexStatistics()}, 1))
    assert found["sarit_search_stopped"] == found["sarit_search_lag_seconds"] == 0
    assert "sarit_search_last_commit_timestamp_seconds" not in found


def test_series_are_bounded(monkeypatch):
    monkeypatch.setattr("sarit.process.jobs.search_samples.MAX_MEASURED_INDEXES", 2)
    running = {StreamName("shop", f"s{number}"): IndexStatistics() for number in range(5)}
    found = list(samples(running, 0))
    assert {labels[0] for _, labels, _ in found if labels} == {"shop/s0", "shop/s1"}
    assert found[-1] == ("sarit_search_indexes_not_measured", (), 3)


def test_series_of_continuous_queries_are_those_of_the_table() -> None:
    counters = ContinuousStatistics(3, lag_bytes=70, behind_since_ms=1000, problem="no space")
    counters.count([("late", b"")] * 3 + [(f"q-{number:02}", b"") for number in range(20)])
    seen = list(continuous.samples({StreamName("s", "t"): counters}, 61_000))
    assert {name: value for name, labels, value in seen if labels == ("s/t",)} == {
        "sarit_continuous_queries": 3, "sarit_continuous_suspended": 0, "sarit_continuous_lag_bytes": 70,
        "sarit_continuous_lag_seconds": 60, "sarit_continuous_stopped": 1, "sarit_continuous_events_total": 0,
        "sarit_continuous_matches_total": 23, "sarit_continuous_repeated_total": 0,
    }  # fmt: skip
    by_query = [(labels, value) for _, labels, value in seen if len(labels) > 1]
    assert by_query[:2] == [(("s/t", "late"), 3), (("s/t", "q-00"), 1)]
    assert len(by_query) == 10


def test_series_of_continuous_queries_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr("sarit.process.jobs.continuous.MAX_MEASURED_INDEXES", 2)
    running = {StreamName("s", f"t{number}"): ContinuousStatistics() for number in (2, 0, 1)}
    for counters in running.values():
        counters.count([("late", b"")])
    found = list(continuous.samples(running, 0))
    declared = {metric.name: metric.labels for metric in METRICS if metric.name.startswith("sarit_continuous_")}
    assert {name for name, _, _ in found} == declared.keys()
    assert all(len(labels) == len(declared[name]) for name, labels, _ in found)
    assert {labels[0] for _, labels, _ in found} == {"s/t0", "s/t1"}
