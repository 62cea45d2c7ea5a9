"""Long turns of the event loop: `python -m benchmarks.loads.turns '{"directory": ..., "segments": 50000, ...}'`.

A segment store on real files and SQLite, without its servers.  Appends go to all segments in turn, at a fixed rate in
open loop.  The rate is such that each checkpoint finds all segments dirty.  One line of JSON: the latency of appends
from the moment they were due, the longest turn of the loop, how many took more than 20 ms, and what ran in the worst.
The load runs on the same loop, in pieces of PIECE appends.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Final

import numpy as np

from benchmarks import turns
from benchmarks.loads.open_loop import now, percentiles
from sarit.env.real import real_env
from sarit.index.sqlite import SqliteIndexProvider
from sarit.log.local import LocalLogProvider
from sarit.process.limits import SWITCH_INTERVAL_SECONDS
from sarit.process.observation.gc_scheduler import GcScheduler
from sarit.storage.open import open_storage
from sarit.store.container.writer_session import WriterSession
from sarit.store.store import SegmentStore, StoreLimits
from sarit.store.tiering.checkpoint import FlushLimits
from sarit.wire.frames import Append

PAYLOAD: Final = b"x" * 100
PIECE: Final = 32
CHECKPOINT_SECONDS: Final = 5.0


class Sink:
    """Notes when each append was acknowledged."""

    def __init__(self) -> None:
        self.due: dict[tuple[bytes, int], float] = {}
        self.latencies: list[float] = []

    def acknowledged(self, session: WriterSession, append: Append, previous: int, end_offset: int) -> None:
        """See `ReplySink`."""
        due = self.due.pop((append.writer_id, append.last_event_number), None)
        if due is not None:
            self.latencies.append(now() - due)

    def refused(self, session: WriterSession, append: Append, error: BaseException) -> None:
        """See `ReplySink`."""
        raise error

    def segment_missing(self, session: WriterSession) -> None:
        """See `ReplySink`."""
        session.close()

    def moved(self, session: WriterSession) -> None:
        """Never in this load."""


async def _set_up(store: SegmentStore, sink: Sink, segments: int) -> list[WriterSession]:
    sessions = []

    async def one(number: int) -> WriterSession:
        name = f"many/stream{number}/0.#epoch.0"
        container = store.container(name)
        await container.create(name, fresh=True)
        session = WriterSession(number.to_bytes(16, "big"), sink)
        await container.set_up_writer(name, session)
        return session

    for first in range(0, segments, 1000):
        sessions += await asyncio.gather(*(one(number) for number in range(first, min(first + 1000, segments))))
    return sessions


async def _append(sessions: list[WriterSession], sink: Sink, rate: float, seconds: float, *, count: bool) -> None:
    """Open loop: append k is due at k / rate."""
    start, sent = now(), 0
    numbers = [session.last for session in sessions]
    while (passed := now() - start) < seconds:
        last = min(int(passed * rate), sent + PIECE)
        while sent < last:
            at = sent % len(sessions)
            session = sessions[at]
            numbers[at] = max(numbers[at], 0) + 1
            if count:
                sink.due[session.writer, numbers[at]] = start + sent / rate
            session.append(Append(session.writer, [PAYLOAD], len(PAYLOAD), 1, numbers[at], 0), None)
            sent += 1
        await asyncio.sleep(0 if sent < int((now() - start) * rate) else 0.001)


async def main(options: dict[str, Any]) -> None:
    """One run."""
    directory, segments, seconds = options["directory"], int(options["segments"]), float(options["seconds"])
    env = real_env()
    env.files.make_dirs(f"{directory}/index")
    limits = StoreLimits(flush=FlushLimits(interval_seconds=CHECKPOINT_SECONDS))
    store = SegmentStore(
        env, LocalLogProvider(env, f"{directory}/log"), SqliteIndexProvider(env, f"{directory}/index"),
        await open_storage(f"file://{directory}/chunks", env), limits, directory,
    )  # fmt: skip
    await store.start()
    GcScheduler().start()
    sink = Sink()
    sessions = await _set_up(store, sink, segments)
    rate = segments / CHECKPOINT_SECONDS
    # The first checkpoints write the creations, and those of appends to segments that are new.
    await _append(sessions, sink, rate, 2 * CHECKPOINT_SECONDS, count=False)
    checkpoints = sum(opened.flusher.statistics.checkpoints for opened in store.opened())
    loop = asyncio.get_running_loop()
    assert isinstance(loop, turns.TurnLoop)
    loop.begin()
    await _append(sessions, sink, rate, seconds, count=True)
    assert loop.turns is not None
    found = loop.turns.report()
    loop.turns = None
    for container in store.serving():
        await container.group_commit.wait_durable()
    assert not sink.due, f"{len(sink.due)} appends have no acknowledgement"
    dirty = max(len(one.state.segments) for one in store.serving())
    checkpoints = sum(opened.flusher.statistics.checkpoints for opened in store.opened()) - checkpoints
    found |= {"segments": segments, "appends_per_s": round(rate), "checkpoints": checkpoints, "largest": dirty}
    found["append"] = percentiles(np.array(sink.latencies))
    print(json.dumps(found), flush=True)
    store.skip_flush()
    await store.stop()


if __name__ == "__main__":
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    turns.run(main(json.loads(sys.argv[1])))
