"""Checks whether a log is the one that the index knows.

The index holds the log's identity, the epoch of its last owner and the frame of the last checkpoint.  So a missing log,
the log of another node, a log of another history, and an older copy are recognized before anything is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sarit.log.port import LogHistory
    from sarit.log.records import LogFile


@dataclass(frozen=True, slots=True)
class UnreadableFile:
    """A log file whose header and its copy are damaged."""

    sequence: int
    path: str


@dataclass(slots=True)
class Listing:
    """The files of a log's directory, sorted by sequence.

    `logs`: the readable log files.  `foreign`: for each file of another log, the reason why it is one."""

    logs: list[LogFile] = field(default_factory=list)
    recycled: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    unreadable: list[UnreadableFile] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    last_sequence: int = 0

    @property
    def last_epoch(self) -> int:
        """The highest epoch of a readable log file; 0 when there is none."""
        return max((log.header.epoch for log in self.logs), default=0)

    @property
    def identity(self) -> bytes | None:
        """The identity of the log; None when there is no readable log file."""
        return self.logs[-1].header.identity if self.logs else None

    @property
    def any_files(self) -> bool:
        """Whether there is a log file, readable or not."""
        return bool(self.logs or self.unreadable)

    def needed_unreadable(self, covered: int) -> list[UnreadableFile]:
        """Return the unreadable files that may hold frames above `covered`.

        A file holds no such frame when a later file begins with frame `covered` + 1 or an earlier one."""
        begins = [log.header.sequence for log in self.logs if log.first is not None and log.first <= covered + 1]
        below = max(begins, default=0)
        return [file for file in self.unreadable if file.sequence >= below]


def history_problem(directory: str, listing: Listing, reached: int, history: LogHistory) -> str | None:
    """Return why the log in `directory` is not the one that the index knows; None when it is.

    `reached`: the highest frame of which the log has a trace."""
    if history.identity is None:
        if reached == 0 and not listing.unreadable:
            return None  # log and index are both new
        return (
            f"{directory} holds a durable log, and the index has never seen one: the index is missing or another one; "
            "put it back"
        )
    if not listing.any_files:
        return f"the durable log is missing: {directory} holds no log file; is its disk mounted?"
    if unreadable := listing.needed_unreadable(history.frame):
        return (
            f"{unreadable[0].path}: the header of this log file is damaged, and so is its copy; "
            f"frames above {history.frame}, the last one that the checkpoint covers, are lost if it holds any"
        )
    if listing.foreign:
        return f"{listing.foreign[0]}: {directory} mixes files of different logs; put back the right ones"
    return _other_history(directory, listing, reached, history)


def _other_history(directory: str, listing: Listing, reached: int, history: LogHistory) -> str | None:
    assert listing.identity is not None
    assert history.identity is not None
    if listing.identity != history.identity:
        return (
            f"{directory} is a log of another history: it has the identity {listing.identity.hex()}, "
            f"the index knows {history.identity.hex()}; put back the log and the index that belong together"
        )
    if listing.last_epoch < history.epoch:
        return (
            f"{directory} is an older copy of the durable log, or its newest files are missing: it ends with epoch "
            f"{listing.last_epoch}, the index knows epoch {history.epoch}; put back the newest one"
        )
    if reached < history.frame:
        return (
            f"{directory} is an older copy of the durable log, or its newest files are missing or damaged: it ends "
            f"with frame {reached}, the checkpoint covers frame {history.frame}; put back the newest one"
        )
    return None
