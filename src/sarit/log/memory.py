"""A durable log in memory: acknowledged frames survive the log object, as they would on a disk.

The fake of `log/local.py` for tests of the layers above the log.  Faults are switched on by the fields of the provider.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.core.errors import Fenced, Unavailable
from sarit.log.port import DurableLog, Frame, FrameDone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from sarit.env.ports import Buffer


@dataclass(slots=True)
class StoredLog:
    """The durable part of one container's log."""

    epoch: int = 0
    frames: dict[int, Frame] = field(default_factory=dict)


class MemoryLogProvider:
    """Logs by container; `delay_seconds` is how long a frame takes to become durable."""

    def __init__(self, delay_seconds: float = 0.0) -> None:
        self.stored: dict[int, StoredLog] = {}
        self.delay_seconds = delay_seconds
        self.fail_appends = False
        self.hold_appends = False

    async def open(self, container: int) -> DurableLog:
        """Fence earlier owners and open."""
        stored = self.stored.setdefault(container, StoredLog())
        stored.epoch += 1
        return MemoryLog(self, stored, stored.epoch)


class MemoryLog:
    """An open log."""

    def __init__(self, provider: MemoryLogProvider, stored: StoredLog, epoch: int) -> None:
        self._provider = provider
        self._stored = stored
        self._epoch = epoch
        self._dead = False
        self._loop = asyncio.get_running_loop()

    @property
    def epoch(self) -> int:
        """This owner's epoch."""
        return self._epoch

    def append(self, number: int, payload: Sequence[Buffer], done: FrameDone) -> None:
        """Durable after the provider's delay, unless a fault is switched on."""
        frame = Frame(number, self._epoch, memoryview(b"".join(payload)))
        self._loop.call_later(self._provider.delay_seconds, self._finish, frame, done)

    def _finish(self, frame: Frame, done: FrameDone) -> None:
        if self._provider.hold_appends:
            # Seconds.  Until the test releases the held frames.
            self._loop.call_later(0.001, self._finish, frame, done)
            return
        # Checked when the frame would reach the disk, not when it is queued: a later owner may have opened meanwhile.
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
        """Frames above `after`, by number."""
        for number in sorted(self._stored.frames):
            if number > after:
                yield self._stored.frames[number]

    def truncate(self, below: int) -> None:
        """Drop frames with a number less than `below`."""
        for number in [number for number in self._stored.frames if number < below]:
            del self._stored.frames[number]

    @property
    def short_of_space(self) -> bool:
        """See `DurableLog`: never."""
        return False

    def backlog_bytes(self) -> int:
        """Bytes of the frames that are not truncated."""
        return sum(len(frame.payload) for frame in self._stored.frames.values())

    def release_recycled_files(self) -> None:
        """See `DurableLog`: there are none."""

    async def close(self) -> None:
        """Later appends fail."""
        self._dead = True
