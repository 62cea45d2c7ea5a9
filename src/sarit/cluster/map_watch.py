"""The newest container map that a process knows, kept by a watch and a poll beside it; a `Router` of controllers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sarit.coordination.map_register import MAP, read_map
from sarit.coordination.polls import poll
from sarit.core.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.coordination.container_map import ContainerMap
    from sarit.coordination.port import Registers
    from sarit.env.ports import Clock

_log = logging.getLogger("sarit.cluster")


class MapWatch:
    """Reads the map whenever it may have changed.  `on_map` is called with every newer one, on the event loop."""

    def __init__(
        self, registers: Registers, clock: Clock, on_map: Callable[[ContainerMap], None] = lambda record: None
    ) -> None:
        self.map: ContainerMap | None = None
        # When the last read that was answered had been sent, in monotonic seconds: no newer map is older than that.
        self.read_at = float("-inf")
        self._registers = registers
        self._clock = clock
        self._on_map = on_map
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<MapWatch version {self.map.version if self.map is not None else None}>"

    @property
    def containers(self) -> int:
        """How many containers there are.  Raises Unavailable before the first map."""
        if self.map is None:
            raise Unavailable("there is no container map yet, try again")
        return len(self.map.owners)

    def address(self, container: int) -> tuple[str, int]:
        """Host and port of the store that clients should ask for a container, without I/O.  Raises Unavailable."""
        store = None if self.map is None else self.map.address(container)
        if store is None:
            raise Unavailable(f"container {container} has no store yet, try again")
        return store.host, store.port

    async def run(self) -> None:
        """Until cancelled."""
        watch = self._registers.watch(MAP, self._wake.set)
        try:
            await poll(self.read, self._wake, self._clock, _log, "the container map cannot be read")
        finally:
            watch.close()

    async def read(self) -> ContainerMap | None:
        """Read the map now; the newest one known.  Raises Unavailable, Invalid."""
        sent = self._clock.monotonic()
        found = await read_map(self._registers)
        self.read_at = max(self.read_at, sent)
        if found is not None:
            self.learn(found[0])
        return self.map

    def learn(self, record: ContainerMap) -> None:
        """A map that was read or written; nothing when a newer one is known."""
        if self.map is None or record.version > self.map.version:
            self.map = record
            self._on_map(record)
