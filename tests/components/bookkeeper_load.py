"""How fast entries reach three real bookies on this machine: `python -m tests.components.bookkeeper_load`.

In turns, on the same bookies: the bare client (`NetworkBookies.add`), the log of a container with frames of that size,
and BookKeeper's own Java client with its protocols 2 and 3.  Entries go to all three bookies; at most WINDOW of them
are not acknowledged by two.  Printed of each: MB/s of payload, ms from add to the second answer, and seconds of
processor time per GB of the client and of all bookies.

With `--sync on` bookies sync their journals before they answer, as they must where an acknowledgement is to survive a
loss of power; `--sync off` shows what the syncs cost.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from benchmarks.peers.maven import class_path
from benchmarks.peers.process import JAVA_OPTIONS
from sarit.coordination.zookeeper import ZooKeeper
from sarit.env.real import real_env
from sarit.log.bookkeeper.bookies import NetworkBookies
from sarit.log.bookkeeper.ledger_store import ZooKeeperLedgers
from sarit.log.bookkeeper.limits import MAX_BOOKIE_QUEUE_BYTES
from sarit.log.bookkeeper.metadata import LedgerMetadata, LedgerState
from sarit.log.bookkeeper.port import Code
from sarit.log.bookkeeper.wire import add_packet
from sarit.process.places.bookkeeper_logs import open_bookkeeper_logs
from tests.components.bookkeeper import COLLECTION_MS, FAST_OPTIONS, OPTIONS, BookKeeperCluster
from tests.components.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from sarit.log.bookkeeper.log import BookKeeperLogs

QUORUM = 2
CLIENTS = ("bare", "log", "java-v2", "java-v3")  # by default without the last, which is slower
SOURCE = Path(__file__).parent / "java" / "LedgerLoad.java"


@dataclass(frozen=True)
class Figures:
    """Of one run; processor seconds of the client."""

    seconds: float
    processor: float
    p50_ms: float
    p95_ms: float

    @staticmethod
    def of(seconds: float, processor: float, delays: list[float]) -> Figures:
        delays.sort()
        return Figures(seconds, processor, *(delays[int(len(delays) * part)] * 1000 for part in (0.5, 0.95)))


class Bare:
    """The client without the log: entries of a ledger, as `LedgerWriter` would send them."""

    def __init__(self, bookies: NetworkBookies, ledgers: ZooKeeperLedgers) -> None:
        self._bookies = bookies
        self._ledgers = ledgers

    async def write(self, size: int, count: int, window: int) -> Figures:
        bookies, ensemble = self._bookies, tuple(sorted(self._bookies.writable()))
        ledger, _ = await self._ledgers.create(LedgerMetadata(3, 3, 2, LedgerState.OPEN, ((0, ensemble),), ctoken=1))
        payload = real_env().random.bytes(size)
        slots, delays, left = asyncio.Semaphore(window), [], count * len(ensemble)
        done = asyncio.Event()
        begun, used = time.perf_counter(), time.process_time()
        confirmed = -1
        for entry in range(count):
            await slots.acquire()
            while any(bookies.queued_bytes(bookie) > MAX_BOOKIE_QUEUE_BYTES for bookie in ensemble):
                await asyncio.sleep(0.001)
            packet = add_packet(ledger, entry, confirmed, (entry + 1) * size, [payload], recovery=False)
            answers, sent = [], time.perf_counter()

            def answered(code, answers=answers, sent=sent, entry=entry):
                nonlocal left, confirmed
                assert code is Code.OK, code
                answers.append(code)
                left -= 1
                if len(answers) == QUORUM:
                    delays.append(time.perf_counter() - sent)
                    confirmed = max(confirmed, entry - window)
                    slots.release()
                if not left:
                    done.set()

            for bookie in ensemble:
                bookies.add(bookie, ledger, entry, packet, answered)
        for _ in range(window):
            await slots.acquire()
        found = Figures.of(time.perf_counter() - begun, time.process_time() - used, delays)
        await done.wait()
        return found


class Logs:
    """The log of a container; each run opens another one."""

    def __init__(self, logs: BookKeeperLogs) -> None:
        self._logs = logs
        self._container = 0

    async def write(self, size: int, count: int, window: int) -> Figures:
        self._container += 1
        log = await self._logs.open(self._container)
        payload = real_env().random.bytes(size)
        slots, delays = asyncio.Semaphore(window), []
        begun, used = time.perf_counter(), time.process_time()
        for frame in range(1, count + 1):
            await slots.acquire()

            sent = time.perf_counter()

            def done(error, sent=sent):
                assert error is None, error
                delays.append(time.perf_counter() - sent)
                slots.release()

            log.append(frame, [payload], done)
        for _ in range(window):
            await slots.acquire()
        found = Figures.of(time.perf_counter() - begun, time.process_time() - used, delays)
        await log.close()
        return found


class Java:
    """BookKeeper's own client, in a process of its own."""

    def __init__(self, cluster: BookKeeperCluster, classes: str, protocol: str) -> None:
        self._arguments = f"zk+longhierarchical://{cluster.zookeeper.hosts}/ledgers", protocol
        self._classes = classes

    async def write(self, size: int, count: int, window: int) -> Figures:
        uri, protocol = self._arguments
        process = await asyncio.create_subprocess_exec(
            "java", *JAVA_OPTIONS, "-Xmx1g", "-cp", self._classes, "LedgerLoad", uri, str(size), str(count),
            str(window), protocol, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await process.communicate()
        found = re.search(r"^measured (.+)$", said.decode(), re.MULTILINE)
        assert found is not None, said.decode()[-3000:]
        return Figures(*map(float, found[1].split()))


def compiled(directory: Path) -> str | None:
    """The class path of LedgerLoad; None without a JDK."""
    if shutil.which("javac") is None:
        return None
    found = class_path("bookkeeper")
    subprocess.run(["javac", "-cp", found, "-d", str(directory), str(SOURCE)], check=True)
    return f"{found}:{directory}"


async def run(cluster: BookKeeperCluster, chosen: argparse.Namespace, classes: str | None, sync: str) -> None:
    """All clients in turns, on one cluster."""
    zookeeper = await ZooKeeper.connect(cluster.zookeeper.hosts, 6.0, real_env())
    bookies, ledgers = NetworkBookies(real_env(), zookeeper), ZooKeeperLedgers(zookeeper)
    async with open_bookkeeper_logs(f"bookkeeper://{cluster.zookeeper.hosts}/ledgers", real_env(), "load") as logs:
        await bookies.start()
        clients = {"bare": Bare(bookies, ledgers), "log": Logs(logs)}
        if classes is not None:
            clients |= {f"java-{protocol}": Java(cluster, classes, protocol) for protocol in ("v2", "v3")}
        await clients["bare"].write(128 << 10, 2048, chosen.window)  # their compilers
        for kib in chosen.kib:
            size, count = kib << 10, (chosen.mib << 10) // kib
            runs: dict[str, list[tuple[Figures, float]]] = {name: [] for name in chosen.clients if name in clients}
            for _ in range(chosen.rounds):
                for name, found in runs.items():
                    used = sum(bookie.process.cpu_seconds() for bookie in cluster.bookies)
                    figures = await clients[name].write(size, count, chosen.window)
                    used = sum(bookie.process.cpu_seconds() for bookie in cluster.bookies) - used
                    found.append((figures, used))
                    await asyncio.to_thread(cluster.delete_ledgers)
                    print(f"# {name} {size * count / 1e6 / figures.seconds:.0f} MB/s", flush=True)
            for name, found in runs.items():
                show(f"{kib} KiB, sync {sync}, {name}", size * count / 1e9, found)
        await bookies.close()
    await zookeeper.close()


def show(name: str, gigabytes: float, runs: list[tuple[Figures, float]]) -> None:
    """One line: the median run by speed, and all speeds."""
    figures, used = sorted(runs, key=lambda one: one[0].seconds)[len(runs) // 2]
    figures = replace(figures, processor=figures.processor / gigabytes)
    # Java's first ledger, which warms it up, is as long as the second one.
    written = gigabytes * (2 if "java" in name else 1)
    speeds = ", ".join(f"{gigabytes * 1000 / one.seconds:.0f}" for one, _ in runs)
    print(
        f"{name}: {statistics.median(gigabytes * 1000 / one.seconds for one, _ in runs):.0f} MB/s ({speeds}), "
        f"p50 {figures.p50_ms:.1f} ms, p95 {figures.p95_ms:.1f} ms, processor s/GB: client {figures.processor:.2f}, "
        f"bookies {used / written:.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kib", type=int, nargs="+", default=[256])
    parser.add_argument("--mib", type=int, default=256, help="payload of each run")
    parser.add_argument("--window", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS[:-1]))
    parser.add_argument("--sync", nargs="+", choices=("on", "off"), default=["on"])
    parser.add_argument(
        "--small-bookies", action="store_true", help="Java as tests start it: one compiler, less memory"
    )
    parser.add_argument("--wait", type=float, default=0.0, help="seconds before the first run")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "classes").mkdir()
        classes = compiled(place / "classes") if any("java" in client for client in chosen.clients) else None
        for sync in chosen.sync:
            server = ZooKeeperServer(place / f"zookeeper-{sync}").start()
            setting = "true" if sync == "on" else "false"
            options = OPTIONS if chosen.small_bookies else FAST_OPTIONS
            cluster = BookKeeperCluster(
                place / f"bookies-{sync}", server, options=options, journalSyncData=setting, gcWaitTime=COLLECTION_MS
            )
            try:
                cluster.start()
                time.sleep(chosen.wait)
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(run(cluster, chosen, classes, sync))
            finally:
                cluster.kill()
                server.kill()
            shutil.rmtree(place / f"bookies-{sync}")


if __name__ == "__main__":
    main()
