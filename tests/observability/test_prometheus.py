"""A real Prometheus on real processes: every query of the dashboard has data, and alerts fire by their faults."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import sarit
from benchmarks.peers.ports import free_ports
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode
from tests.observability.prometheus import MISSING, PROMETHEUS, Load, Prometheus

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.skipif(PROMETHEUS is None, reason=MISSING)]

# From there on SaritLogSyncSlow fires.
SLOW_SYNC_SECONDS = 0.1
# Panels of the dashboard that find nothing, and why.
NOT_IN_A_NODE = {
    "Containers and cluster / Lease left": "no cluster",
    "Containers and cluster / Age of the container map": "no cluster",
    "Containers and cluster / Containers that move": "no cluster",
    "Containers and cluster / Usable stores": "no cluster",
    "Containers and cluster / Entries on BookKeeper": "its log is on its disk",
    "Containers and cluster / Bookies": "its log is on its disk",
}
# These need an event that is rare in half a minute of load.
RARE = {
    "Reads / Latency of reads from chunks": "what was written is still in memory",
    "Reads / Found in memory": "no block of a chunk was read",
    "Containers and cluster / Opening a container": "all were open before the first scrape",
    "Controller / Calls that failed": "none failed",
    "Tier 2 / Checkpoints": "none ended in the last 15 s",
}


def test_dashboard_shows_data_of_a_node_with_processes(tmp_path):
    ports = free_ports(4)
    options = ("--processes", "3", "--http-port", str(ports[0]))
    targets = [f"127.0.0.1:{port}" for port in ports]
    with (
        RunningNode(tmp_path / "data", *options) as node,
        Load(node.controller),
        Prometheus(tmp_path / "prometheus", targets) as prometheus,
        syncing(tmp_path / "synced") as syncs,
    ):
        see_all(prometheus, 4, NOT_IN_A_NODE | RARE)
        # By a machine that is busy: an append takes as long as the event loop stands still, which is more than a
        # second then; a disk that others use is slow for this test, too.
        busy, firing = {"SaritLoopBlocked"}, prometheus.firing()
        busy |= {"SaritAppendsSlow"} if "SaritLoopBlocked" in firing else set()
        busy |= {"SaritLogSyncSlow"} if max(syncs) > SLOW_SYNC_SECONDS else set()
        assert firing <= busy


@contextmanager
def syncing(path):
    """Sync a small file now and then, beside what is tested: the seconds of each."""
    ended, seconds = threading.Event(), [0.0]

    def run() -> None:
        with path.open("wb") as file:
            while not ended.wait(0.1):
                file.write(b"x" * 4096)
                file.flush()
                began = time.monotonic()
                os.fsync(file.fileno())
                seconds.append(time.monotonic() - began)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield seconds
    finally:
        ended.set()
        thread.join(HANG_SECONDS)


def see_all(prometheus, processes, excused):
    """Every panel of the dashboard finds data of so many processes, but for those that are excused."""
    prometheus.until(lambda: len(prometheus.query("up == 1")) == processes, "all processes are scraped")
    # What was seen once is no reason to fail: rates of rare events come and go.
    missing = dict(prometheus.empty_panels())

    def seen():
        nonlocal missing
        missing = {panel: query for panel, query in missing.items() if panel in prometheus.empty_panels()}
        return set(missing) <= set(excused)

    prometheus.until(seen, f"the dashboard has data, but for {sorted(excused)}")


def test_alerts_fire_by_faults_of_a_node(tmp_path):
    options = ("--http-port", "0", "--memory", "512M")
    few_files = ("prlimit", "--nofile=400:400", SARIT)
    with (
        RunningNode(tmp_path / "data", *options, sarit=few_files) as node,
        Prometheus(tmp_path / "prometheus", [node.http]) as prometheus,
    ):
        with Load(node.controller):
            prometheus.until(lambda: prometheus.query("sarit_append_events_total > 1000"), "it has load")
            assert "SaritProcessAway" not in prometheus.firing()
            _block_loop(prometheus, node)
            _use_up_connections(prometheus, node)
        _remove_readers(node)
        prometheus.until_firing("SaritReaderGroupWithoutReaders")
        _lose_storage(prometheus, node, tmp_path / "data" / "chunks")
        os.kill(node.pid, signal.SIGKILL)
        prometheus.until_firing("SaritProcessAway")


def _block_loop(prometheus, node):
    os.kill(node.pid, signal.SIGSTOP)
    time.sleep(3)
    os.kill(node.pid, signal.SIGCONT)
    prometheus.until_firing("SaritLoopBlocked")


def _use_up_connections(prometheus, node):
    host, _, port = node.store.rpartition(":")
    held = []
    try:
        for _ in range(400):
            held.append(socket.create_connection((host, int(port)), timeout=30))  # noqa: PERF401, some may be refused
        prometheus.until_firing("SaritConnectionsRefused")
    finally:
        for one in held:
            one.close()


def _remove_readers(node):
    with sarit.connect(node.controller) as client:
        with client.writer("load/s") as writer:
            writer.write(b"unread", key="1")
        group = client.reader_groups.open("load/g")
        for name in group.online_readers():
            group.reader_offline(name)


def _lose_storage(prometheus, node, chunks):
    """Its directory is gone, as when a volume is unmounted; writers go on until memory is full."""
    away = chunks.with_name("away")
    ended = threading.Event()

    def write() -> None:
        # On a thread of its own: appends that are throttled wait until storage is back.
        with sarit.connect(node.controller) as client, client.writer("load/s", buffer_bytes=8 << 20) as writer:
            while not ended.is_set():
                writer.write_many([b"z" * 10_000] * 400)

    writing = threading.Thread(target=write, daemon=True)
    os.rename(chunks, away)
    try:
        writing.start()
        wanted = {"SaritStorageErrors", "SaritDirtyBytesNearBound", "SaritThrottled"}
        prometheus.until(lambda: wanted.difference_update(prometheus.firing()) or not wanted, f"{wanted} fire")
    finally:
        ended.set()
        os.rename(away, chunks)
    writing.join(HANG_SECONDS)
    assert not writing.is_alive(), "appends wait although storage is back"


def test_alerts_fire_by_damage(tmp_path):
    with RunningNode(tmp_path / "data") as node, sarit.connect(node.controller) as client:
        client.create_scope("a")
        client.create_stream("a/b", segments=1)
        with client.writer("a/b") as writer:
            writer.write_many([b"x" * 1000] * 20_000)
        node.stop()
    for chunk in (tmp_path / "data" / "chunks").rglob("*"):
        if chunk.is_file() and chunk.stat().st_size > 100_000:
            _flip(chunk, 50_000)
    (tmp_path / "data" / "index" / "container-1.db").unlink()
    with (
        RunningNode(tmp_path / "data", "--http-port", "0", "--allow-damaged") as node,
        Prometheus(tmp_path / "prometheus", [node.http]) as prometheus,
    ):
        prometheus.until_firing("SaritContainerFailed")
        prometheus.until_firing("SaritContainerNotServing")
        with sarit.connect(node.controller, retry_timeout=1) as client, pytest.raises(sarit.SaritError):
            for _ in client.reader("a/b", end="tail"):
                pass
        prometheus.until_firing("SaritDamageFound")


def _flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        data = file.read(16)
        file.seek(at)
        file.write(bytes(byte ^ 0xFF for byte in data))
