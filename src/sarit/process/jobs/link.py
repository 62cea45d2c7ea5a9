"""The kind of job that carries out a link to another installation (`mirror/copier.py`).

    the link's row ─┬─ gone, another link, or PROMOTED ─▶ the job is done
                    ├─ PAUSED ─▶ nothing is copied
                    └─ ACTIVE, DRAINING ─▶ a copier, until the row has another state or other settings

The row is read every few seconds, so who changes it needs to notify nobody.  The job's state is the link's status, for
people: where a mirror is, its target knows.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from sarit.core.errors import Conflict, Fenced, Invalid, SaritError
from sarit.core.links import LinkDirection, LinkRole, LinkState, LinkStatus
from sarit.core.texts import cut_text
from sarit.mirror.attached_copy import AttachedToLink
from sarit.mirror.copier import Copier
from sarit.mirror.limits import LINK_ID_BYTES, MAX_LINK_NOTE_CHARACTERS
from sarit.mirror.link_codec import decode_status, encode_status
from sarit.mirror.link_table import stream_of
from sarit.mirror.remote import RemoteSource, RemoteTarget
from sarit.mirror.values import LinkIdentity
from sarit.process.jobs.link_watch import LinkWatch
from sarit.process.limits import LINK_POLL_SECONDS, LINK_RELEASE_SECONDS, LINK_STATUS_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from sarit.controller.jobs import Job, JobKey, Runner, Save
    from sarit.core.links import Link
    from sarit.env.ports import Env
    from sarit.mirror.hold_bounds import HoldBound
    from sarit.mirror.ports import MirrorSource, MirrorTarget
    from sarit.mirror.site import MirrorSite
    from sarit.process.job_kinds import JobConfig, JobWorld

    class Connected(Protocol):
        """The two sides of a link, one of them at its peer."""

        source: MirrorSource
        target: MirrorTarget

        async def close(self) -> None:
            """End the connection to the peer."""


def check(key: JobKey, settings: bytes, config: JobConfig) -> None:
    """Check that a job may be created: of a link, by the link itself.  Raises Invalid."""
    if key.stream != stream_of(key.name) or len(settings) != LINK_ID_BYTES:
        raise Invalid(f"{key} is no job of a link: create links with `sarit link create`")


def describe(state: bytes) -> dict[str, str]:
    """Return how far a link is, for people."""
    status = decode_status(state)
    return {
        "link": "up" if status.up else "down",
        "streams": str(status.streams),
        "lag": f"{status.lag_bytes} bytes, {status.lag_seconds:.0f} s",
        "copied": f"{status.copied_bytes} bytes",
        **({"failing": str(status.failing)} if status.failing else {}),
        **({"note": status.note} if status.note else {}),
    }


def runner(world: JobWorld) -> Runner:
    """Return what runs the jobs of this kind, and add their metrics and their health to those of the process."""
    jobs = LinkJobs(world.mirror, world.env, PeerSides)
    world.statistics.add(jobs.watch.samples, jobs.watch.reasons)
    return jobs.run


class PeerSides:
    """The sides of a link whose peer is reached over the network."""

    def __init__(self, site: MirrorSite, link: Link) -> None:
        self._peer = site.peer(link)
        pushes = link.settings.direction is LinkDirection.PUSH
        self.source: MirrorSource = site.source if pushes else RemoteSource(self._peer)
        self.target: MirrorTarget = cast("MirrorTarget", RemoteTarget(self._peer)) if pushes else site.target

    def __repr__(self) -> str:
        return f"<PeerSides of {self._peer!r}>"

    async def close(self) -> None:
        """End the connection to the peer."""
        await self._peer.close()


class LinkJobs:
    """The links that this process carries out."""

    def __init__(
        self, site: Callable[[], MirrorSite], env: Env, connect: Callable[[MirrorSite, Link], Connected]
    ) -> None:  # fmt: skip
        """`connect`: makes the sides of a link.  Raises Invalid."""
        self._site = site
        self._env = env
        self._connect = connect
        self.copiers: dict[str, Copier] = {}  # of the links that run here, by name
        self.watch = LinkWatch(env.clock)

    def __repr__(self) -> str:
        return f"<LinkJobs, {len(self.copiers)} run>"

    async def run(self, job: Job, save: Save) -> None:
        """Carry out a link until it is promoted or deleted.  Raises Fenced, Unavailable."""
        try:
            await self._run(job, save)
        except (Fenced, asyncio.CancelledError):
            self.watch.forget(job.key.name)
            raise
        except BaseException:
            self.watch.fail(job.key.name)
            raise
        self.watch.forget(job.key.name)

    async def _run(self, job: Job, save: Save) -> None:
        site, name = self._site(), job.key.name
        saved = _Saved(save, decode_status(job.state) if job.state else LinkStatus(), self._env)
        bound: HoldBound | None = None
        while True:
            link = await site.links.get(name)
            if link is None or link.link_id != job.settings or link.role is not LinkRole.ACTIVE:
                if bound is not None:
                    await bound.let_go()
                return
            if bound is None or bound.link.settings != link.settings:
                bound = site.hold_bound(link)
            if link.state is LinkState.PROMOTED:
                await bound.let_go()
                await saved.put(replace(saved.status, up=False, lag_bytes=0, lag_seconds=0.0, note="it is promoted"))
                return
            if link.state is LinkState.PAUSED:
                await self._note(name, saved, replace(saved.status, up=False, note="it is paused"), copies=False)
                await bound.check()
                await asyncio.sleep(LINK_POLL_SECONDS)
            elif await self._copy(site, link, saved, bound):
                await self._set_promoted(site, name, link.link_id)

    async def _copy(self, site: MirrorSite, link: Link, saved: _Saved, bound: HoldBound) -> bool:
        """Copy until the link's row changes, or all is promoted: returns whether it is."""
        try:
            sides = self._connect(site, link)
        except Invalid as error:  # for example, there is no file with its password now
            note = cut_text(str(error), MAX_LINK_NOTE_CHARACTERS)
            await self._note(link.name, saved, replace(saved.status, up=False, note=note))
            await bound.check()
            await asyncio.sleep(LINK_POLL_SECONDS)
            return False

        async def met(peer: str) -> None:
            found = await site.links.get(link.name)
            if found is not None and found.link_id == link.link_id:
                with suppress(Conflict):  # the row is read again in a moment
                    await site.links.update(replace(found, peer_installation=peer))

        identity = LinkIdentity(link.link_id, link.name, site.installation)
        copier = Copier(
            link, site.installation, sides.source, sides.target, self._env,
            AttachedToLink(sides.source, sides.target, identity, link.settings),
            saved.status.copied_bytes, saved.status.lost_bytes, met, bound,
        )  # fmt: skip
        self.copiers[link.name] = copier
        task, ended = asyncio.create_task(copier.run()), False
        try:
            while not task.done():
                await asyncio.wait([task], timeout=LINK_POLL_SECONDS)
                await self._note(link.name, saved, copier.status())
                await bound.check()
                if not task.done() and _is_changed(link, found := await site.links.get(link.name)):
                    ended = _has_ended(link, found)
                    return False
            task.result()
            ended = True
            return True
        except Fenced:  # another worker has the job, or it was deleted, with the link
            ended = _has_ended(link, await site.links.get(link.name))
            raise
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.copiers.pop(link.name, None)
            with suppress(SaritError, TimeoutError):
                if ended:
                    async with asyncio.timeout(LINK_RELEASE_SECONDS):
                        await bound.let_go()  # also if the link was deleted while it was measured what is held
                        await copier.release()
            with suppress(SaritError):
                await sides.close()

    async def _note(self, name: str, saved: _Saved, status: LinkStatus, *, copies: bool = True) -> None:
        self.watch.note(name, status, copies=copies)
        await saved.put(status)

    async def _set_promoted(self, site: MirrorSite, name: str, link_id: bytes) -> None:
        found = await site.links.get(name)
        if found is not None and found.link_id == link_id and found.state is not LinkState.PROMOTED:
            with suppress(Conflict):  # the copier of the next turn finds all promoted again
                await site.links.update(replace(found, state=LinkState.PROMOTED))


def _has_ended(link: Link, found: Link | None) -> bool:
    return found is None or found.link_id != link.link_id or found.state is LinkState.PROMOTED


def _is_changed(link: Link, found: Link | None) -> bool:
    """Return whether a copier has to end, or to begin again with other settings."""
    if found is None or found.link_id != link.link_id:
        return True
    return found.state is not link.state or found.settings != link.settings


class _Saved:
    """The status of a link as its job has saved it: at most every few seconds, unless `state` changes."""

    def __init__(self, save: Save, status: LinkStatus, env: Env) -> None:
        self._save = save
        self._clock = env.clock
        self._at: float | None = None
        self._stored = status
        self.status = status  # as it was given last

    async def put(self, status: LinkStatus) -> None:
        """Save a status, unless one was saved just before, or it is the same.  Raises Fenced, Unavailable."""
        self.status, now, last = status, self._clock.monotonic(), self._stored
        urgent = (status.up, status.failing, status.note) != (last.up, last.failing, last.note)
        if self._at is None or urgent or (now - self._at >= LINK_STATUS_SECONDS and status != last):
            await self._save(encode_status(status))
            self._at, self._stored = now, status
