"""How long a log on real bookies pauses, and how soon it is open again: `python -m tests.components.bookkeeper_pauses`.

- `steady`: nothing happens; what the machine itself does to the figures.
- `roll-over`: ledgers of 32 MiB, so that the log goes on in another one all the time.
- `ensemble`: one of the three bookies of the ledger is killed, and a fourth one takes its place.
- `recovery`: an owner that dies while it writes leaves 256 MiB; the next one fences, recovers, opens and replays.
- `middle`: the same, where half of a ledger of 512 MiB is below the checkpoint.
- `leaks`: 1,000 roll-overs, an hour's worth at 150 MB/s, with truncations.  It fails when a ledger is left behind.

Frames of 256 KiB come at a fixed rate, whatever the log does.  Printed of the first three: the longest time between two
acknowledgements, and the longest wait of a frame.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
from kazoo.client import KazooClient

from sarit.env.real import real_env
from sarit.log.bookkeeper import chain_register
from sarit.process.places.bookkeeper_logs import open_bookkeeper_logs
from tests.components.bookkeeper import COLLECTION_MS, FAST_OPTIONS, BookKeeperCluster
from tests.components.bookkeeper_kills import existing_ledgers, leaked
from tests.components.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from sarit.log.bookkeeper.log import BookKeeperLogs
    from sarit.log.bookkeeper.open_log import BookKeeperLog

MIB = 1 << 20
FRAME_BYTES = 256 << 10
RECOVERY_FRAME_BYTES = 1 * MIB
WARM_SECONDS = 2
LEAK_FRAME_BYTES = 16 << 10
ROWS = ("steady", "roll-over", "ensemble", "recovery", "middle", "leaks")
ROLL_OVERS = 1000


class Load:
    """Frames at a fixed rate.  `run` may be called again: figures are those of the last call."""

    def __init__(self, log: BookKeeperLog, rate: float) -> None:
        self._log = log
        self._rate = rate
        self._payload = real_env().random.bytes(FRAME_BYTES)
        self._sent = 0
        self._acks: list[float] = []
        self._waits: list[float] = []

    async def run(self, seconds: float) -> None:
        """Until all are durable that are due in this time."""
        self._acks, self._waits = [], []
        begun, due = time.perf_counter(), 0
        while (now := time.perf_counter()) < begun + seconds:
            while due < (now - begun) * self._rate:
                self._append(begun + due / self._rate)
                due += 1
            await asyncio.sleep(0.001)
        while len(self._acks) < due:
            await asyncio.sleep(0.001)

    def _append(self, due: float) -> None:
        self._sent += 1

        def done(error) -> None:
            assert error is None, error
            self._acks.append(time.perf_counter())
            self._waits.append(self._acks[-1] - due)

        self._log.append(self._sent, [self._payload], done)

    def line(self) -> str:
        """The figures."""
        gap = max(after - before for before, after in itertools.pairwise(self._acks))
        waits = sorted(self._waits)
        return (
            f"longest gap {gap * 1000:.0f} ms, longest wait {waits[-1] * 1000:.0f} ms, "
            f"p50 {waits[len(waits) // 2] * 1000:.1f} ms, {len(waits)} frames"
        )


async def pauses(logs: BookKeeperLogs, cluster: BookKeeperCluster, row: str, given: argparse.Namespace) -> str:
    """One of the first three rows."""
    if row == "roll-over":
        logs.settings = replace(logs.settings, ledger_bytes=32 * MIB)
    log = await logs.open(1)
    load = Load(log, given.rate)
    await load.run(WARM_SECONDS)
    ledgers = len(log._chain.chain.ledgers)
    running = asyncio.ensure_future(load.run(given.seconds))
    said = ""
    if row == "ensemble":
        await asyncio.sleep(given.seconds / 3)
        before = log._writer.metadata.ensembles
        next(bookie for bookie in cluster.bookies if bookie.name == before[-1][1][0]).kill()
        await running
        assert len(log._writer.metadata.ensembles) == len(before) + 1, log._writer.metadata
        said = ", one bookie replaced"
    await running
    if row == "roll-over":
        said = f", {len(log._chain.chain.ledgers) - ledgers} times in another ledger"
    await log.close()
    return load.line() + said


async def recovery(hosts: str, row: str) -> str:
    """The seconds of each step of the next owner."""
    name = uuid.uuid4().hex
    frames = (512 if row == "middle" else 256) * MIB // RECOVERY_FRAME_BYTES
    after = frames // 2 if row == "middle" else 0
    async with open_bookkeeper_logs(f"bookkeeper://{hosts}/ledgers", real_env(), name) as logs:
        logs.settings = replace(logs.settings, ledger_bytes=(600 if row == "middle" else 64) * MIB)
        log = await logs.open(1)
        payload, slots = real_env().random.bytes(RECOVERY_FRAME_BYTES - 4096), asyncio.Semaphore(16)
        for frame in range(1, frames + 1):
            await slots.acquire()
            log.append(frame, [payload], lambda error: slots.release())
        await slots.acquire()
        # Its process dies with frames under way: nothing is closed.
        log._die(RuntimeError("killed"))
    async with open_bookkeeper_logs(f"bookkeeper://{hosts}/ledgers", real_env(), name) as logs:
        begun = time.perf_counter()
        claim = await logs.claim(1)
        fenced = time.perf_counter()
        log = await claim.open(None)
        opened = time.perf_counter()
        size = count = 0
        async for frame in log.replay(after):
            count += 1
            size += len(frame.payload)
        replayed = time.perf_counter()
        await log.close()
    assert count >= frames - after - 16, count
    return (
        f"{replayed - begun:.2f} s in all: fenced and recovered {fenced - begun:.2f}, opened {opened - fenced:.2f}, "
        f"replayed {replayed - opened:.2f} ({size / MIB:.0f} MiB)"
    )


def ledgers(hosts: str) -> dict[int, str]:
    """All that exist."""
    client = KazooClient(hosts)
    client.start()
    try:
        return existing_ledgers(client)
    finally:
        client.stop()
        client.close()


async def leaks(cluster: BookKeeperCluster) -> str:
    """Ledgers of four frames; the log keeps the newest hundred frames."""
    hosts, begun = cluster.zookeeper.hosts, time.perf_counter()
    before, chain_register.LEDGER_DELETION_SECONDS = chain_register.LEDGER_DELETION_SECONDS, 2.0
    try:
        async with open_bookkeeper_logs(f"bookkeeper://{hosts}/ledgers", real_env(), uuid.uuid4().hex) as logs:
            logs.settings = replace(logs.settings, ledger_bytes=4 * LEAK_FRAME_BYTES)
            log = await logs.open(1)
            payload, slots = real_env().random.bytes(LEAK_FRAME_BYTES), asyncio.Semaphore(8)
            for frame in range(1, 4 * ROLL_OVERS + 1):
                await slots.acquire()
                log.append(frame, [payload], lambda error: slots.release())
                if frame % 100 == 0:
                    log.truncate(frame - 100)
            seconds = time.perf_counter() - begun
            log.truncate(frame)
            await asyncio.sleep(6)
            await log.close()
    finally:
        chain_register.LEDGER_DELETION_SECONDS = before
    left = await asyncio.to_thread(ledgers, hosts)
    assert len(left) < 20, left
    assert not await asyncio.to_thread(leaked, cluster)
    return f"{ROLL_OVERS} ledgers in {seconds:.0f} s; {len(left)} are left, all of them in the chain"


async def run(cluster: BookKeeperCluster, given: argparse.Namespace) -> None:
    hosts = cluster.zookeeper.hosts
    for row in given.rows:
        for _ in range(given.rounds):
            if row in ("recovery", "middle"):
                said = await recovery(hosts, row)
            elif row == "leaks":
                said = await leaks(cluster)
            else:
                async with open_bookkeeper_logs(f"bookkeeper://{hosts}/ledgers", real_env(), uuid.uuid4().hex) as logs:
                    said = await pauses(logs, cluster, row, given)
            print(f"{row}: {said}", flush=True)
            for bookie in cluster.bookies:
                if bookie.process.ended:
                    await asyncio.to_thread(lambda bookie=bookie: bookie.start().wait())
            await asyncio.to_thread(cluster.delete_ledgers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=100.0, help="frames per second")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        server = ZooKeeperServer(Path(name) / "zookeeper").start()
        cluster = BookKeeperCluster(Path(name), server, 4, options=FAST_OPTIONS, gcWaitTime=COLLECTION_MS)
        try:
            cluster.start()
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(run(cluster, given))
        finally:
            cluster.kill()
            server.kill()


if __name__ == "__main__":
    main()
