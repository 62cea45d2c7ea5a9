"""The durable log and the index that all stores of a fleet share, each as one process sees it.

They outlive the processes, and fence by epoch.  When a process dies, its handles stop working.  A frame that it had
sent may still reach the log, as long as no other owner has claimed it; after a power cut only what had left the machine
does.
"""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt, Fenced, Unavailable
from sarit.core.limits import LOG_IDENTITY_BYTES
from sarit.log.limits import LOG_FRAMES_IN_FLIGHT
from sarit.log.memory import StoredLog
from sarit.log.port import Frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sarit.env.ports import Buffer
    from sarit.index.memory import MemoryIndex, MemoryIndexes
    from sarit.log.port import Confirm, FrameDone, LogHistory

_NOTHING: Final = -1


@dataclass(slots=True)
class SharedLog:
    """The durable part of one container's log.  `claims`: rises with each claim, as an epoch does."""

    stored: StoredLog = field(default_factory=lambda: StoredLog(b""))
    claims: int = 0
    truncated: int = _NOTHING


class SharedLogs:
    """All logs of a fleet.  `delay()`: the seconds that a call takes; `fails()`: whether an append fails."""

    def __init__(self, delay: Callable[[], float], fails: Callable[[], bool]) -> None:
        self.delay = delay
        self.fails = fails
        # Of the log: frames arrive although the process that sent them stands still.
        self.context = contextvars.copy_context()
        self._logs: dict[int, SharedLog] = {}

    def of(self, container: int) -> SharedLog:
        """The log of a container."""
        return self._logs.setdefault(container, SharedLog())


class ProcessLogs:
    """`LogProvider` of one process."""

    def __init__(self, logs: SharedLogs) -> None:
        self.logs = logs
        self.dead = False
        # When its machine lost its power, in seconds of virtual time: what had not left it by then is lost.
        self.lost_from = inf

    def die(self) -> None:
        """The process died."""
        self.dead = True

    async def claim(self, container: int, confirm: Confirm | None = None) -> ProcessClaim:
        """See `LogProvider`, and `Confirm`."""
        await self.call()
        log = self.logs.of(container)
        known = log.claims
        if confirm is not None:
            await confirm()
            await self.call()
        if log.claims != known:
            raise Fenced("another owner has claimed the log")
        log.claims += 1
        return ProcessClaim(self, log, log.claims)

    async def call(self) -> None:
        """A call to the log: it takes time, and fails when the process has died."""
        await asyncio.sleep(self.logs.delay())
        if self.dead:
            raise Unavailable("the process is dead")


class ProcessClaim:
    """See `ClaimedLog`: a later claim wins, whichever of the two is opened first."""

    def __init__(self, process: ProcessLogs, log: SharedLog, claim: int) -> None:
        self._process = process
        self._log = log
        self._claim = claim

    async def open(self, history: LogHistory, *, accept_loss: bool = False) -> ProcessLog:
        """See `ClaimedLog`."""
        await self._process.call()
        stored = self._log.stored
        if self._log.claims != self._claim:
            raise Fenced("another owner has claimed the log")
        if history.identity is None and stored.frames and self._log.truncated != _NOTHING:
            raise Corrupt("the index is missing")
        if history.identity is not None and history.identity != stored.identity:
            raise Corrupt("a log of another history")
        stored.epoch += 1
        stored.identity = stored.identity or stored.epoch.to_bytes(LOG_IDENTITY_BYTES, "big")
        return ProcessLog(self._process, self._log, self._claim)

    async def release(self) -> None:
        """See `ClaimedLog`."""


class ProcessLog:
    """See `DurableLog`."""

    def __init__(self, process: ProcessLogs, log: SharedLog, claim: int) -> None:
        self._process = process
        self._log = log
        self._stored = log.stored
        self._claim = claim
        self._epoch = log.stored.epoch
        self._failure: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._arrives = 0.0

    @property
    def epoch(self) -> int:
        """See `DurableLog`."""
        return self._epoch

    @property
    def identity(self) -> bytes:
        """See `DurableLog`."""
        return self._stored.identity

    def append(self, number: int, payload: Sequence[Buffer], done: FrameDone) -> None:
        """See `DurableLog`."""
        frame = Frame(number, self._epoch, memoryview(b"".join(payload)))
        # In order: one never passes an earlier one.
        self._arrives = max(self._arrives, self._loop.time() + self._process.logs.delay())
        self._loop.call_at(self._arrives, self._arrive, frame, done, context=self._process.logs.context)

    def _arrive(self, frame: Frame, done: FrameDone) -> None:
        if self._loop.time() >= self._process.lost_from:
            return
        if self._failure is None:
            if self._log.claims != self._claim:
                self._failure = Fenced("another owner has claimed the log")
            elif self._process.logs.fails():
                self._failure = Unavailable("the log failed")
            else:
                self._stored.frames[frame.number] = frame
        answered = max(self._arrives, self._loop.time() + self._process.logs.delay())
        self._arrives = answered
        self._loop.call_at(answered, self._answer, done, self._failure, context=self._context)

    def _answer(self, done: FrameDone, failure: Exception | None) -> None:
        if not self._process.dead:
            done(failure)

    async def replay(self, after: int) -> AsyncIterator[Frame]:
        """See `DurableLog`."""
        await self._process.call()
        frames, truncated = self._stored.frames, self._log.truncated
        if truncated > after + 1:
            raise Corrupt(f"frames below {truncated} are truncated, and those above {after} are needed")
        # All at once: a newer owner may truncate meanwhile, and what it frees can still be read for minutes.
        for frame in [frames[number] for number in sorted(frames) if number > after]:
            yield frame

    def truncate(self, below: int) -> None:
        """See `DurableLog`."""
        if self._process.dead or self._log.claims != self._claim:
            return
        self._log.truncated = max(self._log.truncated, below)
        self._stored.truncate(below)

    @property
    def frames_in_flight(self) -> int:
        """See `DurableLog`."""
        return LOG_FRAMES_IN_FLIGHT

    @property
    def short_of_space(self) -> bool:
        """See `DurableLog`: never."""
        return False

    def backlog_bytes(self) -> int:
        """See `DurableLog`."""
        return self._stored.backlog_bytes()

    def release_recycled_files(self) -> None:
        """See `DurableLog`: there are none."""

    async def close(self) -> None:
        """See `DurableLog`: what is queued arrives first."""
        await asyncio.sleep(max(0.0, self._arrives - self._loop.time()))
        self._failure = self._failure or Unavailable("the log is closed")


class ProcessIndexes:
    """`IndexProvider` of one process."""

    def __init__(self, indexes: MemoryIndexes) -> None:
        self._indexes = indexes
        self._open: list[MemoryIndex] = []
        self._dead = False

    def die(self) -> None:
        """The process died."""
        self._dead = True
        for index in self._open:
            index.cut_off("lost: its process died")

    async def open(self, container: int) -> MemoryIndex:
        """See `IndexProvider`."""
        index = await self._indexes.open(container)
        if self._dead:
            index.cut_off("lost: its process died")
        self._open.append(index)
        return index
