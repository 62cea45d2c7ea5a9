"""Tells links which streams of a scope have grown, or have changed otherwise, since each link asked last.

One task asks while any link waits: the stores, which segments have grown, and the tables of the scopes, whether they
have changed.  A table that has changed is scanned for records of streams with other versions: those were created,
scaled, sealed, updated, or deleted.  The more there is to compare, the longer are the pauses, so that comparing takes
the same small part of the processor's time whatever the number of streams.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.core.errors import Invalid, NotFound, SaritError
from sarit.core.names import StreamName, parse_segment_name
from sarit.core.repeated_log import RepeatedLog
from sarit.mirror.limits import (
    GROWN_INTERVAL_SECONDS,
    GROWN_PAUSE_FACTOR,
    MAX_GROWN_INTERVAL_SECONDS,
    MAX_GROWN_STREAMS,
    MAX_GROWN_STREAMS_OF_ALL,
    MAX_GROWN_STREAMS_PER_REPLY,
    MAX_GROWTH_WATCHERS,
    MAX_MIRROR_WAIT_SECONDS,
    MAX_SCOPE_SCAN_INTERVAL_SECONDS,
    SCOPE_SCAN_INTERVAL_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sarit.controller.catalog import Catalog
    from sarit.controller.growth import GrowthListener
    from sarit.env.ports import Clock

_log = logging.getLogger("sarit.mirror")


@dataclass(slots=True)
class _Watcher:
    """One link in one scope.  `names`: what it has not fetched yet; None: any stream may have grown.

    `waiting`: how many calls wait; `filled`: wakes them."""

    names: dict[StreamName, None] | None = None
    waiting: int = 0
    filled: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, names: Iterable[StreamName] | None) -> None:
        if names is None:
            self.names = None
        elif self.names is not None:
            self.names.update(dict.fromkeys(names))
            if len(self.names) > MAX_GROWN_STREAMS:
                self.names = None
        if self.names is None or self.names:
            self.filled.set()

    def take(self) -> list[StreamName] | None:
        """Return what is new, or a part of it; None: any stream may have grown."""
        names, self.names = self.names, {}
        if names is None:
            self.filled.clear()
            return None
        found = list(names)
        self.names = dict.fromkeys(found[MAX_GROWN_STREAMS_PER_REPLY:])
        if not self.names:
            self.filled.clear()
        return found[:MAX_GROWN_STREAMS_PER_REPLY]


@dataclass(slots=True)
class _Scope:
    """The records of a scope's streams as they were scanned last: the position of the table, versions by name."""

    position: int = -1
    versions: dict[str, int] = field(default_factory=dict)
    not_before: float = 0.0


