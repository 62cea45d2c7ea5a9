"""Alerts of one node under a real Prometheus, each by its fault: a slow disk, few files, transactions without end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sarit.client import aio
from tests.nodes import RunningNode
from tests.observability.prometheus import MISSING, PROMETHEUS, Load, Prometheus

pytestmark = [pytest.mark.long, pytest.mark.skipif(PROMETHEUS is None, reason=MISSING)]

SLOW_NODE = (sys.executable, str(Path(__file__).with_name("node_with_slow_syncs.py")))
TRANSACTIONS = 10_001
AT_ONCE = 64


def test_alerts_fire_on_a_disk_that_syncs_slowly(tmp_path):
    slow = tmp_path / "slow"
    environ = {**os.environ, "SARIT_TEST_SLOW": str(slow)}
    with (
        RunningNode(tmp_path / "data", "--http-port", "0", sarit=SLOW_NODE, env=environ) as node,
        Load(node.controller),
        Prometheus(tmp_path / "prometheus", [node.http]) as prometheus,
    ):
        wanted = {"SaritLogSyncSlow", "SaritAppendsSlow"}
        prometheus.until(lambda: prometheus.query("sarit_append_events_total > 1000"), "it has load")
        assert "SaritAppendsSlow" not in prometheus.firing()
        slow.touch()
        prometheus.until(lambda: wanted.difference_update(prometheus.firing()) or not wanted, f"{wanted} fire")
        slow.unlink()
        prometheus.until(lambda: "SaritAppendsSlow" not in prometheus.firing(), "it ends with a quick disk")


def test_alert_fires_when_few_files_are_left(tmp_path):
    with (
        RunningNode(tmp_path / "data", "--http-port", "0") as node,
        Prometheus(tmp_path / "prometheus", [node.http]) as prometheus,
    ):
        prometheus.until(lambda: prometheus.query("process_open_fds"), "it is scraped")
        assert not prometheus.firing()
        limit = int(node.descriptors() / 0.95)
        subprocess.run(["prlimit", f"--pid={node.pid}", f"--nofile={limit}:"], check=True)
        prometheus.until_firing("SaritFilesNearlyUsedUp")


def test_alert_fires_on_transactions_that_nobody_ends(tmp_path):
    async def begin(controller: str) -> None:
        async with await aio.connect(controller) as client:
            await client.create_scope("a")
            await client.create_stream("a/t", segments=1)
            async with client.transactional_writer("a/t", lease_seconds=600, keep_alive=False) as writer:
                left = iter(range(TRANSACTIONS))

                async def some() -> None:
                    for _ in left:
                        await writer.begin()

                await asyncio.gather(*(some() for _ in range(AT_ONCE)))

    with (
        RunningNode(tmp_path / "data", "--http-port", "0") as node,
        Prometheus(tmp_path / "prometheus", [node.http]) as prometheus,
    ):
        asyncio.run(begin(node.controller))
        prometheus.until_firing("SaritTransactionsPileUp")
