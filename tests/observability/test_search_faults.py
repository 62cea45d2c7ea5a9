"""Alerts about indexes for search under a real Prometheus, each by its fault."""

from __future__ import annotations

import pytest

import sarit
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND, SearchSettings
from tests.nodes import RunningNode
from tests.observability.prometheus import MISSING, PROMETHEUS, Prometheus

pytestmark = [pytest.mark.long, pytest.mark.skipif(PROMETHEUS is None, reason=MISSING)]


def test_alerts_fire_by_what_happens_to_an_index(tmp_path):
    pytest.importorskip("tantivy", reason="sarit[search] is not installed")
    with (
        RunningNode(tmp_path / "data", "--http-port", "0", "--jobs", "on") as node,
        Prometheus(tmp_path / "prometheus", [node.http]) as prometheus,
        sarit.connect(node.controller) as client,
    ):
        client.create_scope("a")
        client.create_stream("a/b", segments=1)
        stream = client.stream("a/b")
        stream.create_job(SEARCH_KIND, SearchSettings(interval_seconds=1).encode(), SEARCH_JOB)
        _write(client, b"first")
        prometheus.until(lambda: prometheus.query("sarit_search_events_total > 0"), "an event is indexed")
        assert not {name for name in prometheus.firing() if name.startswith("SaritSearch")}

        # The directory for local files is taken away, as a disk that fails.
        directory = tmp_path / "data" / "search"
        directory.rename(tmp_path / "away")
        directory.write_text("no directory")
        _write(client, b"second")
        prometheus.until_firing("SaritSearchStopped")
        prometheus.until_firing("SaritJobFails")
        prometheus.until_firing("SaritSearchBehind")

        # What was not indexed is truncated before the job goes on.
        client.truncate_stream("a/b", cut="tail")
        _write(client, b"third")
        directory.unlink()
        (tmp_path / "away").rename(directory)
        prometheus.until_firing("SaritSearchGap")
        prometheus.until(lambda: "SaritSearchStopped" not in prometheus.firing(), "it ends with the directory")


def _write(client, event):
    with client.writer("a/b") as writer:
        writer.write(event)
