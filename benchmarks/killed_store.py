"""The row `killed-store`: one of three store processes of a node is killed under load, again and again."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import sarit
from benchmarks.harness import LoadFailed, SaritNode, load
from sarit.core.names import SegmentId, StreamName
from sarit.store.store import container_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STORES: Final = 3
SERVED_AGAIN_SECONDS: Final = 60.0
"""After this long the row fails: a hang, not a slow start."""
BETWEEN_KILLS_SECONDS: Final = 3.0


class _Acks:
    """One writer to one segment, an append at a time, and when each was acknowledged."""

    def __init__(self, controller: str, stream: str) -> None:
        self.times: list[float] = []
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(controller, stream), daemon=True)
        self._thread.start()

    def _run(self, controller: str, stream: str) -> None:
        try:
            with sarit.connect(controller) as client, client.writer(stream) as writer:
                while not self._stopped.is_set():
                    writer.write(b"x" * 100)
                    writer.flush()
                    self.times.append(time.monotonic())
        except BaseException as error:
            self._failure = error

    def stop(self) -> None:
        """End it; an error that a writer saw is raised here."""
        self._stopped.set()
        self._thread.join(SERVED_AGAIN_SECONDS)
        if self._failure is not None:
            raise self._failure

    def longest_gap(self, begin: float, end: float) -> float:
        """The longest time without an acknowledgement between two times, in seconds."""
        between = [begin, *(at for at in self.times if begin < at < end), end]
        return max(after - before for before, after in itertools.pairwise(between))


def killed_store(directory: Path, turns: int) -> dict[str, Any]:
    """Seconds from `kill -9` of a store to the first acknowledgement of its container, and the others' longest wait.

    One writer to each of the three containers; none of them may see an error."""
    waits: list[float] = []
    others: list[float] = []
    with SaritNode(directory, STORES, "--containers", str(STORES)).start(plain=True) as node:
        # With as many containers as stores, each store has the one of its number.
        streams = [_stream_in(container) for container in range(STORES)]
        load("sarit_admin", {"controller": node.endpoint, "streams": dict.fromkeys(streams, 1)})
        writers = [_Acks(node.endpoint, stream) for stream in streams]
        for turn in range(turns):
            victim = turn % STORES
            acks = writers[victim]
            _wait(lambda: all(writer.times for writer in writers))
            time.sleep(BETWEEN_KILLS_SECONDS)
            os.kill(node.child(f"store-{victim}"), signal.SIGKILL)
            killed = time.monotonic()
            # An acknowledgement that was on its way may still come: the first one of the new process is later.
            time.sleep(0.05)
            begin = len(acks.times)
            _wait(partial(_has_more, acks.times, begin))
            served = acks.times[begin]
            waits.append(served - killed)
            others += [writer.longest_gap(killed, served) for number, writer in enumerate(writers) if number != victim]
        for writer in writers:
            writer.stop()
    return {"back_s": waits, "back_s_worst": max(waits), "others_ms_worst": 1000 * max(others)}


def _stream_in(container: int) -> str:
    """A stream whose one segment is in a container."""
    names = (StreamName("bench", f"killed{number}") for number in itertools.count())
    return str(next(name for name in names if container_of(name.segment(SegmentId(0, 0)), STORES) == container))


def _has_more(times: list[float], than: int) -> bool:
    return len(times) > than


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SERVED_AGAIN_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise LoadFailed(f"a container was not served again within {SERVED_AGAIN_SECONDS:.0f} s")
        time.sleep(0.01)
