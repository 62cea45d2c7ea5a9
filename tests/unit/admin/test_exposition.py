"""The text that Prometheus reads, and the table of all metrics."""

from __future__ import annotations

import asyncio
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sarit.admin import metrics
from sarit.admin.exposition import Exposition
from sarit.admin.metric_table import BY_NAME, METRICS, Kind
from sarit.core.histogram import Histogram
from tools import limits_page, metrics_page

UNITS = ("seconds", "bytes")


def test_each_metric_is_declared_once():
    assert len(BY_NAME) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_metric_follows_the_rules_of_prometheus_for_names(metric):
    assert re.fullmatch(r"sarit_[a-z0-9_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    stem = metric.name.removesuffix("_total")
    assert metric.unit == next((unit for unit in UNITS if stem.endswith(f"_{unit}")), "")
    assert not any(f"_{wrong}" in stem for wrong in ("ms", "millis", "kb", "mb", "percent"))
    assert metric.help
    assert metric.help[0].isupper() or metric.help[0].isdigit()
    assert not metric.help.endswith(".")
    assert not {"le", "job", "instance"} & set(metric.labels)


def test_scrape_gives_values_types_and_help():
    latency = Histogram((0.001, 0.01))
    latency.observe(0.002, 3)
    latency.observe(5)
    exposition = Exposition(
        lambda: [
            ("sarit_appends_total", (), 7),
            ("sarit_append_latency_seconds", (), latency),
            ("sarit_containers", ("serving",), 4),
            ("sarit_containers", ("failed",), 0),
        ]
    )
    (route,) = metrics.routes(exposition.scrape)
    assert route.path == "/metrics"
    answer = asyncio.run(route.endpoint(None))
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(answer.body.decode())}
    assert families["sarit_appends"].type == "counter"
    assert families["sarit_appends"].documentation == BY_NAME["sarit_appends_total"].help
    assert [sample.value for sample in families["sarit_appends"].samples] == [7]
    assert {sample.labels["state"]: sample.value for sample in families["sarit_containers"].samples} == {
        "serving": 4, "failed": 0,
    }  # fmt: skip
    buckets = {
        (sample.name.removeprefix("sarit_append_latency_seconds"), sample.labels.get("le")): sample.value
        for sample in families["sarit_append_latency_seconds"].samples
    }
    assert buckets == {
        ("_bucket", "0.001"): 0, ("_bucket", "0.01"): 3, ("_bucket", "+Inf"): 4, ("_count", None): 4,
        ("_sum", None): pytest.approx(5.006),
    }  # fmt: skip
    assert families["process_resident_memory_bytes"].samples[0].value > 1e6


def test_metric_that_is_not_declared_is_refused():
    with pytest.raises(KeyError):
        Exposition(lambda: [("sarit_invented_total", (), 1)])()


def test_metric_with_other_labels_than_declared_is_refused():
    with pytest.raises(AssertionError):
        Exposition(lambda: [("sarit_containers", (), 1)])()


def test_page_of_the_metrics_says_what_the_table_says():
    assert metrics_page.PAGE.read_text() == metrics_page.page(), "run make generate"


def test_page_of_the_limits_says_what_the_code_says():
    assert limits_page.PAGE.read_text() == limits_page.page(), "run make generate"
