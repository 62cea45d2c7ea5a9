"""The speed of chunk writes and reads, and their effect on the log's disk.

`python -m benchmarks.micro.storage [--dir DIR] [--chunks N]` prints one JSON object.  DIR lies on the disk to measure.
The effect on the log: a thread writes 64 KiB and calls fdatasync every 2 ms on a preallocated file, as a log does,
alone and while chunks of 32 MiB are written, synced MiB by MiB and as a whole.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING

from sarit.env.real import real_env
from sarit.process.limits import SWITCH_INTERVAL_SECONDS
from sarit.storage import directory
from sarit.storage.limits import CHUNK_TARGET_BYTES
from sarit.storage.open import open_storage

if TYPE_CHECKING:
    from sarit.storage.port import ChunkStorage

MIB = 1 << 20
LOG_BYTES = 64 * MIB
LOG_WRITE_BYTES = 64 << 10
LOG_PAUSE_SECONDS = 0.002
PIECE_BYTES = 128 << 10


class LogLike:
    """A thread that loads the disk as a durable log does; `latencies` in seconds."""

    def __init__(self, path: str) -> None:
        self.latencies: list[float] = []
        self._stop = threading.Event()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        for at in range(0, LOG_BYTES, MIB):
            os.pwrite(self._fd, bytes(MIB), at)
        os.fsync(self._fd)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        data, at = os.urandom(LOG_WRITE_BYTES), 0
        while not self._stop.wait(LOG_PAUSE_SECONDS):
            begun = time.perf_counter()
            os.pwrite(self._fd, data, at)
            os.fdatasync(self._fd)
            self.latencies.append(time.perf_counter() - begun)
            at = (at + LOG_WRITE_BYTES) % LOG_BYTES

    def end(self) -> dict[str, float]:
        """Stop, and return percentiles in ms."""
        self._stop.set()
        self._thread.join()
        os.close(self._fd)
        ranked = sorted(self.latencies)
        return {
            name: round(ranked[min(int(len(ranked) * share), len(ranked) - 1)] * 1e3, 2)
            for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
        }


def _parts(length: int) -> list[bytes]:
    data = os.urandom(PIECE_BYTES)
    return [data] * (length // PIECE_BYTES)


async def _write(chunks: ChunkStorage, prefix: str, count: int, length: int, side_by_side: int) -> float:
    """MB/s."""
    parts = _parts(length)
    gate = asyncio.Semaphore(side_by_side)

    async def one(number: int) -> None:
        async with gate:
            await chunks.write(f"{prefix}/{number:06d}", parts)

    begun = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(count)))
    return round(count * length / (time.perf_counter() - begun) / 1e6, 1)


async def _read(chunks: ChunkStorage, prefix: str, count: int, chunk: int, length: int, side_by_side: int) -> float:
    """MB/s of whole chunks read `length` bytes at a time."""
    gate = asyncio.Semaphore(side_by_side)

    async def one(number: int, offset: int) -> None:
        async with gate:
            await chunks.read(f"{prefix}/{number:06d}", offset, length)

    begun = time.perf_counter()
    await asyncio.gather(*(one(number, at) for number in range(count) for at in range(0, chunk, length)))
    return round(count * chunk / (time.perf_counter() - begun) / 1e6, 1)


async def _delete(chunks: ChunkStorage, prefix: str, count: int) -> float:
    begun = time.perf_counter()
    for number in range(count):
        await chunks.delete(f"{prefix}/{number:06d}")
    return round(count / (time.perf_counter() - begun), 1)


async def _throughput(chunks: ChunkStorage, count: int) -> dict[str, float]:
    large = CHUNK_TARGET_BYTES
    return {
        "write 32 MiB, MB/s": await _write(chunks, "large", count, large, 1),
        "write 1 MiB, 4 side by side, MB/s": await _write(chunks, "small", count * 8, MIB, 4),
        "read 4 MiB pieces, MB/s": await _read(chunks, "large", count, large, 4 * MIB, 1),
        "read 4 MiB pieces, 3 side by side, MB/s": await _read(chunks, "large", count, large, 4 * MIB, 3),
        "read 128 KiB pieces, MB/s": await _read(chunks, "large", 2, large, 128 << 10, 1),
        "deletes/s": await _delete(chunks, "small", count * 8),
    }


async def _effect_on_the_log(root: str, count: int) -> dict[str, object]:
    report: dict[str, object] = {}
    for name, sync_bytes in (("alone", 0), ("synced MiB by MiB", MIB), ("synced at the end", CHUNK_TARGET_BYTES)):
        log = LogLike(f"{root}/log")
        await asyncio.sleep(1.0)
        log.latencies.clear()
        rate = 0.0
        if sync_bytes:
            chunks = await open_storage(f"file://{root}/effect", real_env())
            setattr(directory, "CHUNK_PIECE_BYTES", sync_bytes)  # noqa: B010
            rate = await _write(chunks, f"s{sync_bytes}", count, CHUNK_TARGET_BYTES, 1)
            setattr(directory, "CHUNK_PIECE_BYTES", MIB)  # noqa: B010
            await _delete(chunks, f"s{sync_bytes}", count)
            await chunks.close()
        else:
            await asyncio.sleep(2.0)
        report[name] = {"chunks MB/s": rate, "log fdatasync ms": log.end()}
        await asyncio.sleep(1.0)
    return report


async def main() -> dict[str, object]:
    """Run everything."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", default=".")
    parser.add_argument("--chunks", type=int, default=16)
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    report: dict[str, object] = {}
    with tempfile.TemporaryDirectory(dir=options.dir) as root:
        root = os.path.abspath(root)
        report["effect on the log"] = await _effect_on_the_log(root, options.chunks)
        for name, url in (("directory", f"file://{root}/chunks"), ("obstore memory", "memory://")):
            chunks = await open_storage(url, real_env())
            report[name] = await _throughput(chunks, options.chunks)
            await chunks.close()
    return report


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main()), indent=2))
