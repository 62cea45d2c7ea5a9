"""The schema registry of a cluster that was restored from a backup: no number that was given since comes back."""

from __future__ import annotations

import pytest

from benchmarks.peers.ports import free_ports
from tests.cluster.processes import RunningCluster
from tests.cluster.restored import RestoredCluster
from tests.test_backup import run
from tests.test_registry_restore import STEP, call, register

pytestmark = pytest.mark.long


def test_restored_registry_gives_no_number_again(tmp_path):
    place, (port,) = tmp_path / "backups", free_ports(1)
    registry, environ = f"127.0.0.1:{port}", {"SARIT_REGISTRY": "on", "SARIT_REGISTRY_PORT": str(port)}
    with RunningCluster(tmp_path / "old", stores=2, controllers=1, containers=4, environ=environ) as cluster:
        assert register(registry, "orders", "a") == (1, 1)
        run("backup", "create", place, "--cluster", cluster.url, "--work", tmp_path / "work")
        assert register(registry, "orders", "a", "b") == (2, 2)
    with RestoredCluster(place, tmp_path / "new", stores=2, controllers=1, containers=4, environ=environ) as cluster:
        assert call(registry, "GET", "/subjects/orders/versions") == [1]
        assert register(registry, "orders", "a", "z") == (STEP + 2, STEP + 2)
        (controller,) = cluster.controllers
        controller.kill()
        controller.begin().wait()
        assert register(registry, "orders", "a", "y") == (STEP + 3, STEP + 3), "the numbers rise once a restore"
