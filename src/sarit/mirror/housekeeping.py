"""Beside the bytes of a link: what the source holds for it, what goes with streams, and promotions elsewhere."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from sarit.core.errors import Forbidden, Invalid, NotFound, SaritError, Unavailable
from sarit.core.links import StreamProblem
from sarit.core.names import SYSTEM_SCOPE, SegmentId
from sarit.core.texts import cut_text
from sarit.mirror.limits import (
    MAX_LINK_NOTE_CHARACTERS,
    MAX_MIRROR_STREAMS_PER_CALL,
    MIRROR_ATTACHED_SECONDS,
    MIRROR_CUTS_SECONDS,
    MIRROR_FULL_HOLD_SECONDS,
    MIRROR_HOLD_SECONDS,
    MIRROR_STATES_SECONDS,
)
from sarit.mirror.values import MirrorStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.controller.model.cuts import Cut
    from sarit.core.names import StreamName
    from sarit.mirror.copier_world import CopierWorld, LinkHealth
    from sarit.mirror.discovery import Discovery
    from sarit.mirror.tracks import Track


class AttachedCopier(Protocol):
    """Copies what goes with the streams of a scope."""

    async def copy(self, scope: str, names: Sequence[StreamName]) -> list[StreamProblem]:
        """Copy what has changed.  Returns what cannot be copied, and why."""

    async def promote(self, scope: str) -> None:
        """Make what was copied writable, after the streams."""


class Housekeeping:
    """Work of a copier now and then, for the scopes that `discovery` has found."""

    def __init__(self, world: CopierWorld, health: LinkHealth, discovery: Discovery) -> None:
        self._world = world
        self._health = health
        self._discovery = discovery
        self.attached_problems: dict[str, list[StreamProblem]] = {}
        self._cuts_copied: dict[str, float] = {}  # when they were, by scope

    def __repr__(self) -> str:
        return f"<Housekeeping of {self._world.link.name}>"

    async def hold(self) -> None:
        """Tell the source again and again what it need not hold any more."""
        clock, due = self._world.clock, 0.0
        while True:
            if self._is_hold_urgent() or clock.monotonic() >= due:
                await self._health.repeat(self._send_holds, source=True)
                due = clock.monotonic() + MIRROR_HOLD_SECONDS
            await asyncio.sleep(MIRROR_FULL_HOLD_SECONDS)

    def _is_hold_urgent(self) -> bool:
        """Return whether the source knows nothing of some stream yet, which it may truncate, or its writers wait."""
        bound = self._world.bound
        if bound is not None and bound.is_full:
            return True
        return any(one.held is None and one.facts is not None and not one.over for one in self._world.tracks)

    async def release(self) -> None:
        """Have the source keep nothing for this link any more.  Raises what the source raises."""
        for track in self._world.tracks:
            track.over = True
        await self._send_holds()

    async def _send_holds(self) -> None:
        by_scope: dict[str, list[tuple[Track, Cut]]] = {}
        for track in self._world.tracks:
            cut = {} if track.over else _cut_to_hold(track)
            if cut and self._world.bound is not None and self._world.bound.is_given_up(track.name, cut):
                continue
            if cut != (track.held or {}) and (cut or track.over):
                by_scope.setdefault(track.name.scope, []).append((track, cut))
        for scope, found in by_scope.items():
            for at in range(0, len(found), MAX_MIRROR_STREAMS_PER_CALL):
                part = found[at : at + MAX_MIRROR_STREAMS_PER_CALL]
                try:
                    await self._world.source.hold(self._world.identity, scope, [(one.name, cut) for one, cut in part])
                except (Forbidden, NotFound, Invalid) as error:
                    self._discovery.problems[scope] = cut_text(str(error), MAX_LINK_NOTE_CHARACTERS)
                    break
                for track, cut in part:
                    track.held = cut

    async def copy_attached(self, attached: AttachedCopier) -> None:
        """Copy tables, schemas and cuts again and again."""
        await self._discovery.listed.wait()
        while True:
            for scope in self.attached_scopes():
                await self._health.pause()
                await self._copy_scope(attached, scope)
            await asyncio.sleep(MIRROR_ATTACHED_SECONDS)

    async def _copy_scope(self, attached: AttachedCopier, scope: str) -> None:
        """Copy what goes with the streams of a scope; recorded cuts less often than tables."""
        now = self._world.clock.monotonic()
        fresh: list[Track] = []
        if now - self._cuts_copied.get(scope, -MIRROR_CUTS_SECONDS) >= MIRROR_CUTS_SECONDS:
            fresh = [one for one in self._world.tracks.of_scope(scope) if one.begun and one.fresh and not one.over]
        for one in fresh:
            one.fresh = False
        try:
            self.attached_problems[scope] = await attached.copy(scope, [one.name for one in fresh])
        except SaritError as error:
            for one in fresh:
                one.fresh = True
            if isinstance(error, Unavailable):
                self._health.failed(error)
                return
            text = cut_text(str(error), MAX_LINK_NOTE_CHARACTERS)
            self.attached_problems[scope] = [StreamProblem(f"{scope}: what goes with its streams", text)]
        else:
            if fresh:
                self._cuts_copied[scope] = now

    def attached_scopes(self) -> list[str]:
        """Return the scopes with something to copy beside their streams."""
        return [*sorted(self._discovery.scopes), *([SYSTEM_SCOPE] if self._world.link.settings.registry else [])]

    async def measure_lag(self) -> None:
        """Ask the source, which is this installation, how far behind mirrors are while their target is away."""
        while True:
            await asyncio.sleep(MIRROR_STATES_SECONDS)
            for scope in () if self._health.up else list(self._discovery.scopes):
                known = [one for one in self._world.tracks.of_scope(scope) if one.position and not one.over]
                for at in range(0, len(known), MAX_MIRROR_STREAMS_PER_CALL):
                    with suppress(SaritError):  # the figures stay as they were
                        await self._measure(scope, known[at : at + MAX_MIRROR_STREAMS_PER_CALL])

    async def _measure(self, scope: str, tracks: Sequence[Track]) -> None:
        positions = [one.position for one in tracks if one.position is not None]
        offers = await self._world.source.offers(scope, positions, self._world.gate.rate.round_bytes)
        for track, offer in zip(tracks, offers, strict=True):
            if offer is not None and offer.lengths and not track.taken:
                track.behind, track.oldest_ms = offer.behind, offer.oldest_ms or track.oldest_ms

    async def ask_states(self) -> None:
        """Find out that mirrors were promoted though their sources do not grow: by one of each scope, in turn."""
        world, turn = self._world, 0
        while True:
            await asyncio.sleep(MIRROR_STATES_SECONDS)
            for scope in list(self._discovery.scopes):
                tracks = [one for one in world.tracks.of_scope(scope) if one.begun and not one.over]
                if world.tracks.promoted:
                    self._begin_again(tracks)
                elif tracks:
                    names = [tracks[turn % len(tracks)].name]
                    try:
                        states = await world.target.states(world.identity, scope, names)
                        self._health.answered(source=False)
                    except SaritError as error:  # who copies finds out what else is wrong
                        if isinstance(error, Unavailable):
                            self._health.failed(error)
                        continue
                    if any(state.status is MirrorStatus.PROMOTED for state in states):
                        self._begin_again(tracks)
            turn += 1

    def _begin_again(self, tracks: Sequence[Track]) -> None:
        for one in tracks:
            if not one.taken:
                one.state = None
                self._world.tracks.mark(one, self._world.source_ms)


def _cut_to_hold(track: Track) -> Cut:
    """Return the cut behind which a mirror needs everything."""
    if track.state is None or track.state.position is None:
        return dict(track.held or ({} if track.facts is None else track.facts.head))
    # Where the mirror begins in the midst of an epoch, the rest of its head belongs to later ones.
    position, head = track.state.position, track.state.head
    later = {
        s: at for s, at in head.items() if s not in position.lengths and SegmentId.unpack(s).epoch > position.epoch
    }
    return {**later, **position.lengths}
