"""Periodic maintenance of streams: retention, and watermarks of streams whose writers note times.

Streams enter the maintenance index before they need it (`Catalog.index_for_maintenance`).  An entry that is not needed
is removed after RECOVERY_GRACE_SECONDS, not at once: the call that made the entry may still be about to store the
policy or the note.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sarit.controller.keys import RETENTION_INDEX, WATERMARK_INDEX
from sarit.controller.limits import MIN_ROUND_PAUSE_SECONDS, RECOVERY_GRACE_SECONDS
from sarit.controller.runner import for_each_bounded
from sarit.core.errors import NotFound, SaritError
from sarit.core.repeated_log import RepeatedLog
from sarit.env.background import gather

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.controller.assignment import Assignment
    from sarit.controller.background.retention import Retention
    from sarit.controller.background.watermarks import Watermarks
    from sarit.controller.catalog import Catalog
    from sarit.controller.model.retention import RetentionTimes
    from sarit.controller.model.watermarks import WatermarkTimes
    from sarit.core.names import StreamName
    from sarit.env.ports import Env

_log = logging.getLogger("sarit.controller")


class MaintenanceLoop:
    """A loop of retention rounds and a loop of watermark rounds, each at its own interval."""

    def __init__(
        self, catalog: Catalog, retention: Retention, watermarks: Watermarks,
        retention_times: RetentionTimes, watermark_times: WatermarkTimes, env: Env,
        assignment: Assignment,
    ) -> None:  # fmt: skip
        self._assignment = assignment
        self._catalog = catalog
        self._retention = retention
        self._watermarks = watermarks
        self._retention_times = retention_times
        self._watermark_times = watermark_times
        self._env = env
        self._repeated = RepeatedLog(_log, env.clock.monotonic)
        self._next_due: dict[StreamName, float] = {}
        self._unneeded: dict[tuple[bytes, StreamName], tuple[int, float]] = {}

    def __repr__(self) -> str:
        return f"<MaintenanceLoop, {len(self._next_due)} streams with retention>"

    async def run(self) -> None:
        """Run both loops for ever."""
        await gather(
            self._repeat(self.run_retention_round, lambda: self._retention_times.interval),
            self._repeat(self.run_watermark_round, lambda: self._watermark_times.interval),
        )

    def change_times(self, retention: RetentionTimes, watermarks: WatermarkTimes) -> None:
        """Apply other intervals, each after the next round of its loop."""
        self._retention_times, self._watermark_times = retention, watermarks
        self._next_due.clear()

    async def _repeat(self, run_round: Callable[[], Awaitable[None]], interval: Callable[[], float]) -> None:
        while True:
            await asyncio.sleep(max(interval(), MIN_ROUND_PAUSE_SECONDS))
            try:
                await run_round()
            except SaritError as error:
                self._repeated.info(str(error), f"a maintenance round is postponed: {error}")

    async def run_retention_round(self) -> None:
        """Apply the retention policy of every stream that is due."""
        entries = await self._entries(RETENTION_INDEX)
        alive = {name for name, _ in entries}
        self._next_due = {name: at for name, at in self._next_due.items() if name in alive}
        self._retention.keep_times(alive)
        self._forget(RETENTION_INDEX, alive)
        # Truncation frees space.  A stream that waits for space or for its store must not delay the others.
        await for_each_bounded(entries, self._maintain_retention)

    async def _maintain_retention(self, entry: tuple[StreamName, int]) -> None:
        name, version = entry
        now = self._env.clock.monotonic()
        # Apply the policy at once to a stream that has no due time yet.
        if now < self._next_due.get(name, now):
            return
        try:
            found = await self._catalog.find(name)
            if found is not None:
                self._next_due[name] = now + self._retention_times.wait(found.record.config.retention)
            await self._maintain(RETENTION_INDEX, name, version, self._retention.apply)
        except SaritError as error:
            self._next_due.pop(name, None)  # try again in the next round, not after the whole interval
            self._repeated.info(str(error), f"retention of {name} is postponed: {error}")
        except Exception:  # the other streams go on
            _log.exception("retention of %s is postponed: unexpected error", name)

    async def run_watermark_round(self) -> None:
        """Advance the watermark of every stream whose writers note times."""
        entries = await self._entries(WATERMARK_INDEX)
        self._forget(WATERMARK_INDEX, {name for name, _ in entries})
        await for_each_bounded(entries, self._maintain_watermarks)

    async def _maintain_watermarks(self, entry: tuple[StreamName, int]) -> None:
        try:
            await self._maintain(WATERMARK_INDEX, *entry, self._watermarks.advance)
        except SaritError as error:
            self._repeated.info(str(error), f"the watermark of {entry[0]} is postponed: {error}")
        except Exception:  # as above
            _log.exception("the watermark of %s is postponed: unexpected error", entry[0])

    async def _entries(self, kind: bytes) -> list[tuple[StreamName, int]]:
        """Return the entries of one kind that are this controller's."""
        entries = await self._catalog.maintained_streams(kind)
        return [entry for entry in entries if self._assignment.is_mine(str(entry[0]))]

    def _forget(self, kind: bytes, alive: set[StreamName]) -> None:
        """Drop the state of entries that another controller removed."""
        gone = [key for key in self._unneeded if key[0] == kind and key[1] not in alive]
        for key in gone:
            del self._unneeded[key]

    async def _maintain(
        self, kind: bytes, name: StreamName, version: int, maintain: Callable[[StreamName], Awaitable[bool]]
    ) -> None:
        try:
            needed = await maintain(name)
        except NotFound:
            needed = False
        if needed:
            self._unneeded.pop((kind, name), None)
            return
        now = self._env.clock.monotonic()
        seen = self._unneeded.get((kind, name))
        # A new version means that a call has just entered the stream again: its grace period starts again.
        if seen is None or seen[0] != version:
            self._unneeded[kind, name] = (version, now)
        elif now - seen[1] >= RECOVERY_GRACE_SECONDS:
            del self._unneeded[kind, name]
            await self._catalog.remove_from_maintenance(kind, name, version)
