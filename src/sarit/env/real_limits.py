"""Resource limits and use of this process."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import Final

# The limit that is requested where the system sets none.
_PLENTY: Final = 1 << 16


def raise_descriptor_limit() -> int:
    """Raise the limit on open files as far as allowed.  Returns the limit.

    Shells commonly start with 1,024, far below what the system allows on request."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _PLENTY if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # some systems enforce a lower limit than they report
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _PLENTY if soft == resource.RLIM_INFINITY else soft


def resident_memory() -> int:
    """Return how many bytes of this process are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def machine_memory() -> int:
    """Return the bytes of memory that this process may use: the machine's, or what its control group allows if less."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        groups = Path("/proc/self/cgroup").read_text()
    except OSError:
        return memory
    limits = [_number(Path(path)) for path in cgroup_limit_files(groups)]
    return min([memory, *(limit for limit in limits if limit is not None)])


def cgroup_limit_files(groups: str) -> list[str]:
    """Return the files that may hold the memory limits of a process with these lines in /proc/PID/cgroup.

    The limits of all groups above it count, too."""
    found = []
    for line in groups.splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        parts = [part for part in path.split("/") if part]
        above = ["/".join(["", *parts[:count]]) for count in range(len(parts) + 1)]
        if hierarchy == "0" and not controllers:
            found += [f"/sys/fs/cgroup{group}/memory.max" for group in above]
        elif "memory" in controllers.split(","):
            found += [f"/sys/fs/cgroup/memory{group}/memory.limit_in_bytes" for group in above]
    return found


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # the text `max` means no limit
