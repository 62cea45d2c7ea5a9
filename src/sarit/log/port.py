"""Tier 1: the durable log of one container, used for recovery alone.

The unit is a *frame*: the operations a container batched into one append, numbered by the
container 1, 2, 3 ... without gaps over the life of the container (epochs included).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sarit.env.ports import Buffer

FrameDone = Callable[[BaseException | None], None]


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as recovery finds it."""

    number: int
    epoch: int
    payload: memoryview


class DurableLog(Protocol):
    """An open log: one owner, one epoch.  All calls come from the event loop's thread."""

    @property
    def epoch(self) -> int:
        """This owner's epoch: higher than that of every owner before."""

    def append(self, number: int, payload: Sequence[Buffer], done: FrameDone) -> None:
        """Queue a frame; `done(None)` on the loop once it is durable, in order of number.

        After the first failure every later `done` gets an error too, and the log is dead: its
        owner must close it and recover by opening again.
        """

    def replay(self, after: int) -> AsyncIterator[Frame]:
        """Durable frames with a number greater than `after`, in order.

        To be consumed once, before the first append.  Raises Corrupt for rot or a gap.
        """

    def truncate(self, below: int) -> None:
        """Frames with a number less than `below` are not needed any more.  Best effort, in time."""

    @property
    def short_of_space(self) -> bool:
        """Whether the disk has no room to go on in soon: only what gives room back should be appended."""

    def backlog_bytes(self) -> int:
        """Bytes held by frames not truncated yet."""

    def release_recycled_files(self) -> None:
        """The disk is nearly full: give back what is kept for later, but not what opening again needs."""

    async def close(self) -> None:
        """Finish what is queued, end the thread, release the files."""


class LogProvider(Protocol):
    """Opens logs: opening fences every earlier owner."""

    async def open(self, container: int) -> DurableLog:
        """Open the container's log in a new, durably recorded epoch.  Raises Corrupt, Unavailable."""
