"""Alerts of one node under a real Prometheus, each by its fault: a slow disk, slow storage, few files, transactions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sarit
from sarit.client import aio
from sarit.core.keyspace import hash_key
from tests.nodes import RunningNode
from tests.observability.prometheus import MISSING, PROMETHEUS, Load, Prometheus

pytestmark = [pytest.mark.long, pytest.mark.skipif(PROMETHEUS is None, reason=MISSING)]

SLOW_NODE = (sys.executable, str(Path(__file__).with_name("node_with_slow_syncs.py")))
SLOW_STORAGE = (sys.executable, str(Path(__file__).with_name("node_with_slow_storage.py")))
SEGMENTS = 1200
# Larger than what is kept in the index: a compaction must read it from long-term storage.
PIECE = b"x" * 40_000
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


def test_alert_fires_when_compaction_cannot_keep_up(tmp_path):
    slow = tmp_path / "slow"
    slow.touch()
    with (
        RunningNode(
            tmp_path / "data", "--http-port", "0", "--containers", "1", sarit=SLOW_STORAGE,
            env={**os.environ, "SARIT_TEST_SLOW": str(slow)},
        ) as node,
        Prometheus(tmp_path / "prometheus", [node.http]) as prometheus,
        sarit.connect(node.controller) as client,
    ):  # fmt: skip
        client.create_scope("a")
        client.create_stream("a/b", segments=SEGMENTS)
        keys = {int(hash_key(str(number)) * SEGMENTS): str(number) for number in range(20 * SEGMENTS)}
        assert len(keys) == SEGMENTS
        fires = lambda: "SaritCompactionBacklogGrows" in prometheus.firing()  # noqa: E731
        assert not fires()
        with client.writer("a/b") as writer:
            for rounds in range(1, 41):
                for key in keys.values():
                    writer.write(PIECE, key=key)
                writer.flush()
                # The compaction that cannot keep up delays the next checkpoint.
                query = f"sarit_checkpoint_seconds_count >= {rounds}"
                prometheus.until(lambda query=query: fires() or prometheus.query(query), query)
                if fires():
                    break
        prometheus.until(fires, "it fires")
        slow.unlink()
        prometheus.until(lambda: not fires(), "it ends with quick reads")
