"""Changes that are no appends, and make no room, wait for it, too: creations, attributes, updates of users' tables.

They go on for some way where appends wait already, so that a long-term storage that is slow, or a disk that is nearly
full, holds up nobody's control.  But what no checkpoint covers stays in memory and log, whatever it is.  So they wait
when a quarter more is held than the bound (`MemoryBudget.over_control_limit`), and when the log's file is more than
half full and the disk has no room for the next: a log that fails for want of one may never be opened again.  Seals,
truncations and deletions make room, and the system's own tables say what is to be deleted: they never wait.

Who waited too long is answered by the end of the connection, whatever else goes on over it.  The protocol has no reply
for it: after WrongHost alone would the Java client try again, but a table of the Rust client tells its user of an
error then, and tries again after a lost connection; ErrorMessage and OperationUnsupported are the user's to handle.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Unavailable
from sarit.core.limits import CONTROL_LIMIT_TIMEOUT_SECONDS
from sarit.core.names import SYSTEM_SCOPE

if TYPE_CHECKING:
    from sarit.store.container.container import Container

_POLL_SECONDS: Final = 0.05
_SYSTEM: Final = f"{SYSTEM_SCOPE}/"


async def wait_below_control_limit(container: Container, name: str) -> None:
    """Return once a change of segment `name` may be made.  Raises Unavailable when that takes too long."""
    if name.startswith(_SYSTEM) or not _short(container):
        return
    coverage_probe("control_change_throttled")
    clock = container.env.clock
    end = clock.monotonic() + CONTROL_LIMIT_TIMEOUT_SECONDS
    while _short(container) and container.failure is None:  # a failed one tells by itself
        if clock.monotonic() >= end:
            raise Unavailable(f"no room for changes of {name}: long-term storage is away, or the disk is full")
        await asyncio.sleep(_POLL_SECONDS)


def _short(container: Container) -> bool:
    return container.budget.over_control_limit or container.log.short_of_space
