"""Free disk space: how much a node keeps free, what a new node needs, and the lines in the log of a full disk.

A disk with less free space than its reserve counts as full, until it has a quarter of the reserve more: otherwise
writers that fill what a checkpoint has just freed would let it change several times a second.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.core.limits import MIB
from sarit.core.repeated_log import RepeatedLog
from sarit.log.allocator import first_file_bytes
from sarit.log.limits import LOG_FILE_BYTES
from sarit.store.limits import LOG_VOLUME_SHARE, MIN_LOG_FILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("sarit.store")

# A container begins with a log file in use and one in reserve.
_FIRST_LOG_FILES: Final = 2


def log_file_bytes(volume_bytes: int, containers: int) -> int:
    """Return the length up to which log files grow on a volume: LOG_FILE_BYTES, halved while the volume is small."""
    size = LOG_FILE_BYTES
    while size > MIN_LOG_FILE_BYTES and size * containers * LOG_VOLUME_SHARE > volume_bytes:
        size //= 2
    return size


def reserve_bytes(containers: int, file_bytes: int, disk_reserve_bytes: int) -> int:
    """Return how many bytes stay free for seals, truncations, deletions, system tables, index and next log files."""
    return disk_reserve_bytes + containers * file_bytes


def require_space(directory: str, free: int, containers: int, file_bytes: int, disk_reserve_bytes: int) -> None:
    """Check that a new node would have space for events on its volume.  Raises Invalid."""
    files = containers * _FIRST_LOG_FILES * first_file_bytes(file_bytes)
    reserve = reserve_bytes(containers, file_bytes, disk_reserve_bytes)
    if free < files + reserve:
        raise Invalid(
            f"the volume of {directory} has {free // MIB} MiB free, and a new node of {containers} containers needs "
            f"{(files + reserve) // MIB} MiB: {files // MIB} for its first log files, and {reserve // MIB} that stay "
            "free; free some space, choose a data directory on a larger volume, or fewer containers (--containers)"
        )


class FreeSpace:
    """The free space of one disk: whether it counts as full, and the log lines about that.

    `effect`: what waits while the disk is full, for the log lines.  `now`: returns the time in seconds."""

    def __init__(self, name: str, reserve: int, effect: str, now: Callable[[], float]) -> None:
        self.name = name
        self.reserve = reserve
        self.effect = effect
        self._repeated = RepeatedLog(_log, now, counted=False)
        self.full = False
        self.free: int | None = None  # bytes, as of the last update

    def __repr__(self) -> str:
        return f"<FreeSpace of {self.name}, {'full' if self.full else 'enough'}>"

    def __str__(self) -> str:
        left = (self.free or 0) // MIB
        return f"{self.name} has {left} MiB left, the reserve is {self.reserve // MIB} MiB: {self.effect}"

    def update(self, free: int) -> bool:
        """Note how many bytes are free now.  Returns whether the disk counts as full."""
        self.free = free
        enough = self.reserve + self.reserve // 4
        was_full, self.full = self.full, free < (enough if self.full else self.reserve)
        if self.full:
            state = "the disk is still full" if was_full else "the disk is full"
            self._repeated.error(
                "full",
                f"{self.name}: {state} ({free // MIB} MiB left, the reserve is {self.reserve // MIB} MiB): "
                f"{self.effect} until there are {enough // MIB} MiB",
            )
        elif was_full:
            self._repeated.ended("full")
            _log.warning("%s: the disk has space again (%d MiB)", self.name, free // MIB)
        return self.full
