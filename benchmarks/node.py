"""The node that benchmarks run: `sarit standalone` as it is, and on SIGUSR1 a report of its flushers.

`python -m benchmarks.node REPORT.json standalone ...` takes the arguments of `sarit`.  The report holds the duration of
every index commit (one a checkpoint) from `FlushStatistics`, and when each whole cycle of a flusher (chunks, then
commit) began and ended, on the clock that all processes share.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.loads.open_loop import now
from sarit.cli.main import main
from sarit.log.bookkeeper import open_log as owned
from sarit.process import standalone
from sarit.store.tiering.flusher import Flusher

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from sarit.env.ports import Env
    from sarit.process.observation.metrics import Metrics
    from sarit.process.ownership.claims import DirectoryClaim
    from sarit.process.security import Security
    from sarit.process.settings import NodeConfig

_flushers: list[Flusher] = []
_cycles: list[tuple[float, float]] = []
_plain_open = standalone.open_node
_plain_run = Flusher.run
_plain_checkpoint = Flusher.checkpoint


async def _run(self: Flusher) -> None:
    _flushers.append(self)
    await _plain_run(self)


async def _checkpoint(self: Flusher) -> bool:
    start = now()
    done = await _plain_checkpoint(self)
    if done:
        _cycles.append((start, now()))
    return done


def _report(path: str) -> None:
    statistics = [flusher.statistics for flusher in _flushers]
    found: dict[str, Any] = {
        "commit_seconds": [seconds for one in statistics for seconds in one.commit_seconds],
        "checkpoints": sum(one.checkpoints for one in statistics),
        "chunks": sum(one.chunks for one in statistics),
        "chunk_bytes": sum(one.chunk_bytes for one in statistics),
        "storage_errors": sum(one.storage_errors for one in statistics),
        "cycles": _cycles,
    }
    with open(path + ".new", "w") as file:
        json.dump(found, file)
    os.rename(path + ".new", path)


def watch(path: str) -> None:
    """Let nodes started from here on answer SIGUSR1 with a report in `path`."""

    async def open_node(
        config: NodeConfig, env: Env, claim: DirectoryClaim | None = None, metrics: Metrics | None = None,
        security: Security | None = None, closing: AsyncExitStack | None = None,
    ) -> standalone.Node:  # fmt: skip
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _report, path)
        return await _plain_open(config, env, claim, metrics, security, closing)

    standalone.open_node = open_node
    Flusher.run = _run  # type: ignore[method-assign]
    Flusher.checkpoint = _checkpoint  # type: ignore[method-assign]


if __name__ == "__main__":
    # For the rows of a log on BookKeeper: other numbers of frames in flight than its own.
    if frames := int(os.environ.get("SARIT_BENCH_LEDGER_FRAMES", "0")):
        owned.BookKeeperLog.frames_in_flight = frames  # type: ignore[misc]
        owned.LEDGER_FRAMES_IN_FLIGHT = frames  # type: ignore[attr-defined]
    watch(sys.argv.pop(1))
    main()
