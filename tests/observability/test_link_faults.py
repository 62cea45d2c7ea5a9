"""Alerts about links to other installations under a real Prometheus, each by its fault."""

from __future__ import annotations

import pytest

import sarit
from sarit.core.links import LinkDirection, LinkSettings
from tests.nodes import RunningNode
from tests.observability.prometheus import MISSING, PROMETHEUS, Prometheus

pytestmark = [pytest.mark.long, pytest.mark.skipif(PROMETHEUS is None, reason=MISSING)]


def test_alerts_fire_by_what_happens_to_a_link(tmp_path):
    with (
        RunningNode(tmp_path / "core") as core,
        RunningNode(tmp_path / "edge", "--http-port", "0", "--jobs", "on") as edge,
        Prometheus(tmp_path / "prometheus", [edge.http]) as prometheus,
        sarit.connect(edge.controller) as client,
    ):
        client.create_scope("a")
        client.create_stream("a/b", segments=1)
        _write(client)
        settings = LinkSettings(LinkDirection.PUSH, core.controller, include=("a/*",), restart=True)
        client.links.create("to-core", settings)
        prometheus.until(lambda: prometheus.query("sarit_link_copied_bytes_total > 0"), "events are copied")
        assert not {name for name in prometheus.firing() if name.startswith("SaritLink")}

        # What was truncated before it was copied.
        client.links.pause("to-core")
        prometheus.until(lambda: not prometheus.query("sarit_link_up"), "it is paused")
        _write(client)
        client.truncate_stream("a/b", cut="tail")
        _write(client)
        client.links.resume("to-core")
        prometheus.until_firing("SaritLinkLostBytes")

        # A stream of the peer's own has the name of a mirror.
        with sarit.connect(core.controller) as other:
            other.create_stream("a/taken", segments=1)
        client.create_stream("a/taken", segments=1)
        prometheus.until_firing("SaritLinkStreamsFail")

        core.stop()
        _write(client)
        prometheus.until_firing("SaritLinkDown")
        prometheus.until_firing("SaritLinkBehind")


def _write(client):
    with client.writer("a/b") as writer:
        writer.write(b"event")
