"""A part of the workload: tasks that run during the faults, and their checks."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from checkers.log import Violation
    from sarit.client.aio import Client


def now() -> float:
    """Seconds, one clock for all."""
    return asyncio.get_running_loop().time()


class Pulse:
    """The progress of each task of a part, which must grow after every fault.  `stopping` asks tasks to end."""

    def __init__(self) -> None:
        self.steps: Counter[str] = Counter()
        self.stopping = asyncio.Event()


class Part(Protocol):
    """The interface of a part of the `Workload`."""

    pulse: Pulse

    async def create(self, client: Client) -> None:
        """Create streams, groups or tables of its own."""

    def work(self, client: Client) -> dict[str, Coroutine[Any, Any, None]]:
        """Its tasks by name.  They end when `pulse.stopping` is set, readers when they are cancelled."""

    async def scan(self, client: Client) -> None:
        """Read everything, after the faults; again after each restart."""

    def check(self) -> list[Violation]:
        """Everything that is wrong; empty when nothing is."""
