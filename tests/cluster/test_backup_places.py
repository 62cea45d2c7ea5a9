"""Backups of clusters with TLS and users, and of what keeps its chunks or indexes elsewhere than in directories."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests import secured
from tests.backups import contents_of, write_orders
from tests.cluster.processes import RunningCluster
from tests.cluster.restored import RestoredCluster
from tests.components.hdfs import hdfs  # noqa: F401
from tests.contract.s3 import s3_server
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode
from tests.test_backup import create, run

pytestmark = pytest.mark.long

EVENTS = 1500


def test_cluster_with_tls_and_users_is_backed_up_and_restored(tmp_path, monkeypatch):
    """Its stores ask for certificates of clients, and the backup has one."""
    files = secured.files()
    clients = secured.client_environment(files["ca"]) | {
        "SARIT_CERT_FILE": files["client"],
        "SARIT_KEY_FILE": files["client key"],
    }
    environ = secured.server_environment() | {"SARIT_TLS_CLIENT_CERTS": "true"} | clients
    place, work = tmp_path / "backups", tmp_path / "work"
    with RunningCluster(tmp_path / "old", 2, 1, 4, environ=environ) as cluster:
        words = [SARIT, "backup", "create", place, "--cluster", cluster.url, "--work", work, "--format", "json"]

        def refused(**environ):
            done = subprocess.run(
                [*words, "--wait", "0"], env={**cluster.environ, **environ}, capture_output=True, text=True,
                timeout=HANG_SECONDS, check=False,
            )  # fmt: skip
            assert done.returncode == 1, done.stdout + done.stderr
            return done.stderr

        for name, value in clients.items():
            monkeypatch.setenv(name, value)
        write_orders(cluster.controller, EVENTS)
        contents = contents_of(cluster.controller)
        # Each says what to do, at the first of five attempts.
        without_ca = refused(SARIT_CA_FILE="", SARIT_CERT_FILE="", SARIT_KEY_FILE="")
        assert "if the cluster has TLS, name its CA with SARIT_CA_FILE (tried 5 times" in without_ca
        assert without_ca.count("begins again") == 4
        without_certificate = refused(SARIT_CERT_FILE="", SARIT_KEY_FILE="")
        assert "if its stores ask for certificates, name one with SARIT_CERT_FILE" in without_certificate
        (tmp_path / "other").mkdir()
        cluster.sarit("tls", "dev-ca", str(tmp_path / "other"))
        assert "is not accepted" in refused(SARIT_CA_FILE=str(tmp_path / "other/ca.pem"))
        assert not place.exists(), "a place is not made in vain"
        done = json.loads(cluster.sarit(*map(str, words[1:])))
        assert done["backup"] == 1
    with RestoredCluster(place, tmp_path / "new", 2, 1, 4, environ=environ) as cluster:
        assert contents_of(cluster.controller) == contents


def test_cluster_on_hdfs_is_backed_up_to_hdfs_and_restored(tmp_path, hdfs):  # noqa: F811
    place = f"{hdfs.url}/backups"
    words = ["--work", str(tmp_path / "work"), "--format", "json"]
    with RunningCluster(tmp_path / "old", 2, 1, 4, storage=f"{hdfs.url}/old") as cluster:
        write_orders(cluster.controller, EVENTS)
        first = json.loads(cluster.sarit("backup", "create", place, "--cluster", cluster.url, *words))
        second = json.loads(cluster.sarit("backup", "create", place, "--cluster", cluster.url, *words))
        assert second["copied_bytes"] < first["bytes"]
        contents = contents_of(cluster.controller)
    assert json.loads(run("backup", "verify", place, "--format", "json"))["damaged"] == []
    with RestoredCluster(place, tmp_path / "new", 2, 1, 4, storage=f"{hdfs.url}/new") as cluster:
        assert contents_of(cluster.controller) == contents
    run("backup", "prune", place, "--keep", "1")
    run("restore", place, "--data-dir", tmp_path / "node")
    assert "nothing is damaged" in run("verify", tmp_path / "node")
    with RunningNode(tmp_path / "node") as node:
        assert contents_of(node.controller) == contents


def test_node_whose_index_is_on_s3_is_backed_up_and_restored(tmp_path, monkeypatch):
    data, place, new = tmp_path / "data", tmp_path / "backups", tmp_path / "new"
    with s3_server(tmp_path / "s3") as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        index = f"s3://{server.bucket}/index"
        with RunningNode(data, "--index-storage", index) as node:
            write_orders(node.controller, EVENTS)
            first = create(place, data)
            second = create(place, data)
            assert second["copied_bytes"] < first["bytes"]
            contents = contents_of(node.controller)
            inside = run("backup", "create", f"{index}/backups", "--data-dir", data, code=1)
            assert "must be elsewhere" in inside
    # The server is gone: the backup needs nothing of it.
    run("restore", place, "--data-dir", new)
    assert "nothing is damaged" in run("verify", new)
    with RunningNode(new) as node:
        assert contents_of(node.controller) == contents
