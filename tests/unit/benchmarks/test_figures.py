"""The judge of benchmarks: latencies from the due time, goals, ratios against the better durable peer."""

from __future__ import annotations

import pytest

from benchmarks.figures import FIGURES, judged, ratios, table
from benchmarks.loads.open_loop import Latencies, percentiles


def system(name: str, **rows: dict) -> dict:
    return {"name": name, "rows": rows, "failed": {}}


def test_latency_counts_from_due_time_of_each_event() -> None:
    latencies = Latencies(start=100.0, rate=10.0)
    latencies.acked(0, 5, 101.0)
    assert list(latencies.seconds()) == pytest.approx([1.0, 0.9, 0.8, 0.7, 0.6])
    assert list(latencies.seconds(skip_seconds=0.3)) == pytest.approx([0.7, 0.6])


def test_stall_of_generator_counts_as_latency() -> None:
    latencies = Latencies(start=0.0, rate=1000.0)
    latencies.acked(0, 1, 0.001)
    latencies.acked(1, 1001, 1.002)  # nothing was sent for a second; then all of it went at once
    assert percentiles(latencies.seconds())["p50_ms"] == pytest.approx(500, abs=5)


def test_only_batches_in_flight_during_window_count() -> None:
    latencies = Latencies(start=0.0, rate=10.0)
    latencies.acked(0, 1, 0.01)
    latencies.acked(10, 11, 1.5)
    latencies.acked(20, 21, 2.01)
    assert list(latencies.during([(1.2, 1.3)])) == pytest.approx([0.5])


def test_span_has_the_events_that_were_due_in_it() -> None:
    latencies = Latencies(start=100.0, rate=10.0)
    latencies.acked(0, 5, 101.0)
    latencies.acked(5, 10, 102.0)
    begin, across, none = latencies.between([(100.0, 100.2), (100.4, 100.6), (103.0, 104.0)])
    assert list(begin) == pytest.approx([1.0, 0.9])
    assert list(across) == pytest.approx([0.6, 1.5])
    assert not len(none)


@pytest.mark.parametrize(("value", "verdict"), [(4.9, "aim met"), (7.0, "goal met"), (10.1, "MISSED")])
def test_lower_is_better_for_latency(value: float, verdict: str) -> None:
    results = {"sarit": system("Sarit", **{"open-1": {"p95_ms": value}})}
    assert [row["verdict"] for row in judged(results)] == [verdict]


@pytest.mark.parametrize(("value", "verdict"), [(5e6, "aim met"), (2e6, "goal met"), (1.9e6, "MISSED")])
def test_higher_is_better_for_rates(value: float, verdict: str) -> None:
    results = {"sarit": system("Sarit", **{"fast-1": {"events_per_s": value}})}
    assert [row["verdict"] for row in judged(results)] == [verdict]


def test_ratio_counts_against_better_peer() -> None:
    results = {
        "sarit": system("Sarit", **{"fast-1": {"events_per_s": 1e6, "best": {"events_per_s": 2e6}}}),
        "kafka": system("Kafka", **{"fast-1": {"events_per_s": 5e5}}),
        "pravega": system("Pravega", **{"fast-1": {"events_per_s": 8e5}}),
    }
    row, single = ratios(results)
    assert single["times"] == {"kafka": 2.0, "pravega": 1.25}
    assert not single["verdict"]
    assert row["times"] == {"kafka": 4.0, "pravega": 2.5}
    assert row["verdict"] == "MISSED"


def test_failed_row_is_reported() -> None:
    results = {"sarit": {"name": "Sarit", "rows": {}, "failed": {"spark": "no Java"}}}
    assert "not measured: Sarit, spark: no Java" in table(results)


def test_every_figure_has_aim_beyond_goal() -> None:
    assert all(f.aim >= f.least if f.higher else f.aim <= f.least for f in FIGURES)


def test_verdict_under_noise_is_marked() -> None:
    busy = {"p95_ms": 7.0, "noise": {"others_cpu_percent": 0.0, "others_cpu_during_percent": 60.0}}
    quiet = {"p95_ms": 7.0, "noise": {"others_cpu_percent": 0.0, "others_cpu_during_percent": 2.0}}
    assert "goal met (noisy: others 60 %)" in table({"sarit": system("Sarit", **{"open-1": busy})})
    assert "noisy" not in table({"sarit": system("Sarit", **{"open-1": quiet})})
