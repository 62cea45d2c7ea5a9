"""Looks at streams that need it now and then: those with a retention policy, those whose writers note times.

They are entered in a table before they need it (`Catalog.watch`).  An entry that turns out to be superfluous is
removed when it has been so for a while: somebody may be about to give the stream what it was entered for.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from sarit.controller.background.recovery_sweeper import PATIENCE_SECONDS
from sarit.controller.keys import WATCHED_FOR_RETENTION, WATCHED_FOR_TIME
from sarit.controller.runner import each
from sarit.core.errors import NotFound, SaritError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.controller.background.retention import Retention
    from sarit.controller.background.watermarks import Watermarks
    from sarit.controller.catalog import Catalog
    from sarit.controller.model.retention import RetentionTimes
    from sarit.controller.model.watermarks import WatermarkTimes
    from sarit.core.names import StreamName
    from sarit.env.ports import Env

_log = logging.getLogger("sarit.controller")

# Between two rounds, however short the intervals.
_LEAST_PAUSE_SECONDS: Final = 0.01


class MaintenanceLoop:
    """One round for retention, one for watermarks, each at its own interval."""

    def __init__(
        self, catalog: Catalog, retention: Retention, watermarks: Watermarks,
        retention_times: RetentionTimes, watermark_times: WatermarkTimes, env: Env,
    ) -> None:  # fmt: skip
        self._catalog = catalog
        self._retention = retention
        self._watermarks = watermarks
        self._retention_times = retention_times
        self._watermark_times = watermark_times
        self._env = env
        self._next_look: dict[StreamName, float] = {}
        self._superfluous: dict[tuple[bytes, StreamName], tuple[int, float]] = {}

    def __repr__(self) -> str:
        return f"<Caretaker of {len(self._next_look)} streams with retention>"

    async def run(self) -> None:
        """Go round for ever."""
        await asyncio.gather(
            self._repeat(self.retain, self._retention_times.interval),
            self._repeat(self.mark, self._watermark_times.interval),
        )

    async def _repeat(self, go_round: Callable[[], Awaitable[None]], interval: float) -> None:
        while True:
            await asyncio.sleep(max(interval, _LEAST_PAUSE_SECONDS))
            try:
                await go_round()
            except SaritError as error:
                _log.info("a round is put off: %s", error)

    async def retain(self) -> None:
        """Look at every stream with a retention policy that is due."""
        entries = await self._catalog.watched(WATCHED_FOR_RETENTION)
        alive = {name for name, _ in entries}
        self._next_look = {name: at for name, at in self._next_look.items() if name in alive}
        self._forget(WATCHED_FOR_RETENTION, alive)
        # Truncations make room, and a stream whose look waits for some, or for a store, must not hold up the others.
        await each(entries, self._retain_one)

    async def _retain_one(self, entry: tuple[StreamName, int]) -> None:
        name, version = entry
        now = self._env.clock.monotonic()
        if now < self._next_look.get(name, now):
            return
        try:
            found = await self._catalog.find(name)
            if found is not None:
                self._next_look[name] = now + self._retention_times.wait(found.record.config.retention)
            await self._look(WATCHED_FOR_RETENTION, name, version, self._retention.look)
        except SaritError as error:
            self._next_look.pop(name, None)  # in the next round: what is due may be due for long
            _log.info("%s is looked at later: %s", name, error)
        except Exception:  # the other streams are cared for all the same
            _log.exception("%s is looked at later: retention met a bug of ours", name)

    async def mark(self) -> None:
        """Look at every stream whose writers note times."""
        entries = await self._catalog.watched(WATCHED_FOR_TIME)
        self._forget(WATCHED_FOR_TIME, {name for name, _ in entries})
        await each(entries, self._mark_one)

    async def _mark_one(self, entry: tuple[StreamName, int]) -> None:
        try:
            await self._look(WATCHED_FOR_TIME, *entry, self._watermarks.look)
        except SaritError as error:
            _log.info("%s is looked at later: %s", entry[0], error)
        except Exception:  # as above
            _log.exception("%s is looked at later: watermarks met a bug of ours", entry[0])

    def _forget(self, kind: bytes, alive: set[StreamName]) -> None:
        """Entries that another controller removed."""
        gone = [key for key in self._superfluous if key[0] == kind and key[1] not in alive]
        for key in gone:
            del self._superfluous[key]

    async def _look(
        self, kind: bytes, name: StreamName, version: int, look: Callable[[StreamName], Awaitable[bool]]
    ) -> None:
        try:
            needed = await look(name)
        except NotFound:
            needed = False
        if needed:
            self._superfluous.pop((kind, name), None)
            return
        now = self._env.clock.monotonic()
        seen = self._superfluous.get((kind, name))
        if seen is None or seen[0] != version:
            self._superfluous[kind, name] = (version, now)
        elif now - seen[1] >= PATIENCE_SECONDS:
            del self._superfluous[kind, name]
            await self._catalog.unwatch(kind, name, version)
