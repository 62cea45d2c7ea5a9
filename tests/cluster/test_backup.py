"""Backups of a cluster of real processes, and what is made of them."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

import sarit
from tests.cluster.processes import RunningCluster
from tests.cluster.restored import RestoredCluster
from tests.contract.s3 import s3_server
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode
from tests.test_backup import KEYS, Load, events_of, objects_of, run

pytestmark = pytest.mark.long


def check(controller, acknowledged, committed):
    """What a restored cluster or node has."""
    with sarit.connect(controller) as client:
        orders = sorted(int(event.split()[0]) for event in events_of(client, "shop/orders"))
        whole = acknowledged - acknowledged % KEYS
        assert orders[:whole] == [number // KEYS for number in range(whole)]
        sums = [int(event) for event in events_of(client, "shop/sums")]
        assert {sums.count(number) for number in set(sums)} == {KEYS}
        assert len(set(sums)) >= committed
        with client.writer("shop/orders") as writer:
            writer.write("more", key="k0")


def load_until(load, acknowledged, committed):
    while load.acknowledged < acknowledged or load.committed < committed:
        time.sleep(0.05)
        assert not load.failures


def test_cluster_whose_containers_move_is_backed_up_and_restored(tmp_path):
    """In directories: a store is drained while the backup copies; the result is a node, and another cluster."""
    place = tmp_path / "backups"
    with RunningCluster(tmp_path / "old", stores=3, controllers=1, containers=6) as cluster:
        with Load(cluster.controller) as load:
            load_until(load, 4000, 2)
            acknowledged, committed = load.acknowledged, load.committed
            backup = subprocess.Popen(
                [SARIT, "backup", "create", place, "--cluster", cluster.url, "--rate", "4M", "--work", tmp_path / "w"],
                env=cluster.environ,
            )
            end = time.monotonic() + HANG_SECONDS
            while not objects_of(place) and time.monotonic() < end:
                time.sleep(0.02)
            cluster.sarit("cluster", "drain", "s1")
            assert backup.wait(HANG_SECONDS) == 0
            # Three stores took part, and at least two did again.
            assert cluster.log().count("a backup was taken") >= 5
        assert "has served already" in run("restore", place, "--cluster", cluster.url, "--work", tmp_path / "w", code=1)
    run("restore", place, "--data-dir", tmp_path / "node")
    with RunningNode(tmp_path / "node", "--containers", "6") as node:
        check(node.controller, acknowledged, committed)
    with RestoredCluster(place, tmp_path / "new", stores=2, controllers=1, containers=6) as cluster:
        check(cluster.controller, acknowledged, committed)


def test_cluster_on_services_is_backed_up_and_restored(tmp_path):
    """BookKeeper, index and chunks on S3."""
    with s3_server(tmp_path / "s3") as server:
        place = tmp_path / "backups"
        with RunningCluster(tmp_path / "old", 2, 1, 4, bookies=3, s3=server) as cluster:
            with Load(cluster.controller) as load:
                load_until(load, 1000, 2)
                acknowledged, committed = load.acknowledged, load.committed
                words = ("backup", "create", str(place), "--cluster", cluster.url, "--work", str(tmp_path / "w"))
                first = json.loads(cluster.sarit(*words, "--format", "json"))
                second = json.loads(cluster.sarit(*words, "--format", "json"))
            assert second["copied_bytes"] < first["bytes"] + second["bytes"]
        run("restore", place, "--data-dir", tmp_path / "node")
        assert "nothing is damaged" in run("verify", tmp_path / "node")
        with RunningNode(tmp_path / "node") as node:
            check(node.controller, acknowledged, committed)
    with (
        s3_server(tmp_path / "s3-new") as server,
        RestoredCluster(place, tmp_path / "new", 2, 1, 4, bookies=3, s3=server) as cluster,
    ):
        check(cluster.controller, acknowledged, committed)
