"""Alerts about Iceberg tables and their jobs under a real Prometheus, each by its fault."""

from __future__ import annotations

import pytest

import sarit
from sarit.lake.settings import IcebergSettings
from tests.catalogs import write_catalogs
from tests.nodes import RunningNode
from tests.observability.prometheus import MISSING, PROMETHEUS, Prometheus

pytestmark = [pytest.mark.long, pytest.mark.skipif(PROMETHEUS is None, reason=MISSING)]


def test_alerts_fire_by_what_happens_to_a_table(tmp_path):
    pytest.importorskip("pyiceberg", reason="sarit[lake] is not installed")
    catalogs = write_catalogs(tmp_path)
    with (
        RunningNode(tmp_path / "data", "--http-port", "0", "--catalogs", str(catalogs), "--jobs", "on") as node,
        Prometheus(tmp_path / "prometheus", [node.http]) as prometheus,
        sarit.connect(node.controller) as client,
    ):
        client.create_scope("a")
        client.create_stream("a/b", segments=1)
        table = client.stream("a/b")
        settings = IcebergSettings("lake.a.b", "json", interval_seconds=1)
        table.create_job("iceberg", settings.encode())
        _write(client, b'{"id": 1}')
        prometheus.until(lambda: prometheus.query("sarit_iceberg_rows_total > 0"), "a row is committed")
        assert not {name for name in prometheus.firing() if name.startswith("SaritIceberg")}

        _write(client, b"no json")
        prometheus.until_firing("SaritIcebergDeadLetters")

        # What was truncated before it was committed: the job is away meanwhile.
        table.delete_job("iceberg")
        _write(client, b'{"id": 2}')
        client.truncate_stream("a/b", cut="tail")
        _write(client, b'{"id": 3}')
        table.create_job("iceberg", settings.encode())
        prometheus.until_firing("SaritIcebergGap")

        # The table is gone, as if somebody had dropped it.
        (tmp_path / "catalog.db").rename(tmp_path / "away.db")
        _write(client, b'{"id": 4}')
        prometheus.until_firing("SaritIcebergStopped")
        prometheus.until_firing("SaritJobFails")
        prometheus.until_firing("SaritIcebergBehind")
        (tmp_path / "catalog.db").unlink(missing_ok=True)
        (tmp_path / "away.db").rename(tmp_path / "catalog.db")
        prometheus.until(lambda: "SaritIcebergStopped" not in prometheus.firing(), "it ends with the catalog")


def _write(client, event):
    with client.writer("a/b") as writer:
        writer.write(event)
