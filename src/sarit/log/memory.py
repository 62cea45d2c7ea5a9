"""A durable log in memory: acknowledged frames survive the log object, as they would on a disk.

This is the fake of `log/local.py` for tests of the layers above the log.  Fields of the provider switch faults on.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.core.errors import Corrupt, Fenced, Unavailable
from sarit.core.limits import LOG_IDENTITY_BYTES
from sarit.log.limits import LOG_FRAMES_IN_FLIGHT
from sarit.log.port import DurableLog, Frame, FrameDone, LogHistory, sole_owner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from sarit.env.ports import Buffer
    from sarit.log.port import Confirm


@dataclass(slots=True)
class StoredLog:
    """The durable part of one container's log."""

    identity: bytes
    epoch: int = 0
    frames: dict[int, Frame] = field(default_factory=dict)

    def truncate(self, below: int) -> None:
        """Drop the frames with a number less than `below`."""
        for number in [number for number in self.frames if number < below]:
            del self.frames[number]

    def backlog_bytes(self) -> int:
        """Return the bytes of the frames that are not truncated."""
        return sum(len(frame.payload) for frame in self.frames.values())


class MemoryLogProvider:
    """The logs in memory, by container.  `delay_seconds`: how long a frame takes to become durable."""

    def __init__(self, delay_seconds: float = 0.0) -> None:
        self.stored: dict[int, StoredLog] = {}
        self.created = 0
        self.delay_seconds = delay_seconds
        self.fail_appends = False
        self.hold_appends = False

    async def claim(self, container: int, confirm: Confirm = sole_owner) -> MemoryClaim:
        """Fence earlier owners, after `confirm`."""
        await confirm()
        stored = self.stored.get(container)
        if stored is not None:
            stored.epoch += 1
        return MemoryClaim(self, container)

    async def open(self, container: int) -> DurableLog:
        """Claim and open a log whose owner has no index."""
        return await (await self.claim(container)).open(None)


class MemoryClaim:
    """A claimed log in memory."""

    def __init__(self, provider: MemoryLogProvider, container: int) -> None:
        self._provider = provider
        self._container = container

    async def open(self, history: LogHistory | None, *, accept_loss: bool = False) -> DurableLog:
        """Open the claimed log.  Raises Corrupt when the log is missing, or of another history."""
        logs, container = self._provider.stored, self._container
        stored = logs.get(container)
        problem = None if history is None else _problem(stored, history)
        if problem is not None and not accept_loss:
            raise Corrupt(problem)
        if stored is None or problem is not None:
            self._provider.created += 1
            identity = self._provider.created.to_bytes(LOG_IDENTITY_BYTES, "big")
            epoch = max(stored.epoch if stored else 0, history.epoch if history else 0)
            stored = logs[container] = StoredLog(identity, epoch)
        stored.epoch += 1
        return MemoryLog(self._provider, stored, stored.epoch)

    async def release(self) -> None:
        """Do nothing: a claim holds nothing."""


def _problem(stored: StoredLog | None, history: LogHistory) -> str | None:
    if history.identity is None:
        return "the index is missing" if stored is not None and stored.frames else None
    if stored is None:
        return "the durable log is missing"
    return None if stored.identity == history.identity else "a log of another history"


class MemoryLog:
    """An open log in memory."""

    def __init__(self, provider: MemoryLogProvider, stored: StoredLog, epoch: int) -> None:
        self._provider = provider
        self._stored = stored
        self._epoch = epoch
        self._dead = False
        self._loop = asyncio.get_running_loop()

    @property
    def epoch(self) -> int:
        """The epoch of this owner of the log."""
        return self._epoch

    @property
    def identity(self) -> bytes:
        return self._stored.identity

    def append(self, number: int, payload: Sequence[Buffer], done: FrameDone) -> None:
        """Make a frame durable after the provider's delay, unless a fault is switched on."""
        frame = Frame(number, self._epoch, memoryview(b"".join(payload)))
        self._loop.call_later(self._provider.delay_seconds, self._finish, frame, done)

    def _finish(self, frame: Frame, done: FrameDone) -> None:
        if self._provider.hold_appends:
            # Poll every millisecond, until the test releases the held frames.
            self._loop.call_later(0.001, self._finish, frame, done)
            return
        # Check the owner when the frame would reach the disk, since a later owner may have opened the log meanwhile.
        if self._stored.epoch != self._epoch:
            self._dead = True
            done(Fenced(f"epoch {self._stored.epoch} owns the log"))
        elif self._dead or self._provider.fail_appends:
            self._dead = True
            done(Unavailable("the log failed"))
        else:
            self._stored.frames[frame.number] = frame
            done(None)

    async def replay(self, after: int) -> AsyncIterator[Frame]:
        """Yield the frames above `after`, by number."""
        for number in sorted(self._stored.frames):
            if number > after:
                yield self._stored.frames[number]

    def truncate(self, below: int) -> None:
        self._stored.truncate(below)

    @property
    def frames_in_flight(self) -> int:
        return LOG_FRAMES_IN_FLIGHT

    @property
    def short_of_space(self) -> bool:
        """Return false, since the memory is not bounded."""
        return False

    def backlog_bytes(self) -> int:
        return self._stored.backlog_bytes()

    def release_recycled_files(self) -> None:
        """Do nothing: a log in memory has no files."""

    async def close(self) -> None:
        """Let later appends fail."""
        self._dead = True
