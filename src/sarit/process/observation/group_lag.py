"""How far reader groups are behind: read from their states by a client, on a timer.

A store and a controller do not know it: the positions of a group are in a stream that its readers write.  The first
MAX_METRIC_GROUPS groups by name are measured; the number of the others is counted.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core.errors import SaritError
from sarit.core.repeated_log import RepeatedLog
from sarit.process.limits import GROUP_LAG_INTERVAL_SECONDS, MAX_METRIC_GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.client.aio import Client
    from sarit.client.groups.group import ReaderGroup
    from sarit.env.ports import Clock

_log = logging.getLogger("sarit.process")


@dataclass(frozen=True, slots=True)
class Lag:
    """Of one group: the bytes that it has not read, and its readers."""

    unread_bytes: int
    readers: int


class GroupLag:
    """The lag of the groups that this controller is responsible for."""

    def __init__(self, clock: Clock, is_mine: Callable[[str], bool]) -> None:
        self.lags: dict[str, Lag] = {}
        self.not_measured = 0
        self._is_mine = is_mine
        self._groups: dict[str, ReaderGroup] = {}
        self._repeated = RepeatedLog(_log, clock.monotonic)

    def __repr__(self) -> str:
        return f"<GroupLag of {len(self.lags)} groups>"

    async def run(self, client: Client) -> None:
        """Measure until cancelled."""
        while True:
            try:
                await self.measure(client)
            except SaritError as error:
                self._repeated.warning("", f"the lag of reader groups is not known: {error}")
                self._groups.clear()
            await asyncio.sleep(GROUP_LAG_INTERVAL_SECONDS)

    async def measure(self, client: Client) -> None:
        """Measure all groups once.  Raises Unavailable; a group that cannot be read is left out."""
        names: list[str] = []
        not_measured = 0
        async for scope in client.list_scopes():
            async for name in client.reader_groups.list(scope):
                if not self._is_mine(name):
                    continue
                if len(names) < MAX_METRIC_GROUPS:
                    names.append(name)
                else:
                    not_measured += 1
        self._groups = {name: group for name, group in self._groups.items() if name in names}
        found: dict[str, Lag] = {}
        for name in names:
            try:
                found[name] = await self._of(client, name)
            except SaritError as error:  # the group was deleted, or its creator has not completed it
                self._groups.pop(name, None)
                _log.debug("the lag of %s is not known: %s", name, error)
        self.lags, self.not_measured = found, not_measured

    async def _of(self, client: Client, name: str) -> Lag:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = await client.reader_groups.open(name)
        progress = await group.progress()
        readers = await group.online_readers()
        return Lag(sum(segment.unread for segment in progress), len(readers))
