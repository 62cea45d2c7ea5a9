"""How fast the bare client writes to three real bookies on this machine: `python -m tests.components.bookkeeper_load`.

Entries go to all three, at most WINDOW of them are not acknowledged by two, and the third may be behind by what its
queue holds.  Printed: MB/s of payload, seconds from add to the second answer, seconds of processor time per GB.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import uvloop

from sarit.coordination.zookeeper import ZooKeeper
from sarit.env.real import real_env
from sarit.log.bookkeeper.bookies import NetworkBookies
from sarit.log.bookkeeper.ledger_store import ZooKeeperLedgers
from sarit.log.bookkeeper.limits import MAX_BOOKIE_QUEUE_BYTES
from sarit.log.bookkeeper.metadata import LedgerMetadata, LedgerState
from sarit.log.bookkeeper.port import Code
from sarit.log.bookkeeper.wire import add_packet
from tests.components.bookkeeper import BookKeeperCluster
from tests.components.zookeeper import ZooKeeperServer

QUORUM = 2
WARM_UP_BYTES = 256 << 20


async def write(bookies: NetworkBookies, ledgers: ZooKeeperLedgers, total: int, size: int, window: int):
    """Write `total` bytes to a new ledger: (seconds, processor seconds, delays in seconds)."""
    ensemble = tuple(sorted(bookies.writable()))
    ledger, _ = await ledgers.create(LedgerMetadata(3, 3, 2, LedgerState.OPEN, ((0, ensemble),), ctoken=1))
    payload = real_env().random.bytes(size)
    slots, delays, left = asyncio.Semaphore(window), [], total // size
    done = asyncio.Event()
    begun, used = time.perf_counter(), time.process_time()
    confirmed = -1
    for entry in range(total // size):
        await slots.acquire()
        while any(bookies.queued_bytes(bookie) > MAX_BOOKIE_QUEUE_BYTES for bookie in ensemble):
            await asyncio.sleep(0.001)
        packet = add_packet(ledger, entry, confirmed, (entry + 1) * size, [payload], recovery=False)
        answers, sent = [], time.perf_counter()

        def answered(code, answers=answers, sent=sent, entry=entry):
            nonlocal left, confirmed
            assert code is Code.OK, code
            answers.append(code)
            if len(answers) == QUORUM:
                delays.append(time.perf_counter() - sent)
                confirmed = max(confirmed, entry - window)
                slots.release()
            if len(answers) == len(ensemble):
                left -= 1
                if not left:
                    done.set()

        for bookie in ensemble:
            bookies.add(bookie, ledger, entry, packet, answered)
    await done.wait()
    return time.perf_counter() - begun, time.process_time() - used, sorted(delays)


async def run(cluster: BookKeeperCluster, sizes: list[int], total: int, window: int) -> None:
    zookeeper = await ZooKeeper.connect(cluster.zookeeper.hosts, 6.0, real_env())
    bookies, ledgers = NetworkBookies(real_env(), zookeeper), ZooKeeperLedgers(zookeeper)
    try:
        await bookies.start()
        while len(bookies.writable()) < 3:
            await asyncio.sleep(0.05)
        await write(bookies, ledgers, WARM_UP_BYTES, 128 << 10, window)
        for size in sizes:
            seconds, used, delays = await write(bookies, ledgers, total, size, window)
            p50, p95 = (delays[int(len(delays) * part)] * 1000 for part in (0.5, 0.95))
            print(
                f"{size >> 10} KiB, {window} in flight, three bookies: {total / 1e6 / seconds:.0f} MB/s, "
                f"p50 {p50:.1f} ms, p95 {p95:.1f} ms, client {used / (total / 1e9):.2f} s of processor per GB"
            )
    finally:
        await bookies.close()
        await zookeeper.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kib", type=int, nargs="+", default=[256])
    parser.add_argument("--mib", type=int, default=1024, help="payload of each run")
    parser.add_argument("--window", type=int, default=32)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        server = ZooKeeperServer(Path(name) / "zookeeper").start()
        cluster = BookKeeperCluster(Path(name), server)
        try:
            cluster.start()
            sizes = [kib << 10 for kib in chosen.kib]
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(run(cluster, sizes, chosen.mib << 20, chosen.window))
        finally:
            cluster.kill()
            server.kill()


if __name__ == "__main__":
    main()
