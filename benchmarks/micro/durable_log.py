"""The durable log alone, on a real disk: `python -m benchmarks.micro.durable_log [DIRECTORY]`.

Prints one JSON object; takes about 20 s, and 1.5 GB of disk while it runs.

- `large_*`: frames of 1 MiB, two in flight, as a busy container sends them; first into fresh files, then into
  recycled ones.
- `small_*`: frames of 4 KiB, one at a time; idle, with the event loop busy in steps of 0.2 ms, and with large
  frames of another container on the same disk.
- `roll_over`: small frames that fill recycled files of 1 MiB: the cost of a new file.
- `raw_sync`: the same 4 KiB written and synced by this thread alone: the floor.
- `open`, `replay`: a log of 512 MiB, from the page cache.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from sarit.core.limits import MIB
from sarit.env.real import real_env
from sarit.log.local import LocalLogProvider
from sarit.process.limits import SWITCH_INTERVAL_SECONDS

if TYPE_CHECKING:
    from sarit.log.local import LocalLog

LARGE = memoryview(os.urandom(MIB))
SMALL = os.urandom(4096)
FRAMES_IN_FLIGHT = 2


class Appender:
    """Numbers frames and waits for them."""

    def __init__(self, log: LocalLog, number: int = 0) -> None:
        self.log = log
        self.number = number

    def append(self, payload: bytes | memoryview) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.number += 1
        self.log.append(
            self.number, [payload], lambda error: future.set_exception(error) if error else future.set_result(None)
        )
        return future

    async def back_to_back(self, payload: bytes | memoryview, count: int) -> float:
        """MB/s with FRAMES_IN_FLIGHT unacknowledged frames."""
        begun = time.perf_counter()
        flying: list[asyncio.Future[None]] = []
        for _ in range(count):
            flying.append(self.append(payload))
            if len(flying) == FRAMES_IN_FLIGHT:
                await flying.pop(0)
        for future in flying:
            await future
        return count * len(payload) / (time.perf_counter() - begun) / 1e6

    async def closed_loop(self, payload: bytes | memoryview, seconds: float) -> dict[str, float]:
        """Latencies in ms of frames sent one at a time."""
        times: list[float] = []
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            await self.append(payload)
            times.append(time.perf_counter() - begun)
            if self.number % 512 == 0:
                self.log.truncate(self.number - 512)
        return _percentiles(times)


def _percentiles(times: list[float]) -> dict[str, float]:
    times.sort()
    at = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
    result = {name: round(times[int(len(times) * share)] * 1e3, 3) for name, share in at.items()}
    return {**result, "max": round(times[-1] * 1e3, 3), "count": len(times)}


async def _keep_busy(step_seconds: float) -> None:
    while True:
        end = time.perf_counter() + step_seconds
        while time.perf_counter() < end:
            pass
        await asyncio.sleep(0)


def _raw_sync(directory: str, count: int) -> dict[str, float]:
    path = f"{directory}/raw"
    times = []
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(fd, bytes(4 * MIB), 0)
        os.fsync(fd)
        for at in range(count):
            begun = time.perf_counter()
            os.pwrite(fd, SMALL, at % 1024 * 4096)
            os.fdatasync(fd)
            times.append(time.perf_counter() - begun)
    finally:
        os.close(fd)
        Path(path).unlink()
    return _percentiles(times)


async def _measure(directory: str) -> dict[str, object]:
    env = real_env()
    logs = LocalLogProvider(env, directory)
    result: dict[str, object] = {"raw_sync_ms": _raw_sync(directory, 2000)}
    main = Appender(await logs.open(0))
    rates = []
    for _ in range(3):
        rates.append(round(await main.back_to_back(LARGE, 512)))
        main.log.truncate(main.number + 1)
        await asyncio.sleep(0.3)
    result["large_fresh_mb_s"], result["large_recycled_mb_s"] = rates[0], rates[1:]
    result["small_ms"] = await main.closed_loop(SMALL, 2)

    busy = asyncio.ensure_future(_keep_busy(0.0002))
    result["small_loop_busy_ms"] = await main.closed_loop(SMALL, 2)
    result["large_loop_busy_mb_s"] = round(await main.back_to_back(LARGE, 512))
    main.log.truncate(main.number + 1)
    busy.cancel()

    other = Appender(await logs.open(1))
    neighbour = asyncio.ensure_future(main.back_to_back(LARGE, 1024))
    result["small_beside_large_ms"] = await other.closed_loop(SMALL, 1)
    result["large_beside_small_mb_s"] = round(await neighbour)

    rolling = Appender(await LocalLogProvider(env, f"{directory}/small", MIB).open(0))
    await rolling.closed_loop(SMALL, 1)  # until there are spares
    result["roll_over_ms"] = await rolling.closed_loop(SMALL, 2)
    for appender in (main, other, rolling):
        await appender.log.close()

    main = Appender(await logs.open(0), main.number)
    main.log.truncate(main.number + 1)
    after = main.number
    await main.back_to_back(LARGE, 512)
    begun = time.perf_counter()
    log = await logs.open(0)
    opened = time.perf_counter()
    read = 0
    async for frame in log.replay(after):
        read += len(frame.payload)
    result["open_seconds"] = round(opened - begun, 3)
    result["replay_mb_s"] = round(read / (time.perf_counter() - opened) / 1e6)
    assert read == 512 * MIB
    await log.close()
    return result


def main() -> None:
    """Measure in a new directory under the one named, or here."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    directory = tempfile.mkdtemp(prefix="durable-log-", dir=sys.argv[1] if len(sys.argv) > 1 else ".")
    try:
        print(json.dumps(uvloop.run(_measure(directory)), indent=2))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
