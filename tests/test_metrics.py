"""Metrics of real nodes: what a scrape says after known work."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

import sarit
from sarit.admin.metric_table import METRICS
from sarit.serializers import RegistryClient, Schema
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

EVENTS = 3000

# What a node of its own cannot have: it has no bookies, no other stores, no index on S3; no group, job, table here, no
# index for search, and no link.
ELSEWHERE = ("sarit_bookkeeper_", "sarit_cluster_", "sarit_reader_group_", "sarit_index_requests_total",
             "sarit_job", "sarit_iceberg_", "sarit_search_", "sarit_searches_", "sarit_continuous_",
             "sarit_link_")  # fmt: skip


def scrape(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=HANG_SECONDS) as answer:
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(answer.read().decode())
            for sample in family.samples
        }


def test_scrape_counts_what_was_written_and_read(tmp_path):
    with RunningNode(tmp_path / "data", "--http-port", "0", "--registry", "on", "--registry-port", "0") as node:
        RegistryClient(f"http://{node.registry}").register("a.b", Schema('"string"'))
        with sarit.connect(node.controller) as client:
            before = scrape(node.http)
            client.create_scope("a")
            client.create_stream("a/b", segments=2)
            with client.writer("a/b") as writer:
                for number in range(EVENTS):
                    writer.write(b"x" * 92, key=str(number))
            with client.transactional_writer("a/b") as writer, writer.begin() as transaction:
                transaction.write(b"y", key="1")
            assert sum(1 for _ in client.reader("a/b", end="tail")) == EVENTS + 1
            after = scrape(node.http)

        def grown(name, **labels):
            key = (name, *sorted(labels.items()))
            return after.get(key, 0) - before.get(key, 0)

        # An event of the wire protocol has a header of 8 bytes.
        assert grown("sarit_append_events_total") >= EVENTS + 1
        assert grown("sarit_append_bytes_total") >= 100 * EVENTS + 9
        assert grown("sarit_received_bytes_total") > grown("sarit_append_bytes_total")
        # One append in a millisecond is measured, and so is one frame: a scrape counts all until its moment like these.
        assert 0 < grown("sarit_append_latency_seconds_count") == grown("sarit_appends_total")
        assert 0 < grown("sarit_append_latency_seconds_sum") < 60 * grown("sarit_appends_total")
        assert 0 < grown("sarit_group_commit_operations_count") <= grown("sarit_log_frames_total")
        assert grown("sarit_group_commit_operations_sum") >= grown("sarit_group_commit_operations_count")
        assert 0 < grown("sarit_log_sync_seconds_count") <= grown("sarit_log_frames_total")
        assert grown("sarit_log_group_bytes_sum") > grown("sarit_append_bytes_total")
        assert grown("sarit_read_bytes_total") >= 100 * EVENTS + 9
        assert grown("sarit_controller_calls_total", method="createStream", status="OK") == 1
        assert grown("sarit_transactions_begun_total") == grown("sarit_transactions_committed_total") == 1
        assert after["sarit_containers", ("state", "serving")] == 4
        assert after["sarit_recovery_seconds_count",] == 4
        assert after["sarit_connections",] >= 1
        assert after["process_resident_memory_bytes",] > 1e7

        scraped = {key[0] for key in after}
        expected = {metric.name for metric in METRICS if not metric.name.startswith(ELSEWHERE)}
        stems = scraped | {name.removesuffix("_count") for name in scraped}
        assert expected - stems - {"sarit_reader_groups_not_measured"} == set()


def test_each_process_of_a_node_has_the_metrics_of_its_part(tmp_path):
    with RunningNode(tmp_path / "data", "--http-port", "0", "--processes", "2") as node:
        names = {key[0] for key in scrape(node.http)}
        assert "sarit_controller_calls_total" in names or "sarit_pending_work" in names
        assert "sarit_appends_total" not in names