class LinkGrowth:
    """The streams that have grown, for the links of this installation's source."""

    def __init__(
        self, catalog: Catalog, listener: GrowthListener, clock: Clock, is_copied: Callable[[StreamName], bool]
    ) -> None:
        """`is_copied`: whether a stream of this name is copied by links at all."""
        self._catalog = catalog
        self._listener = listener
        self._clock = clock
        self._is_copied = is_copied
        self._watchers: OrderedDict[tuple[bytes, str], _Watcher] = OrderedDict()
        self._scopes: dict[str, _Scope] = {}
        self._task: asyncio.Task[None] | None = None
        self._repeated = RepeatedLog(_log, clock.monotonic)

    def __repr__(self) -> str:
        return f"<LinkGrowth for {len(self._watchers)} links and scopes>"

    async def wait(self, link_id: bytes, scope: str, seconds: float) -> list[StreamName] | None:
        """Return what has grown since this link asked last, at once if anything has; none after `seconds`.

        None: any stream may have, because it is the first call, or there were too many."""
        watcher = self._watchers.pop((link_id, scope), None)
        if watcher is None:
            watcher = _Watcher(names={})
            # Note the versions first: what changes from now on differs from them.
            await self._compare(scope)
            watcher.add(None)
        self._watchers[link_id, scope] = watcher
        self._forget_oldest()
        watcher.waiting += 1
        try:
            if not watcher.filled.is_set():
                if self._task is None or self._task.done():
                    self._task = asyncio.ensure_future(self._run())
                with suppress(TimeoutError):
                    await asyncio.wait_for(watcher.filled.wait(), min(max(seconds, 0.0), MAX_MIRROR_WAIT_SECONDS))
        finally:
            watcher.waiting -= 1
        return watcher.take()

    def again(self, name: StreamName) -> None:
        """Count a stream as grown, since there was more in it than could be offered."""
        for (_, scope), watcher in self._watchers.items():
            if scope == name.scope:
                watcher.add([name])

    def _forget_oldest(self) -> None:
        while len(self._watchers) > MAX_GROWTH_WATCHERS:
            (_, scope), _ = self._watchers.popitem(last=False)  # if the link still exists, it asks for everything again
            if all(scope != other for _, other in self._watchers):
                self._scopes.pop(scope, None)

    async def _run(self) -> None:
        """Compare while a link waits."""
        while waiting := {scope for (_, scope), watcher in self._watchers.items() if watcher.waiting}:
            began = self._clock.monotonic()
            try:
                segments = await self._listener.grown()
                self._report(segments, overflowed=self._listener.overflowed)
                for scope in sorted(waiting):
                    await self._compare(scope)
                pause = GROWN_PAUSE_FACTOR * (self._clock.monotonic() - began)
            except SaritError as error:
                self._repeated.info(str(error), f"which streams have grown is not known at the moment: {error}")
                pause = MAX_GROWN_INTERVAL_SECONDS
                # What was found before the error is lost.
                for watcher in self._watchers.values():
                    watcher.add(None)
            await asyncio.sleep(min(max(pause, GROWN_INTERVAL_SECONDS), MAX_GROWN_INTERVAL_SECONDS))

    def _report(self, segments: list[str], *, overflowed: bool) -> None:
        found: dict[str, dict[StreamName, None]] = {}
        for segment in segments:
            with suppress(Invalid):  # not the segment of a stream
                name, _ = parse_segment_name(segment)
                if self._is_copied(name):
                    found.setdefault(name.scope, {})[name] = None
        held = sum(len(watcher.names or ()) for watcher in self._watchers.values())
        for (_, scope), watcher in self._watchers.items():
            watcher.add(None if overflowed or held > MAX_GROWN_STREAMS_OF_ALL else found.get(scope, ()))

    async def _compare(self, scope: str) -> None:
        """Tell the links about streams of a scope whose records have changed."""
        known = self._scopes.setdefault(scope, _Scope())
        if self._clock.monotonic() < known.not_before:
            return
        changed = await self._scan(scope, known)
        for (_, other), watcher in self._watchers.items():
            if other == scope:
                watcher.add(changed)

    async def _scan(self, scope: str, known: _Scope) -> list[StreamName]:
        """Read the versions of a scope's streams, and return the streams that have another one than before."""
        began = self._clock.monotonic()
        before, versions, position = known.versions, dict[str, int](), -1
        with suppress(NotFound):  # the scope
            position = await self._catalog.in_scope(scope, self._catalog.tables.position)
            if position == known.position:
                return []
            after = b""
            while rows := await self._catalog.scan_once(scope, keys.STREAMS, after):
                after = rows[-1][0]
                versions.update((key[len(keys.STREAMS) :].decode(), value.version) for key, value in rows)
        known.position, known.versions = position, versions
        now = self._clock.monotonic()
        pause = max(GROWN_PAUSE_FACTOR * (now - began), SCOPE_SCAN_INTERVAL_SECONDS)
        known.not_before = now + min(pause, MAX_SCOPE_SCAN_INTERVAL_SECONDS)
        changed = [name for name, version in versions.items() if before.get(name) != version]
        changed += before.keys() - versions.keys()
        return [name for name in sorted(StreamName(scope, stream) for stream in changed) if self._is_copied(name)]
