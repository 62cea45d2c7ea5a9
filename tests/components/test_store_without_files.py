"""Stores whose log is on BookKeeper, index and chunks on S3: nothing of them is on a machine's disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster.load import Load
from tests.cluster.processes import RunningCluster
from tests.contract.s3 import s3_server
from tests.limits import HANG_SECONDS

PAGE_BYTES = 4096

pytestmark = [pytest.mark.long, pytest.mark.timeout(4 * HANG_SECONDS)]


def written_bytes(pid: int) -> int:
    """What a process has caused to be written to disks."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["write_bytes"])


def open_files(pid: int) -> set[str]:
    """The files that a process has open for writing, but for its output."""
    found = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{number}")
            flags = Path(f"/proc/{pid}/fdinfo/{number}").read_text().split("flags:\t", 1)[1].split("\n", 1)[0]
        except FileNotFoundError:
            continue
        if target.startswith("/") and not target.startswith("/dev/") and int(flags, 8) & os.O_ACCMODE:
            found.add(target)
    return found


def test_stores_write_nothing_to_their_machine(tmp_path, monkeypatch):
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o500)
    # Whatever looks for a place of its own finds this one; the cluster's processes inherit it.
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(empty))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "s3").mkdir()
    with s3_server(tmp_path / "s3") as server:
        cluster = RunningCluster(tmp_path / "cluster", stores=2, controllers=1, containers=4, bookies=3, s3=server)
        monkeypatch.chdir(empty)
        try:
            cluster.start()
            check(cluster, empty)
        finally:
            cluster.stop()


def check(cluster: RunningCluster, empty: Path) -> None:
    """Write, kill a store, write on: what a store logs is the only file that it writes."""
    load = Load(cluster.controller, segments=4).start()
    load.more(40)
    for name, store in cluster.stores.items():
        assert open_files(store.pid) <= {str(cluster.directory / f"{name}.log")}
        # Each line may make a page dirty again that was written before.
        logged = store.log()
        assert written_bytes(store.pid) <= len(logged) + (1 + logged.count("\n")) * PAGE_BYTES
    killed, other = cluster.stores.values()
    killed.kill()
    load.more(40)
    load.stop()
    assert open_files(other.pid) <= {str(cluster.directory / f"{other.name}.log")}
    assert not list(empty.iterdir())
