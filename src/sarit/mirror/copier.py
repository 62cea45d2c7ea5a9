"""Carries out a link: finds its streams, and copies what they have, until their mirrors are promoted.

    scopes, streams ──▶ tracks ◀── the source says which streams have grown
                          │ ready ones of one scope and class
                          ▼
                        batches ──▶ source, target        beside them: holds, what goes with streams, the end

*Errors.*  One that is about a stream, or about a scope, is noted there, and tried again after a pause; the rest goes
on.  One of the link (a peer that does not answer, that does not know the link's user, that is of another version) stops
all for a pause that grows.  The place is never lost: it is the length of the mirror.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.core.errors import Invalid, SaritError
from sarit.core.links import LinkDirection, LinkState, LinkStatus, StreamProblem
from sarit.mirror.batches import Batch
from sarit.mirror.copier_world import CopierWorld, LinkHealth
from sarit.mirror.discovery import Discovery
from sarit.mirror.drain import Drain, until
from sarit.mirror.gate import Gate
from sarit.mirror.housekeeping import Housekeeping
from sarit.mirror.limits import (
    MAX_MIRROR_RETRY_SECONDS,
    MAX_MIRROR_STREAMS_PER_CALL,
    MIRROR_BATCHES_AT_ONCE,
    MIRROR_PROTOCOL,
)
from sarit.mirror.link_checks import minutes_of
from sarit.mirror.order import LinkRate, closed_seconds
from sarit.mirror.tracks import Tracks
from sarit.mirror.values import LinkIdentity

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

    from sarit.core.links import Link
    from sarit.env.ports import Env
    from sarit.mirror.hold_bounds import HoldBound
    from sarit.mirror.housekeeping import AttachedCopier
    from sarit.mirror.ports import MirrorSource, MirrorTarget
    from sarit.mirror.tracks import Track
    from sarit.mirror.values import Site


class Copier:
    """The copier of one active link, with its settings as they were when it was made."""

    def __init__(
        self, link: Link, installation: str, source: MirrorSource, target: MirrorTarget, env: Env,
        attached: AttachedCopier | None = None, copied_bytes: int = 0, lost_bytes: int = 0,
        met: Callable[[str], Awaitable[None]] | None = None, bound: HoldBound | None = None,
    ) -> None:  # fmt: skip
        """`installation`: the own one.  `copied_bytes`, `lost_bytes`: before this copier.  `bound`: of what the own
        installation holds for the link; None: it holds nothing.

        `met`: called with the id of the peer when it is first reached."""
        self._link = link
        self._installation = installation
        self._env = env
        self._attached = attached
        self._met = met
        clock = env.clock
        window = minutes_of(link.settings.window)
        gate = Gate(
            LinkRate(link.settings.bytes_per_second, clock.monotonic()), clock,
            lambda: closed_seconds(window, clock.wall_ms()),
        )  # fmt: skip
        self._world = CopierWorld(
            link, LinkIdentity(link.link_id, link.name, installation), source, target, Tracks(clock.monotonic), gate,
            clock, copied_bytes=copied_bytes, lost_bytes=lost_bytes, bound=bound,
        )  # fmt: skip
        self._health = LinkHealth(clock, link.name, pulls=link.settings.direction is LinkDirection.PULL)
        self._running: dict[int, int] = {}  # batches, by class
        self._discovery = Discovery(self._world, self._health, self._spawn)
        self._housekeeping = Housekeeping(self._world, self._health, self._discovery)
        self._skew_ms = 0  # how far the peer's clock is ahead
        self._compressed = False
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in order of their start, as the simulation needs it
        self._broken: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<Copier of link {self._link.name}, {self._world.tracks!r}>"

    def status(self) -> LinkStatus:
        """Return how far the link is."""
        world, health = self._world, self._health
        failing, problems = world.tracks.problems()
        others = [StreamProblem(f"{scope}/*", text) for scope, text in self._discovery.problems.items()]
        others += [one for found in self._housekeeping.attached_problems.values() for one in found]
        waiting = [one for one in world.tracks if not one.over and (one.behind or one.ready or one.taken)]
        oldest = min((one.oldest_ms for one in waiting if one.oldest_ms), default=0)
        return LinkStatus(
            up=health.up,
            contact_ms=health.contact_ms,
            streams=sum(not one.over for one in world.tracks),
            lag_bytes=sum(one.behind for one in waiting),
            lag_seconds=max(0.0, (world.source_ms - oldest) / 1000) if oldest else 0.0,
            copied_bytes=world.copied_bytes,
            lost_bytes=world.lost_bytes,
            clock_skew_ms=self._skew_ms,
            compressed=self._compressed,
            failing=failing + len(others),
            problems=(*others, *problems),
            note=health.note,
        )

    async def run(self) -> None:
        """Copy until all mirrors are promoted.  Raises whatever is not expected."""
        self._broken = asyncio.get_running_loop().create_future()
        end = asyncio.create_task(self._work())
        try:
            await asyncio.wait([end, self._broken], return_when=asyncio.FIRST_COMPLETED)
            if self._broken.done():
                self._broken.result()
            await end
        finally:
            self._world.gate.close()
            left = [end, *self._tasks]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            if self._broken.done() and not self._broken.cancelled():
                self._broken.exception()

    async def release(self) -> None:
        """Have the source keep nothing for this link, which has ended, after `run`.  Raises what the source raises."""
        await self._housekeeping.release()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start work beside the rest; its failure ends the copier."""
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)

    async def _work(self) -> None:
        await self._health.repeat(self._greet)
        self._spawn(self._discovery.run())
        self._spawn(self._schedule())
        if self._link.settings.direction is LinkDirection.PUSH:
            self._spawn(self._housekeeping.measure_lag())
        if self._link.settings.hold_bytes:
            self._spawn(self._housekeeping.hold())
        if self._attached is not None:
            self._spawn(self._housekeeping.copy_attached(self._attached))
        await self._discovery.listed.wait()
        if self._link.state is LinkState.DRAINING:
            await Drain(self._world, self._health, self._discovery, self._housekeeping, self._attached).run()
            return
        tracks = self._world.tracks
        self._spawn(self._housekeeping.ask_states())
        await until(lambda: self._is_promoted(tracks))

    @staticmethod
    def _is_promoted(tracks: Tracks) -> bool:
        """Return whether all mirrors were promoted, and not by this copier."""
        return bool(tracks.promoted) and all(one.over or one.refused for one in tracks)

    # -- the two sides ------------------------------------------------------------------------------

    async def _greet(self) -> None:
        """Check who the two sides are.  Raises Invalid, and what the sides raise."""
        world, clock = self._world, self._env.clock
        pushes = self._link.settings.direction is LinkDirection.PUSH
        begun_ms = clock.wall_ms()
        source, target = await world.source.site(), await world.target.site()
        peer = target if pushes else source
        self._check_sites(source, target, peer)
        self._skew_ms = peer.wall_ms - (begun_ms + clock.wall_ms()) // 2
        world.skew_ms = 0 if pushes else self._skew_ms
        self._compressed = source.compresses and target.compresses
        if self._met is not None and self._link.peer_installation != peer.installation:
            await self._met(peer.installation)

    def _check_sites(self, source: Site, target: Site, peer: Site) -> None:
        if source.installation == target.installation:
            raise Invalid(
                f"link {self._link.name} leads to its own installation {peer.installation}: give the address of another"
            )
        if (known := self._link.peer_installation) and known != peer.installation:
            raise Invalid(
                f"the peer of link {self._link.name} was installation {known}, and {peer.installation} answers there "
                "now: change its address, or delete the link and create it again"
            )
        for site in (source, target):
            if site.protocol != MIRROR_PROTOCOL:
                raise Invalid(
                    f"installation {site.installation} speaks version {site.protocol} of links, and this one "
                    f"{MIRROR_PROTOCOL}: install the same release on both sides"
                )

    # -- batches ------------------------------------------------------------------------------------

    async def _schedule(self) -> None:
        """Start a batch whenever a class has streams to copy, and not as many batches as it may."""
        tracks, clock = self._world.tracks, self._env.clock
        window = minutes_of(self._link.settings.window)
        while True:
            await self._health.pause()
            if closed := closed_seconds(window, clock.wall_ms()):
                await asyncio.sleep(min(closed, MAX_MIRROR_RETRY_SECONDS))
                continue
            tracks.changed.clear()
            following = tracks.wake(self._world.source_ms)
            batch = tracks.take(MAX_MIRROR_STREAMS_PER_CALL, self._is_free)
            if batch:
                level = batch[0].level
                self._running[level] = self._running.get(level, 0) + 1
                self._spawn(self._carry_out(batch))
                continue
            await _first_of(tracks.changed, following)

    def _is_free(self, level: int) -> bool:
        return self._running.get(level, 0) < MIRROR_BATCHES_AT_ONCE

    async def _carry_out(self, tracks: list[Track]) -> None:
        try:
            answers = self._world.answers
            await Batch(self._world, tracks).carry_out()
            self._health.answered(source=True)
            if self._world.answers != answers:
                self._health.answered(source=False)
        except SaritError as error:
            self._health.failed(error)
        finally:
            self._running[tracks[0].level] -= 1
            self._world.tracks.changed.set()


async def _first_of(event: asyncio.Event, seconds: float | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
