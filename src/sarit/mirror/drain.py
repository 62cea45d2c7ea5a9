"""A planned promotion: the source is made read-only, the rest is copied, and then the mirrors are promoted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.core.errors import Unavailable
from sarit.mirror.limits import MAX_MIRROR_STREAMS_PER_CALL, MIRROR_END_POLL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.core.names import StreamName
    from sarit.mirror.copier_world import CopierWorld, LinkHealth
    from sarit.mirror.discovery import Discovery
    from sarit.mirror.housekeeping import AttachedCopier, Housekeeping
    from sarit.mirror.tracks import Track


class Drain:
    """The end of a link whose state is DRAINING.  Every step may be repeated, by another copier too."""

    def __init__(
        self, world: CopierWorld, health: LinkHealth, discovery: Discovery, housekeeping: Housekeeping,
        attached: AttachedCopier | None,
    ) -> None:  # fmt: skip
        self._world = world
        self._health = health
        self._discovery = discovery
        self._housekeeping = housekeeping
        self._attached = attached

    def __repr__(self) -> str:
        return f"<Drain of {self._world.link.name}>"

    async def run(self) -> None:
        """Make the streams read-only, copy the rest, and promote their mirrors."""
        world = self._world
        for page in self._pages():
            await self._health.repeat(lambda page=page: self._fence(page), source=True)  # type: ignore[misc]
        await until(lambda: all(one.over or one.refused or one.drained for one in world.tracks))
        if self._attached is not None:
            for scope in self._housekeeping.attached_scopes():
                names = [one.name for one in world.tracks.of_scope(scope) if one.drained]
                await self._health.repeat(lambda scope=scope, names=names: self._copy_last(scope, names))  # type: ignore[misc]
        for page in self._pages():
            await self._health.repeat(lambda page=page: self._promote(page), source=False)  # type: ignore[misc]
        if self._attached is not None:
            for scope in self._housekeeping.attached_scopes():
                await self._health.repeat(lambda scope=scope: self._promote_attached(scope))  # type: ignore[misc]

    def _pages(self) -> list[list[Track]]:
        found = []
        for scope in self._discovery.scopes:
            tracks = [one for one in self._world.tracks.of_scope(scope) if not one.over and not one.refused]
            found += [
                tracks[at : at + MAX_MIRROR_STREAMS_PER_CALL]
                for at in range(0, len(tracks), MAX_MIRROR_STREAMS_PER_CALL)
            ]
        return found

    async def _fence(self, tracks: Sequence[Track]) -> None:
        world = self._world
        names = [one.name for one in tracks]
        await world.source.fence(world.identity, names[0].scope, names, self._world.link.link_id)
        for one in tracks:  # a batch that has one now may have asked before
            one.stale, one.drained = True, False
            world.tracks.mark(one, world.source_ms)

    async def _copy_last(self, scope: str, names: Sequence[StreamName]) -> None:
        assert self._attached is not None
        self._housekeeping.attached_problems[scope] = await self._attached.copy(scope, names)

    async def _promote(self, tracks: Sequence[Track]) -> None:
        world = self._world
        left = [one for one in tracks if not one.over]
        if not left:
            return
        states = await world.target.promote(world.identity, left[0].name.scope, [one.name for one in left])
        for one, state in zip(left, states, strict=True):
            if state.lineage is None:
                raise Unavailable(f"{one.name} is not promoted yet: {state.reason or state.status.name}")
            one.over, one.promoted, one.note = True, True, "its mirror was promoted"

    async def _promote_attached(self, scope: str) -> None:
        assert self._attached is not None
        await self._attached.promote(scope)


async def until(holds: Callable[[], bool]) -> None:
    """Return when a condition holds."""
    while True:
        if holds():
            return
        await asyncio.sleep(MIRROR_END_POLL_SECONDS)
