"""A node on real bookies whose disks become full: they are read-only then, and later not any more.

Each bookie has a small file system of its own, which needs the right to mount one.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from tests.cluster.load import Load
from tests.components.bookkeeper import BookieServer, BookKeeperCluster
from tests.components.test_hdfs_outages import reasons_of, wait_until_throttled
from tests.components.zookeeper import zookeeper_server  # noqa: F401
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.timeout(6 * HANG_SECONDS)]

DISK_MIB = 192
FULL = 0.9  # the bookie's threshold
LEAST_FREE = dict.fromkeys(
    ("minUsableSizeForIndexFileCreation", "minUsableSizeForEntryLogCreation", "minUsableSizeForHighPriorityWrites"),
    16 << 20,
)
LONGEST_WAIT_SECONDS = 5.0


@contextmanager
def small_disk(path: Path):
    path.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip(f"a bookie needs a small disk of its own: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(disk: Path) -> None:
    """Leave a twentieth of it free."""
    free = os.statvfs(disk)
    size = free.f_bavail * free.f_frsize - (DISK_MIB << 20) // 20
    with (disk / "ballast").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def fill_to_the_last_byte(disk: Path) -> None:
    with (disk / "ballast").open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))


def wait_until_ready(bookie: BookieServer) -> None:
    end = time.monotonic() + HANG_SECONDS
    while not bookie.is_ready():
        assert time.monotonic() < end, bookie.process.last_words()
        time.sleep(0.2)


def wait_for_read_only(zookeeper: KazooClient, count: int) -> None:
    end = time.monotonic() + HANG_SECONDS
    while len(found := zookeeper.get_children("/ledgers/available/readonly")) != count:
        assert time.monotonic() < end, f"read-only are {found}"
        time.sleep(0.1)


def wait_for_reason(node: RunningNode, text: str) -> None:
    """Until the node is not ready, and says why: it has given up hope for the ledger at hand."""
    end = time.monotonic() + HANG_SECONDS
    while True:
        ready, reasons = reasons_of(node)
        of_containers = [reason["text"] for reason in reasons if reason["code"] == "recovering"]
        if not ready and of_containers and all(text in each for each in of_containers):
            assert "log-away" in {reason["code"] for reason in reasons}
            return
        assert time.monotonic() < end, (ready, reasons, node.log()[-3000:])
        time.sleep(0.5)


def test_full_bookies_are_replaced_or_waited_for_and_nothing_is_lost(tmp_path, zookeeper_server):  # noqa: F811
    with ExitStack() as stack:
        disks = [stack.enter_context(small_disk(tmp_path / f"bookie-{number}")) for number in range(4)]
        cluster = BookKeeperCluster(
            tmp_path, zookeeper_server, 4, diskUsageThreshold=FULL, diskUsageWarnThreshold=FULL - 0.05,
            diskUsageLwmThreshold=FULL, diskCheckInterval=500, journalMaxSizeMB=16, **LEAST_FREE,
        )  # fmt: skip
        stack.callback(cluster.kill)
        cluster.start()
        zookeeper = KazooClient(zookeeper_server.hosts)
        zookeeper.start()
        stack.callback(zookeeper.close)
        stack.callback(zookeeper.stop)
        log = f"bookkeeper://{zookeeper_server.hosts}/ledgers"
        node = RunningNode(tmp_path / "data", "--log", log, "--containers", "2", "--http-port", "0").start()
        stack.callback(node.kill)
        load = Load(node.controller, segments=4, padding_bytes=100).start()
        # One of four: another one takes its place.
        began = time.monotonic()
        fill(disks[0])
        wait_for_read_only(zookeeper, 1)
        load.more(100)
        assert load.pause_since(began) < LONGEST_WAIT_SECONDS
        # Three of four: two are needed for an acknowledgement.
        for disk in disks[1:3]:
            fill(disk)
        wait_for_read_only(zookeeper, 3)
        wait_until_throttled(load)
        wait_for_reason(node, "1 bookies are registered as writable, and a ledger needs 3: start more of them")
        for disk in disks[:3]:
            (disk / "ballast").unlink()
        wait_for_read_only(zookeeper, 0)
        load.more(100)
        load.stop()
        assert reasons_of(node) == (True, [])
        node.kill()
        node.start()
        load.check(node.controller)
        assert node.stop() == 0
        assert "Traceback" not in node.log()


def test_bookie_whose_disk_others_fill_ends_and_serves_again_with_space(tmp_path, zookeeper_server):  # noqa: F811
    """Its journal finds no byte before the disk is checked: it must not acknowledge, and ends.  Nothing is lost."""
    with ExitStack() as stack:
        disks = [stack.enter_context(small_disk(tmp_path / f"bookie-{number}")) for number in range(3)]
        cluster = BookKeeperCluster(
            tmp_path, zookeeper_server, 3, diskCheckInterval=3_600_000, journalMaxSizeMB=16, journalPreAllocSizeMB=4,
            **LEAST_FREE,
        )  # fmt: skip
        stack.callback(cluster.kill)
        cluster.start()
        log = f"bookkeeper://{zookeeper_server.hosts}/ledgers"
        node = RunningNode(tmp_path / "data", "--log", log, "--containers", "2").start()
        stack.callback(node.kill)
        load = Load(node.controller, segments=4, padding_bytes=100).start()
        full = cluster.bookies[0]
        wait_until_ready(full)
        end = time.monotonic() + HANG_SECONDS
        while not full.process.ended:
            fill_to_the_last_byte(disks[0])
            load.more(10)
            assert time.monotonic() < end, full.process.last_words()
        load.more(20)
        load.stop()
        # On a full disk it does not serve, and may not end: its supervisor knows by its HTTP admin.
        full.start()
        while full.is_ready() is None and not full.process.ended:
            assert time.monotonic() < end, full.process.last_words()
            time.sleep(0.2)
        assert not full.is_ready()
        full.kill()
        (disks[0] / "ballast").unlink()
        full.start_until_it_serves()
        wait_until_ready(full)
        for bookie in cluster.bookies[1:]:
            bookie.kill()
            bookie.start_until_it_serves()
        load.check(node.controller)
        assert node.stop() == 0
        assert "Traceback" not in node.log()
