"""Finds the streams of a link: the scopes that it may copy, their streams, and which of them have grown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.core.errors import Forbidden, Invalid, NotFound, SaritError
from sarit.core.texts import cut_text
from sarit.mirror.globs import chooses, may_choose_in, priority
from sarit.mirror.limits import (
    MAX_LINK_NOTE_CHARACTERS,
    MAX_MIRROR_GATHER_SECONDS,
    MAX_MIRROR_RETRY_SECONDS,
    MIRROR_GATHER_SECONDS_PER_STREAM,
    MIRROR_GROWN_CALLS,
    MIRROR_GROWN_SECONDS,
    MIRROR_RETRY_SECONDS,
    MIRROR_SCOPES_SECONDS,
    MIRROR_STREAMS_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from sarit.core.names import StreamName
    from sarit.mirror.copier_world import CopierWorld, LinkHealth


class Discovery:
    """The scopes of a link, each with a task that follows it.

    `problems`: of scopes that cannot be read.  `listed`: all scopes that were there first were listed once."""

    def __init__(
        self, world: CopierWorld, health: LinkHealth, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    ) -> None:  # fmt: skip
        """`spawn`: starts a task of the copier."""
        self._world = world
        self._health = health
        self._spawn = spawn
        self.scopes: dict[str, asyncio.Task[None]] = {}
        self.problems: dict[str, str] = {}
        self.listed = asyncio.Event()
        self._unlisted: set[str] | None = None  # of the scopes that were there first; None: they are not known
        self._grown_calls = asyncio.Semaphore(MIRROR_GROWN_CALLS)

    def __repr__(self) -> str:
        return f"<Discovery in {len(self.scopes)} scopes>"

    async def run(self) -> None:
        """List the scopes again and again, and follow each that the link can copy."""
        while True:
            await self._health.repeat(self._list_scopes, source=True)
            if self._unlisted is None:
                self._unlisted = set(self.scopes)
            self._note_listed("")
            await asyncio.sleep(MIRROR_SCOPES_SECONDS)

    def _note_listed(self, scope: str) -> None:
        if self._unlisted is not None:
            self._unlisted.discard(scope)
            if not self._unlisted:
                self.listed.set()

    async def _list_scopes(self) -> None:
        found: set[str] = set()
        after = ""
        while page := await self._world.source.scopes(after):
            found.update(scope for scope in page if may_choose_in(self._world.link.settings, scope))
            after = page[-1]
        for scope in sorted(found - self.scopes.keys()):
            self.scopes[scope] = self._spawn(self._follow(scope))
        for scope in self.scopes.keys() - found:
            self.scopes.pop(scope).cancel()
            self._note_listed(scope)
            for track in self._world.tracks.of_scope(scope):
                self._world.tracks.mark(track, self._world.source_ms)

    async def _list_streams(self, scope: str) -> None:
        """Find new streams of a scope, and what became of the others."""
        settings, tracks, after, seen = self._world.link.settings, self._world.tracks, "", set()
        try:
            while page := await self._world.source.streams(scope, after):
                for facts in page:
                    if not chooses(settings, facts.name):
                        continue
                    seen.add(facts.name)
                    track = tracks.add(facts.name, priority(settings, facts.name))
                    if track.facts is None:
                        track.facts, track.asked = facts, self._world.clock.monotonic()
                after = page[-1].name.stream
        except (Forbidden, NotFound, Invalid) as error:
            self.problems[scope] = cut_text(str(error), MAX_LINK_NOTE_CHARACTERS)
            return
        self.problems.pop(scope, None)
        for track in tracks.of_scope(scope):
            if track.over and not track.promoted and track.name in seen:
                tracks.revive(track)
            elif track.name not in seen:
                tracks.mark(track, self._world.source_ms)

    async def _follow(self, scope: str) -> None:
        """Mark the streams of a scope that have grown, until the scope is gone."""
        listed = None
        unsure = False  # whether an answer may have been lost that named streams
        while True:
            await self._health.pause()
            try:
                now = self._world.clock.monotonic()
                if listed is None or now - listed >= MIRROR_STREAMS_SECONDS or scope in self.problems:
                    await self._list_streams(scope)
                    listed = now
                    self._note_listed(scope)
                if scope in self.problems:
                    await asyncio.sleep(MAX_MIRROR_RETRY_SECONDS)
                    continue
                async with self._grown_calls:
                    wait = MIRROR_GROWN_SECONDS if len(self.scopes) <= MIRROR_GROWN_CALLS else MIRROR_RETRY_SECONDS
                    grown = await self._world.source.grown(self._world.identity, scope, wait)
                self._health.answered(source=True)
            except (Forbidden, NotFound, Invalid) as error:
                self.problems[scope] = cut_text(str(error), MAX_LINK_NOTE_CHARACTERS)
                continue
            except SaritError as error:
                self._health.failed(error)
                unsure = True
                continue
            if unsure:
                grown, unsure = None, False
            if grown is None:
                listed = None
            marked = self._mark_grown(scope, grown)
            await asyncio.sleep(min(MIRROR_GATHER_SECONDS_PER_STREAM * marked, MAX_MIRROR_GATHER_SECONDS))

    def _mark_grown(self, scope: str, grown: Sequence[StreamName] | None) -> int:
        world, settings = self._world, self._world.link.settings
        if grown is None:
            tracks = world.tracks.of_scope(scope)
        else:
            known = [(name, world.tracks.get(name)) for name in grown if name.scope == scope]
            tracks = [
                track or world.tracks.add(name, priority(settings, name))
                for name, track in known
                if track is not None or chooses(settings, name)
            ]
        for track in tracks:
            if track.over and not track.promoted:
                world.tracks.revive(track)
            else:
                world.tracks.mark(track, world.source_ms)
        return len(tracks)
