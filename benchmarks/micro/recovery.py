"""Recovery of many segments after a kill: `python -m benchmarks.micro.recovery --segments 100000`.

A process appends one event to every segment, checkpoints, appends one more to each, and ends without a checkpoint.
A second process recovers: every segment, and the number of its writer, must be read from the index.  It prints the
processor time and the time that took, in JSON.  Real files, real SQLite; the store without its servers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sarit.env.real import real_env
from sarit.index.sqlite import SqliteIndexProvider
from sarit.log.local import LocalLogProvider
from sarit.storage.open import open_storage
from sarit.store.container.writer_session import WriterSession
from sarit.store.store import SegmentStore, StoreLimits
from sarit.store.tiering.checkpoint import FlushLimits
from sarit.wire.frames import Append

_ROUND = 2000
_PAYLOAD = b"x" * 100


class _Sink:
    """Takes the replies to appends; none is examined."""

    def acknowledged(self, session: WriterSession, append: Append, previous: int, end_offset: int) -> None:
        return

    def refused(self, session: WriterSession, append: Append, error: BaseException) -> None:
        raise error

    def segment_missing(self, session: WriterSession) -> None:
        session.close()

    def moved(self, session: WriterSession) -> None:
        """Never in this load."""


def _name(number: int) -> str:
    return f"many/stream{number}/0.#epoch.0"


async def _store(directory: str, containers: int, *, checkpoints: bool) -> SegmentStore:
    env = real_env()
    env.files.make_dirs(f"{directory}/index")
    interval = 0.2 if checkpoints else 3600.0
    limits = StoreLimits(containers=containers, flush=FlushLimits(interval_seconds=interval))
    store = SegmentStore(
        env, LocalLogProvider(env, f"{directory}/log"), SqliteIndexProvider(env, f"{directory}/index"),
        await open_storage(f"file://{directory}/chunks", env), limits, directory,
    )  # fmt: skip
    await store.start()
    return store


async def _append_to_all(store: SegmentStore, segments: int, event: int) -> None:
    for first in range(0, segments, _ROUND):
        names = [_name(number) for number in range(first, min(first + _ROUND, segments))]
        if event == 1:
            await asyncio.gather(*(store.container(name).create(name, fresh=True) for name in names))
        sessions = []
        for number, name in enumerate(names, first):
            writer = number.to_bytes(16, "big")
            session = WriterSession(writer, _Sink())
            await store.container(name).set_up_writer(name, session)
            session.append(Append(writer, [_PAYLOAD], len(_PAYLOAD), 1, event, 0), None)
            sessions.append(session)
        for container in store.serving():
            await container.group_commit.wait_durable()
        for session in sessions:
            session.close()


async def _fill(directory: str, containers: int, segments: int) -> None:
    store = await _store(directory, containers, checkpoints=True)
    await _append_to_all(store, segments, 1)
    await store.stop()
    store = await _store(directory, containers, checkpoints=False)
    await _append_to_all(store, segments, 2)
    sys.stdout.flush()
    os._exit(0)  # no checkpoint: the log has the second round


async def _recover(directory: str, containers: int, segments: int) -> None:
    began, cpu = time.perf_counter(), time.process_time()
    store = await _store(directory, containers, checkpoints=False)
    spent, took = time.process_time() - cpu, time.perf_counter() - began
    lengths = sum(segment.length for one in store.serving() for segment in one.state.segments.values())
    assert lengths == 2 * segments * len(_PAYLOAD), lengths
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        json.dumps({"segments": segments, "cpu_s": round(spent, 2), "s": round(took, 2), "peak_mb": peak}), flush=True
    )
    os._exit(0)


def main() -> None:
    """Fill, recover, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro.recovery")
    parser.add_argument("--segments", type=int, default=48_000)
    parser.add_argument("--containers", type=int, default=4)
    parser.add_argument("--dir", type=Path, help="a directory to fill, or one that was filled before")
    parser.add_argument("--only", choices=("fill", "recover"), help="one of the two steps, in this process")
    options = parser.parse_args()
    if options.only is not None:
        step = _fill if options.only == "fill" else _recover
        asyncio.run(step(str(options.dir), options.containers, options.segments))
    directory = options.dir or Path(tempfile.mkdtemp(prefix="recovery"))
    try:
        for step_name in ("fill", "recover"):
            arguments = ["--segments", str(options.segments), "--containers", str(options.containers)]
            command = [sys.executable, "-m", "benchmarks.micro.recovery", *arguments]
            subprocess.run([*command, "--dir", str(directory), "--only", step_name], check=True)
    finally:
        if options.dir is None:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
