"""The port of tier 1: the durable log of a container, which only recovery reads.

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

    `identity`: the log's identity; None when the index has never known a log.  `epoch`: the epoch of the last owner
    that the index knows.  `frame`: the last frame that the checkpoint covers; the log is needed only above it."""

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
        """The random identity of the log, created with it."""

    @property
    def frames_in_flight(self) -> int:
        """How many frames that are not durable yet the owner should have in this log, at most.

        More would make batches smaller, which cost more; fewer would leave the log idle."""

    def append(self, number: int, payload: Sequence[Buffer], done: FrameDone) -> None:
        """Queue a frame.  `done(None)` is called on the event loop once it is durable, in order of number.

        After the first failure the log is dead: every later `done` gets an error.  The owner must close the log, and
        recover by opening it again."""

    def replay(self, after: int) -> AsyncIterator[Frame]:
        """Yield the durable frames with a number greater than `after`, in order.

        Consume it once, before the first append.  Raises Corrupt (damaged or missing frames), Unavailable."""

    def truncate(self, below: int) -> None:
        """Release the frames with a number less than `below`; their files are recycled later."""

    @property
    def short_of_space(self) -> bool:
        """Whether the disk has no space for the next file, so that only operations that free space may be appended."""

    def backlog_bytes(self) -> int:
        """Return the bytes of the files that hold frames not truncated yet."""

    def release_recycled_files(self) -> None:
        """Remove the recycled files on a nearly full disk, except the one that the next opening needs."""

    async def close(self) -> None:
        """Write the queued frames, end the threads, and release the files."""


class ClaimedLog(Protocol):
    """A log whose earlier owners are fenced, and which is not changed yet.

    Before `open` the owner reads in the index what the log must hold: no earlier owner changes either any more."""

    async def open(self, history: LogHistory, *, accept_loss: bool = False) -> DurableLog:
        """Begin a new, durably recorded epoch.

        Raises Corrupt (missing, of another history, or damaged above the checkpoint), Unavailable; the claim stays.
        `accept_loss`: instead of Corrupt, open the log with what is left, and log a warning that says what is lost."""

    async def release(self) -> None:
        """Release a claim that was not opened."""


# A claim awaits this function after it has read who the present owner is, and before it fences that owner.  If the
# function raises, the claim ends.  A confirmed claim fails if another owner claims the log first.
Confirm = Callable[[], Awaitable[None]]


async def sole_owner() -> None:
    """Confirm every claim: the `Confirm` of a log that nobody else opens."""


class LogProvider(Protocol):
    """A provider of the logs of containers."""

    async def claim(self, container: int) -> ClaimedLog:
        """Fence every earlier owner of the container's log.  Raises Unavailable."""


class ConfirmableLogs(Protocol):
    """A `LogProvider` whose logs other stores may also open."""

    async def claim(self, container: int, confirm: Confirm = sole_owner) -> ClaimedLog:
        """Claim the log of a container as `LogProvider` does, with `confirm` in between.

        Raises also Fenced, and what `confirm` raises."""
