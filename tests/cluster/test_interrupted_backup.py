"""Backups and restores of a cluster that are killed or interrupted, and go on: byte by byte."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from contextlib import suppress

import pytest

from sarit.index.slate import open_on_s3
from sarit.storage.open import s3_config
from tests.backups import SEGMENTS, contents_of, interrupt, kept_chunk_bytes, objects_of, same_chunks, write_orders
from tests.cluster.processes import RunningCluster
from tests.cluster.restored import RestoredCluster
from tests.contract.s3 import s3_server
from tests.contract.test_slate_snapshot import checkpoints_of
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode
from tests.test_backup import run

pytestmark = pytest.mark.long

EVENTS = 4000


class _Interrupted(RestoredCluster):
    """A new cluster that is filled with a backup, which is killed twice and interrupted once."""

    def restore(self):
        work = self.directory / "work"
        words = ["restore", self.place, "--cluster", self.url, "--work", work, "--rate"]
        # So slowly that a command sees it.
        interrupt([*words, "200K"], signal.SIGKILL, self._is_being_restored, self.environ)
        words.append("2M")
        for role in ("store", "controller"):
            refused = subprocess.run(
                [SARIT, role, "--cluster", self.url, *(["--id", "s9"] if role == "store" else [])],
                env=self.environ, capture_output=True, text=True, timeout=HANG_SECONDS, check=False,
            )  # fmt: skip
            assert refused.returncode == 1
            assert "is being restored from backup 1 of" in refused.stderr
        # Chunks are there already after a while; then come indexes and logs.
        for first, how in ((0, signal.SIGKILL), (1, signal.SIGINT)):
            there = self._copies_of_indexes()
            output = interrupt(
                words, how,
                lambda first=first, there=there: any(copy[0] >= first for copy in self._copies_of_indexes() - there),
                self.environ,
            )  # fmt: skip
        assert "the same command goes on" in output
        self.sarit(*map(str, words))

    def _copies_of_indexes(self):
        """The containers whose index is copied now, and the inodes of these copies.  Each goes when the next begins."""
        with suppress(FileNotFoundError):
            return {
                (int(entry.name.removeprefix("container-").removesuffix(".db")), entry.inode())
                for entry in os.scandir(self.directory / "work/restored")
                if entry.name.endswith(".db")
            }
        return set()

    def _is_being_restored(self):
        done = subprocess.run(
            [SARIT, "cluster", "status"], env=self.environ, capture_output=True, text=True, timeout=HANG_SECONDS,
            check=False,
        )  # fmt: skip
        return "is being restored from" in done.stderr


def back_up(cluster, place, work):
    """Killed at the beginning, killed and interrupted in the middle, and once to the end; what is in the stream."""
    words = ["backup", "create", place, "--cluster", cluster.url, "--work", work, "--rate", "2M"]
    interrupt(words, signal.SIGKILL, lambda: work.exists() and any(work.iterdir()), cluster.environ)
    for how in (signal.SIGKILL, signal.SIGINT):
        there = objects_of(place)
        output = interrupt(words, how, lambda there=there: len(objects_of(place)) > len(there) + 1, cluster.environ)
        assert set(there) < set(objects_of(place))
        assert run("backup", "list", place).strip() == "no backup is complete"
    assert "the same command goes on" in output
    there = objects_of(place)
    done = json.loads(cluster.sarit(*map(str, words), "--format", "json"))
    kept = kept_chunk_bytes(place, there)
    assert kept > 0
    assert done["copied_bytes"] <= done["bytes"] - kept
    assert not [path for path in work.rglob("*") if path.is_file()]
    return contents_of(cluster.controller)


def test_interrupted_backup_of_a_cluster_in_directories_goes_on(tmp_path):
    place = tmp_path / "backups"
    with RunningCluster(tmp_path / "old", stores=3, controllers=1, containers=6) as cluster:
        write_orders(cluster.controller, EVENTS)
        contents = back_up(cluster, place, tmp_path / "work")
    run("restore", place, "--data-dir", tmp_path / "node")
    assert same_chunks(tmp_path / "old/chunks", tmp_path / "node/chunks") >= SEGMENTS
    assert "nothing is damaged" in run("verify", tmp_path / "node")
    with RunningNode(tmp_path / "node", "--containers", "6") as node:
        assert contents_of(node.controller) == contents
    with _Interrupted(place, tmp_path / "new", stores=2, controllers=1, containers=6) as cluster:
        assert same_chunks(tmp_path / "old/chunks", tmp_path / "new/chunks") >= SEGMENTS
        assert contents_of(cluster.controller) == contents


def test_interrupted_backup_of_a_cluster_on_services_goes_on(tmp_path):
    """BookKeeper, index and chunks on S3: of the killed backup checkpoints of indexes stay, of the others none."""
    place = tmp_path / "backups"
    with s3_server(tmp_path / "s3") as server:
        indexes = open_on_s3(server.bucket, "cluster", s3_config(server.environ))

        def checkpoints():
            async def count():
                return sum([len(await checkpoints_of(indexes, number)) for number in range(4)])

            return asyncio.run(count())

        with RunningCluster(tmp_path / "old", 2, 1, 4, bookies=3, s3=server) as cluster:
            write_orders(cluster.controller, EVENTS)
            contents = back_up(cluster, place, tmp_path / "work")
            # Those of the first backup, which was killed while it copied indexes; the other ones had copied all.
            assert 0 < checkpoints() <= 4
    with (
        s3_server(tmp_path / "s3-new") as server,
        _Interrupted(place, tmp_path / "new", 2, 1, 4, bookies=3, s3=server) as cluster,
    ):
        assert contents_of(cluster.controller) == contents
