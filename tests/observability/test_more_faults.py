"""More alerts under a real Prometheus, each by its fault: restarts, a full disk, lag, transactions, backups."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import suppress

import pytest

import sarit
from benchmarks.peers.ports import free_ports
from sarit.env.real import real_env
from sarit.ops.backup.place import open_place
from tests.faults.test_full_disk import small_disk  # noqa: F401 - a fixture
from tests.nodes import RunningNode
from tests.observability.prometheus import MISSING, PROMETHEUS, Prometheus
from tests.test_backup import run

pytestmark = [pytest.mark.long, pytest.mark.skipif(PROMETHEUS is None, reason=MISSING)]


def test_alert_fires_when_a_node_restarts_again_and_again(tmp_path):
    (port,) = free_ports(1)
    node = RunningNode(tmp_path / "data", "--http-port", str(port)).start()
    with Prometheus(tmp_path / "prometheus", [f"127.0.0.1:{port}"]) as prometheus:
        assert not prometheus.firing()
        end = time.monotonic() + 120
        while "SaritRestarts" not in prometheus.firing():
            assert time.monotonic() < end
            node.kill()
            node.start()
            prometheus.until(lambda: prometheus.query("up == 1"), "it is scraped")
        node.kill()


def test_alerts_fire_on_a_disk_that_fills(small_disk):  # noqa: F811
    with (
        RunningNode(small_disk / "data", "--containers", "2", "--http-port", "0") as node,
        Prometheus(small_disk.with_name("prometheus"), [node.http]) as prometheus,
    ):
        assert not prometheus.firing()
        free = os.statvfs(small_disk)
        with (small_disk / "other").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - (48 << 20))
        prometheus.until_firing("SaritDiskNearlyFull")
        with sarit.connect(node.controller, retry_timeout=2) as client:
            client.create_scope("a")
            client.create_stream("a/b", segments=1)
            writing = threading.Thread(target=_write_until_refused, args=(client,), daemon=True)
            writing.start()
            prometheus.until_firing("SaritDiskFull")
            (small_disk / "other").unlink()
            prometheus.until(lambda: "SaritDiskFull" not in prometheus.firing(), "it ends with free space")


def _write_until_refused(client):
    with suppress(sarit.SaritError), client.writer("a/b") as writer:
        for _ in range(200):
            writer.write(b"x" * 1_000_000)


def test_alerts_fire_by_what_clients_leave_undone(tmp_path):
    with (
        RunningNode(tmp_path / "data", "--http-port", "0") as node,
        Prometheus(tmp_path / "prometheus", [node.http]) as prometheus,
        sarit.connect(node.controller) as client,
    ):
        client.create_scope("a")
        client.create_stream("a/b", segments=1)
        client.reader_groups.create("a/g", "a/b")
        # A reader that has its segments and reads nothing.
        with client.reader_groups.open("a/g").reader("r"), client.writer("a/b") as writer:
            end = time.monotonic() + 240
            while "SaritReaderGroupLags" not in prometheus.firing():
                assert time.monotonic() < end
                writer.write_many([b"y" * 10_000] * 200)
                time.sleep(0.2)


async def _leave_a_prune(place):
    """Leave what a prune that was killed leaves."""
    found = await open_place(real_env(), str(place))
    await found.lock("prune")
    await found.close()


def test_alerts_fire_by_backups(tmp_path):
    place, data = tmp_path / "backups", tmp_path / "data"
    with (
        RunningNode(data, "--http-port", "0") as node,
        Prometheus(tmp_path / "prometheus", [node.http]) as prometheus,
    ):
        run("backup", "create", place, "--data-dir", data)
        prometheus.until_firing("SaritBackupOld")
        assert "SaritBackupFailed" not in prometheus.firing()
        asyncio.run(_leave_a_prune(place))
        run("backup", "create", place, "--data-dir", data, code=1)
        prometheus.until_firing("SaritBackupFailed")
        run("backup", "prune", place, "--keep", 1, "--force")
        run("backup", "create", place, "--data-dir", data)
        prometheus.until(
            lambda: not {"SaritBackupOld", "SaritBackupFailed"} & prometheus.firing(), "it ends with a backup"
        )
