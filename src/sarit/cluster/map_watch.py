"""Keeps the newest container map in a process, by a watch and by polling.  Routes requests of controllers by it."""

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
    """Reads the map whenever it may have changed.  `on_map`: called with every newer map, on the event loop."""

    def __init__(
        self, registers: Registers, clock: Clock, on_map: Callable[[ContainerMap], None] = lambda record: None
    ) -> None:
        self.map: ContainerMap | None = None
        # When the last answered read was sent, in monotonic seconds: any map newer than `map` was written after that.
        self.read_at = float("-inf")
        self._registers = registers
        self._clock = clock
        self._on_map = on_map
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<MapWatch version {self.map.version if self.map is not None else None}>"

    @property
    def containers(self) -> int:
        """The number of containers.  Raises Unavailable before the first map."""
        if self.map is None:
            raise Unavailable("there is no container map yet, try again")
        return len(self.map.owners)

    def address(self, container: int) -> tuple[str, int]:
        """Return the host and port of the store that serves a container, without I/O.  Raises Unavailable."""
        store = None if self.map is None else self.map.address(container)
        if store is None:
            raise Unavailable(f"container {container} has no store yet, try again")
        return store.host, store.port

    async def run(self) -> None:
        """Follow the map until cancelled."""
        watch = self._registers.watch(MAP, self._wake.set)
        try:
            await poll(self.read, self._wake, self._clock, _log, "the container map cannot be read")
        finally:
            watch.close()

    async def read(self) -> ContainerMap | None:
        """Read the map now.  Returns the newest known map.  Raises Unavailable, Invalid."""
        sent = self._clock.monotonic()
        found = await read_map(self._registers)
        self.read_at = max(self.read_at, sent)
        if found is not None:
            self.learn(found[0])
        return self.map

    def learn(self, record: ContainerMap) -> None:
        """Keep a map that was read or written, unless a newer one is known."""
        if self.map is None or record.version > self.map.version:
            self.map = record
            self._on_map(record)
