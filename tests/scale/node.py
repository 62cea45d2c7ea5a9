"""The node under load, and its use of resources."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.nodes import RunningNode

if TYPE_CHECKING:
    from collections.abc import Iterator

_RESIDENT: Final = re.compile(r"VmRSS:\s+(\d+) kB")
_THREADS: Final = re.compile(r"Threads:\s+(\d+)")
_KB: Final = 1024
_ALARMS: Final = (" CRITICAL ", "Traceback (most recent call last)", "unexpected error", "by a bug", "never retrieved")


@dataclass(frozen=True, slots=True)
class Held:
    """The resources of a process at one moment."""

    memory_bytes: int
    open_files: int
    threads: int


def held_by(pid: int | str) -> Held:
    """The resources of a process now (`self`: of this one).  Raises OSError when it has ended."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident, threads = _RESIDENT.search(status), _THREADS.search(status)
    if resident is None or threads is None:
        raise ProcessLookupError(f"process {pid} has ended")
    return Held(int(resident[1]) * _KB, len(os.listdir(f"/proc/{pid}/fd")), int(threads[1]))


class LoadedNode(RunningNode):
    """A node at its defaults."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory / "data"
        super().__init__(self.directory, "--log-level", "warning")

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return self._process.pid

    def disk_bytes(self) -> int:
        """The size of its data directory."""
        return sum(_sizes(str(self.directory)))

    def alarms(self) -> list[str]:
        """Lines of its log that load alone does not explain."""
        lines = self._log.read_text(errors="replace").splitlines()
        return [line[:400] for line in lines if any(alarm in line for alarm in _ALARMS)]


def _sizes(directory: str) -> Iterator[int]:
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield from _sizes(entry.path)
                else:
                    yield entry.stat(follow_symlinks=False).st_blocks * 512
            except FileNotFoundError:  # deleted meanwhile
                continue
