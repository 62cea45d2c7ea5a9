"""Tier 1: the durable log of one container, used for recovery alone.

The unit is a *frame*: the operations that a container batched into one append.  The container numbers its frames
1, 2, 3 ... without gaps over its whole life, across epochs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sarit.env.ports import Buffer

FrameDone = Callable[[BaseException | None], None]


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as recovery reads it."""

    number: int
    epoch: int
    payload: memoryview


@dataclass(frozen=True, slots=True)
class LogHistory:
    """The history of a log as the index knows it.

    `identity`: that of the log; None when the index has never seen one.  `epoch`: the last one whose owner the index
    knows.  `frame`: the last one that the checkpoint covers; the log is needed above it only."""

    identity: bytes | None
    epoch: int
    frame: int


class DurableLog(Protocol):
    """An open log: one owner, one epoch.  All calls come from the event loop's thread."""

    @property
    def epoch(self) -> int:
        """The epoch of this owner of the log: higher than that of every earlier owner."""

    @property
    def identity(self) -> bytes:
        """Random, created with the log."""

    @property
    def frames_in_flight(self) -> int:
        """How many frames that are not durable its owner should have here, at most.

        More make batches smaller, so that they cost more; fewer leave the log idle."""

    def append(self, number: int, payload: Sequence[Buffer], done: FrameDone) -> None:
        """Queue a frame; `done(None)` on the loop once it is durable, in order of number.

        After the first failure the log is dead: every later `done` gets an error, too.  The owner must close it
        and recover by opening it again.
        """

    def replay(self, after: int) -> AsyncIterator[Frame]:
        """Durable frames with a number greater than `after`, in order.

        Consume it once, before the first append.  Raises Corrupt (damaged or missing frames), Unavailable.
        """

    def truncate(self, below: int) -> None:
        """Frames with a number less than `below` are not needed any more; their files are recycled in time."""

    @property
    def short_of_space(self) -> bool:
        """Whether the next file is due and the disk has no space for it: append only what frees space."""

    def backlog_bytes(self) -> int:
        """Bytes of the files that hold frames not truncated yet."""

    def release_recycled_files(self) -> None:
        """The disk is nearly full: remove the recycled files, except the one that the next opening needs."""

    async def close(self) -> None:
        """Write what is queued, end the threads, release the files."""


class ClaimedLog(Protocol):
    """A log whose earlier owners are fenced, and which is not changed yet.

    Between the claim and `open` its owner reads in the index what is known of the log: no earlier owner changes
    either of them any more."""

    async def open(self, history: LogHistory, *, accept_loss: bool = False) -> DurableLog:
        """Begin a new, durably recorded epoch.

        Raises Corrupt (it is missing, or of another history, or damaged above the checkpoint), Unavailable; the claim
        stays.  `accept_loss`: go on with what there is instead, and log a warning that says what is lost."""

    async def release(self) -> None:
        """Give up a claim that was not opened."""


# A claim awaits it when it knows the present owner, before it fences that one.  What it raises ends the claim.  A claim
# that was confirmed fails when another owner comes first.
Confirm = Callable[[], Awaitable[None]]


async def sole_owner() -> None:
    """`Confirm` of a log that nobody else opens: it always passes."""


class LogProvider(Protocol):
    """Opens logs."""

    async def claim(self, container: int) -> ClaimedLog:
        """Fence every earlier owner of the container's log.  Raises Unavailable."""


class ConfirmableLogs(Protocol):
    """A `LogProvider` whose logs other stores open, too."""

    async def claim(self, container: int, confirm: Confirm = sole_owner) -> ClaimedLog:
        """Claim the log of a container as `LogProvider` does, with `confirm` in between.  Raises also Fenced, and what
        `confirm` raises."""
