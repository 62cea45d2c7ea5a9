"""Free disk space: how much a node keeps free, what a new one needs, and what the log says while there is too little.

Below its reserve a disk counts as full.  It counts as full until there is a quarter of the reserve more: writers that
fill what a checkpoint has just freed would let it change several times a second.
"""

from __future__ import annotations

import logging
from typing import Final

from sarit.core.errors import Invalid
from sarit.core.limits import (
    FREE_SPACE_LOG_SECONDS,
    LOG_FILE_BYTES,
    LOG_VOLUME_SHARE,
    MIB,
    MIN_LOG_FILE_BYTES,
)

_log = logging.getLogger("sarit.store")

# A container begins with a log file in use and one in reserve.
_FIRST_LOG_FILES: Final = 2


def log_file_bytes(volume_bytes: int, containers: int) -> int:
    """The size of a log file on a volume: smaller on a small one, a power of two."""
    size = LOG_FILE_BYTES
    while size > MIN_LOG_FILE_BYTES and size * containers * LOG_VOLUME_SHARE > volume_bytes:
        size //= 2
    return size


def reserve_bytes(containers: int, file_bytes: int, disk_reserve_bytes: int) -> int:
    """What stays free: seals, truncations, deletions, system tables and the index need it, and each log's next file."""
    return disk_reserve_bytes + containers * file_bytes


def require_space(directory: str, free: int, containers: int, file_bytes: int, disk_reserve_bytes: int) -> None:
    """Raises Invalid when a new node would have no space for a single event."""
    files = containers * _FIRST_LOG_FILES * file_bytes
    reserve = reserve_bytes(containers, file_bytes, disk_reserve_bytes)
    if free < files + reserve:
        raise Invalid(
            f"the volume of {directory} has {free // MIB} MiB free, and a new node of {containers} containers needs "
            f"{(files + reserve) // MIB} MiB: {files // MIB} for its first log files, and {reserve // MIB} that stay "
            "free; free some space, choose a data directory on a larger volume, or fewer containers (--containers)"
        )


class FreeSpace:
    """Whether one disk counts as full, with the log lines about it: the first at once, then one a minute, and one at
    the end.  `effect` says what waits meanwhile."""

    def __init__(self, name: str, reserve: int, effect: str) -> None:
        self._name = name
        self._reserve = reserve
        self._effect = effect
        self._logged_at = 0.0
        self.full = False

    def __repr__(self) -> str:
        return f"<FreeSpace of {self._name}, {'full' if self.full else 'enough'}>"

    def update(self, free: int, now: float) -> bool:
        """Note how many bytes are free at a time (monotonic, in seconds).  Returns whether the disk counts as full."""
        enough = self._reserve + self._reserve // 4
        if not self.full and free < self._reserve:
            self.full, self._logged_at = True, now
            _log.error(
                "%s: the disk is full (%d MiB left, below the reserve of %d MiB): %s until there are %d MiB",
                self._name, free // MIB, self._reserve // MIB, self._effect, enough // MIB,
            )  # fmt: skip
        elif self.full and free >= enough:
            self.full = False
            _log.warning("%s: the disk has space again (%d MiB)", self._name, free // MIB)
        elif self.full and now - self._logged_at >= FREE_SPACE_LOG_SECONDS:
            self._logged_at = now
            _log.error(
                "%s: the disk is still full (%d MiB left of the %d MiB needed): %s",
                self._name, free // MIB, enough // MIB, self._effect,
            )  # fmt: skip
        return self.full
