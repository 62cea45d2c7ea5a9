"""The links of an installation, for its administrators: create, list, change, delete and promote them.

*A creation* stores the row, then the link's internal stream, then the job, and a deletion goes the other way, so a link
whose creation was interrupted is listed.  Who repeats the creation, or resumes the link, completes it.

*A planned promotion* only changes the state of the link, where it runs: its job makes the source read-only, copies the
rest, and promotes the mirrors.  *An unplanned one* is made where the mirrors are, without the source and its link: page
by page, in as many calls as it takes, and as often as somebody likes.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from sarit.controller import keys
from sarit.controller.jobs import JobTable
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, SaritError, Unavailable
from sarit.core.links import (
    Link,
    LinkDirection,
    LinkInfo,
    LinkRole,
    LinkSettings,
    LinkState,
    LinkStatus,
    StreamProblem,
)
from sarit.core.names import SYSTEM_SCOPE, StreamName
from sarit.core.policies import StreamConfig
from sarit.core.texts import cut_text
from sarit.mirror.limits import (
    LINK_ID_BYTES,
    LINK_PROMOTE_SECONDS,
    MAX_LINK_NOTE_CHARACTERS,
    MAX_LINK_PROBLEMS,
    MAX_MIRROR_STREAMS_PER_CALL,
    PEER_CHECK_SECONDS,
)
from sarit.mirror.link_checks import check_name, check_settings
from sarit.mirror.link_codec import decode_status
from sarit.mirror.link_table import job_of, stream_of
from sarit.mirror.mirror_records import read_mirror
from sarit.mirror.peer import Peer
from sarit.mirror.remote import RemoteSource
from sarit.mirror.values import LinkIdentity, MirrorStatus
from sarit.rpc.generated import sarit_pb2 as pb
from sarit.rpc.link_messages import info_message, problem_messages, settings_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.controller.streams import Streams
    from sarit.env.ports import Env
    from sarit.mirror.link_table import LinkTable
    from sarit.mirror.ports import MirrorTarget

_log = logging.getLogger("sarit.mirror")


async def contact_peer(settings: LinkSettings, env: Env, installation: str) -> str:
    """Return the id of the installation at the other end of a link; empty: it cannot be reached now.

    Raises Invalid: it may not be the peer of `installation`; Unauthenticated, Forbidden."""
    peer = Peer(settings, env, installation)
    try:
        async with asyncio.timeout(PEER_CHECK_SECONDS):
            return (await peer.site()).installation
    except (Unavailable, TimeoutError) as error:
        _log.info("the peer %s of a new link is not reached yet: %s", settings.peer, error)
        return ""
    finally:
        await peer.close()


async def release_at_peer(link: Link, env: Env, installation: str) -> str:
    """Have the source of a link that pulls keep nothing for it any more.

    Returns what is left to be done by hand; empty: nothing."""
    identity = LinkIdentity(link.link_id, link.name, installation)
    peer, why = None, ""
    try:
        async with asyncio.timeout(PEER_CHECK_SECONDS):
            peer = Peer(link.settings, env, installation, link.peer_installation)
            source, scope = RemoteSource(peer), ""
            while scopes := await source.scopes(scope):
                for scope in scopes:
                    await source.hold(identity, scope, ())
            return ""
    except TimeoutError:
        why = "it does not answer"
    except SaritError as error:
        why = str(error)
    finally:
        if peer is not None:
            await peer.close()
    return (
        f"{link.settings.peer} may go on holding for link {link.name} ({cut_text(why, MAX_LINK_NOTE_CHARACTERS)}): "
        "`sarit link list` there names it, and `sarit link delete` there ends that"
    )


class Mirrors(Protocol):
    """This installation, as links see it."""

    @property
    def installation(self) -> str:
        """Return its id."""

    @property
    def links(self) -> LinkTable:
        """Return the table of its links."""

    @property
    def target(self) -> MirrorTarget:
        """Return its mirrors."""


class LinkService:
    """The links of an installation.

    `contact`: returns the id of the peer's installation, or "" if it is away, as `contact_peer` does.  `drop_holds`:
    removes what streams of this installation keep for a link.  `release`: has the peer of a link keep nothing for it,
    and returns what is left to be done, as `release_at_peer` does.  `runs_jobs`: there are workers."""

    def __init__(
        self, mirrors: Mirrors, streams: Streams, env: Env, contact: Callable[[LinkSettings], Awaitable[str]],
        drop_holds: Callable[[bytes], Awaitable[None]], release: Callable[[Link], Awaitable[str]], *, runs_jobs: bool,
    ) -> None:  # fmt: skip
        self._mirrors = mirrors
        self._table = mirrors.links
        self._streams = streams
        self._catalog = streams.catalog
        self._jobs = JobTable(streams.catalog)
        self._env = env
        self._contact = contact
        self._runs_jobs = runs_jobs
        self._drop_holds = drop_holds
        self._release = release

    def __repr__(self) -> str:
        return f"<LinkService of {self._mirrors.installation}>"

    # -- calls ----------------------------------------------------------------------------------------

    async def create(self, request: pb.CreateLinkRequest) -> pb.LinkInfo:
        """Create a link, or complete a creation with the same id.  Raises Invalid, Exists, Unauthenticated,
        Forbidden."""
        if not self._runs_jobs:
            raise Invalid("this server runs no background jobs, and a link is one: start it with --jobs on")
        if len(request.linkId) != LINK_ID_BYTES:
            raise Invalid(f"the id of a link has {LINK_ID_BYTES} bytes")
        check_name(request.name)
        settings = settings_of(request.settings)
        check_settings(settings)
        known = await self._table.get(request.name)
        if known is None or known.link_id != request.linkId:
            if known is not None:
                raise Exists(f"there is a link {request.name}: give another name")
            peer, now_ms = await self._contact(settings), self._env.clock.wall_ms()
            state = LinkState.PAUSED if request.paused else LinkState.ACTIVE
            link = Link(request.name, request.linkId, now_ms, LinkRole.ACTIVE, state, settings, peer)
            known = await self._table.create(link)
        await self._complete(known)
        return await self._message(known)

    async def all(self) -> pb.ListLinksResponse:
        """Return all links, without the problems of their streams."""
        infos = [info_message(await self._info(link), problems=False) for link in await self._table.list()]
        return pb.ListLinksResponse(links=infos)

    async def status(self, name: str) -> pb.LinkInfo:
        """Return a link, with how far it is.  Raises NotFound, Invalid."""
        return await self._message(await self._table.require(name))

    async def change(self, request: pb.ChangeLinkRequest) -> pb.LinkInfo:
        """Pause or resume a link, or give it other settings.  Raises NotFound, Invalid, Conflict, Exists."""
        link = await self._table.require(request.name)
        if link.role is LinkRole.PASSIVE:
            raise Invalid(f"link {link.name} runs in installation {link.peer_installation}: change it there")
        if link.state is LinkState.PROMOTED:
            raise Invalid(f"the mirrors of link {link.name} are promoted: delete it, and create one the other way")
        if request.HasField("settings"):
            if request.version != link.version:
                raise Conflict(f"link {link.name} was changed in between: read it again")
            settings = settings_of(request.settings)
            if settings.peer != link.settings.peer:
                link = replace(link, peer_installation=await self._contact(settings))
            link = await self._table.change(link, settings)
        if request.state:
            link = await self._set(link, _state_of(request.state))
        return await self._message(link)

    async def delete(self, name: str) -> str:
        """Delete a link, and what is kept for it.  Its mirrors stay as they are.  Raises NotFound, Invalid.

        Returns what is left to be done by hand; empty: nothing."""
        link = await self._table.require(name)
        if link.role is LinkRole.ACTIVE:
            with suppress(NotFound):
                await self._jobs.delete(job_of(name))
            with suppress(NotFound):
                await self._streams.seal(stream_of(name))
                await self._streams.delete(stream_of(name))
        await self._drop_holds(link.link_id)
        await self._table.delete(link)
        settings = link.settings
        if link.role is LinkRole.PASSIVE or settings.direction is LinkDirection.PUSH or not settings.hold_bytes:
            return ""
        # The copier lets its streams go when it ends; but it may be paused, or know none of them.
        problem = await self._release(link)
        if problem:
            _log.warning("link %s is deleted: %s", name, problem)
        return problem

    async def promote(self, name: str, *, planned: bool) -> pb.PromoteLinkResponse:
        """Promote mirrors of a link: in a planned way by its job, or else some of them now.  Raises NotFound,
        Invalid."""
        link = await self._table.require(name)
        if planned:
            return pb.PromoteLinkResponse(link=await self._message(await self._drain(link)))
        if link.role is LinkRole.ACTIVE and link.settings.direction is LinkDirection.PUSH:
            raise Invalid(
                f"the mirrors of link {name} are at {link.settings.peer}: promote them there, or here in a planned way"
            )
        link = await self._set(link, LinkState.PROMOTED)
        promoted, left, problems = await self._promote_some(link)
        return pb.PromoteLinkResponse(
            link=await self._message(link), promoted=promoted, left=left, problems=problem_messages(problems)
        )

    # -- steps ----------------------------------------------------------------------------------------

    async def _complete(self, link: Link) -> None:
        """Create the stream and the job of a link where they are missing, or of an earlier link."""
        with suppress(Exists):
            await self._streams.create(stream_of(link.name), StreamConfig())
        key = job_of(link.name)
        found = await self._jobs.find(key)
        if found is not None and (found.job.settings != link.link_id or found.job.done):
            with suppress(NotFound):
                await self._jobs.delete(key)
            found = None
        if found is None:
            with suppress(Exists):
                await self._jobs.create(key, link.link_id)

    async def _set(self, link: Link, state: LinkState) -> Link:
        if link.state is not state:
            if link.state is LinkState.DRAINING and state is not LinkState.PROMOTED:
                raise Invalid(f"link {link.name} is being promoted: its source is read-only already")
            link = await self._table.update(replace(link, state=state))
        if state is LinkState.ACTIVE:
            await self._complete(link)
        return link

    async def _drain(self, link: Link) -> Link:
        if link.role is LinkRole.PASSIVE:
            raise Invalid(
                f"link {link.name} runs in installation {link.peer_installation}: a planned promotion begins there; "
                "without its source, promote unplanned here"
            )
        if link.state is LinkState.PROMOTED:
            return link
        if link.state is not LinkState.DRAINING:
            link = await self._table.update(replace(link, state=LinkState.DRAINING))
        await self._complete(link)
        return link

    async def _promote_some(self, link: Link) -> tuple[int, int, list[StreamProblem]]:
        """Promote mirrors of a link for some seconds.  Returns how many, how many are left, and why."""
        clock = self._env.clock
        deadline, promoted, left = clock.monotonic() + LINK_PROMOTE_SECONDS, 0, 0
        problems: list[StreamProblem] = []
        scopes = await self._table.scopes(link.link_id)
        if scopes:
            await self._promote_attached(link, SYSTEM_SCOPE, problems)  # the schema registry
        for scope in scopes:
            try:
                found = await self._mirrors_of(link, scope)
                await self._promote_attached(link, scope, problems)
            except NotFound:  # the scope was deleted
                continue
            for at in range(0, len(found), MAX_MIRROR_STREAMS_PER_CALL):
                page = found[at : at + MAX_MIRROR_STREAMS_PER_CALL]
                if clock.monotonic() >= deadline and promoted:
                    left += len(page)
                    continue
                states = await self._mirrors.target.promote(self._identity(link), scope, page)
                for state in states:
                    if state.status is MirrorStatus.PROMOTED:
                        promoted += 1
                    elif state.status is not MirrorStatus.BUSY:
                        problems.append(StreamProblem(str(state.name), state.reason))
                left += len(page) - sum(state.status is MirrorStatus.PROMOTED for state in states)
        return promoted, left, [_bounded(problem) for problem in problems[:MAX_LINK_PROBLEMS]]

    async def _promote_attached(self, link: Link, scope: str, problems: list[StreamProblem]) -> None:
        states = await self._mirrors.target.attached.promote_attached(self._identity(link), scope)
        # A promoted table may have a reason, too: its rows may be of different moments.
        reported = [state for state in states if state.status is not MirrorStatus.PROMOTED or state.reason]
        problems += [StreamProblem(str(state.name), state.reason) for state in reported]

    async def _mirrors_of(self, link: Link, scope: str) -> list[StreamName]:
        """Return the mirrors of a link in a scope.  Raises NotFound (scope)."""
        found, after = [], b""
        while rows := await self._catalog.scan_once(scope, keys.STREAMS, after):
            after = rows[-1][0]
            names = [StreamName(scope, key[len(keys.STREAMS) :].decode()) for key, _ in rows]
            mirrored = [
                name
                for name, (_, value) in zip(names, rows, strict=True)
                if self._catalog.seen.decode(name, value).record.mirrored
            ]
            known = await self._catalog.get(scope, [keys.mirror_key(name.stream) for name in mirrored])
            for name, row in zip(mirrored, known, strict=True):
                record = read_mirror(name, row)
                if record is not None and record.link.link_id == link.link_id:
                    found.append(name)
        return found

    def _identity(self, link: Link) -> LinkIdentity:
        runs_at = self._mirrors.installation if link.role is LinkRole.ACTIVE else link.peer_installation
        return LinkIdentity(link.link_id, link.name, runs_at)

    # -- answers ----------------------------------------------------------------------------------------

    async def _info(self, link: Link) -> LinkInfo:
        status, holder, problem = LinkStatus(), "", ""
        if link.role is LinkRole.ACTIVE:
            try:
                found = await self._jobs.find(job_of(link.name))
                if found is None:
                    problem = "its creation was interrupted: `sarit link resume` completes it"
                elif found.job.settings == link.link_id:
                    status, holder, problem = decode_status(found.job.state), found.job.holder, found.job.problem
            except SaritError as error:
                problem = str(error)[:MAX_LINK_NOTE_CHARACTERS]
        return LinkInfo(
            link.name, link.link_id, link.created_ms, link.role, link.state, link.settings, link.peer_installation,
            link.version, status, holder, problem,
        )  # fmt: skip

    async def _message(self, link: Link) -> pb.LinkInfo:
        return info_message(await self._info(link))


def _state_of(text: str) -> LinkState:
    if text not in (LinkState.ACTIVE.value, LinkState.PAUSED.value):
        raise Invalid("a link can be made active or paused: other states are those of promotions")
    return LinkState(text)


def _bounded(problem: StreamProblem) -> StreamProblem:
    return StreamProblem(problem.stream, problem.text[:MAX_LINK_NOTE_CHARACTERS])
