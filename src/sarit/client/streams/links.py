"""Links to other installations, for administrators: `client.links`.

A link copies streams from one installation to another, byte for byte at equal offsets (docs/guides/mirror.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sarit.client.limits import NEW_LINK_ID_BYTES
from sarit.client.session.guard import guarded
from sarit.core.links import LinkState
from sarit.rpc.generated import sarit_pb2 as pb
from sarit.rpc.link_messages import info_of, promotion_of, settings_message

if TYPE_CHECKING:
    from sarit.client.session.session import Session
    from sarit.core.links import LinkInfo, LinkPromotion, LinkSettings


@guarded("_session")
class Links:
    """The links of an installation: `client.links`.

    All methods raise Forbidden to all but administrators, and Invalid if the server has no links."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"Links({self._session.controller.address}, {self._session.state()})"

    async def create(self, name: str, settings: LinkSettings, *, paused: bool = False) -> LinkInfo:
        """Create a link, which begins to copy unless it is `paused`.

        Raises Invalid (the settings; the peer may not be one), Exists (the name is in use, or another link may write
        the same stream), Unauthenticated and Forbidden (by the peer).  A peer that is away is no error."""
        link_id = self._session.env.random.bytes(NEW_LINK_ID_BYTES)  # the same in each attempt, so that only one counts
        request = pb.CreateLinkRequest(name=name, linkId=link_id, settings=settings_message(settings), paused=paused)
        return info_of(await self._call("createLink", request))

    async def get(self, name: str) -> LinkInfo:
        """Return a link, with how far it is.  Raises NotFound."""
        return info_of(await self._call("linkStatus", pb.LinkStatusRequest(name=name)))

    async def change(self, name: str, settings: LinkSettings) -> LinkInfo:
        """Give a link other settings, all of them; direction and start stay.  Raises NotFound, Invalid, Exists."""
        version = (await self.get(name)).version
        message = settings_message(settings)
        return info_of(
            await self._call("changeLink", pb.ChangeLinkRequest(name=name, settings=message, version=version))
        )

    async def pause(self, name: str) -> LinkInfo:
        """Let a link copy nothing until it is resumed; its source goes on holding for it.  Raises NotFound, Invalid."""
        return await self._set(name, LinkState.PAUSED)

    async def resume(self, name: str) -> LinkInfo:
        """Let a paused link copy again, from where it was.  Raises NotFound, Invalid."""
        return await self._set(name, LinkState.ACTIVE)

    async def delete(self, name: str) -> str:
        """Delete a link: nothing is copied or held for it any more, and its mirrors stay as they are.  Raises NotFound.

        Returns what is left to be done by hand, since its source could not be reached; empty: nothing."""
        problem = ""

        async def call() -> None:
            nonlocal problem
            controller = self._session.controller
            reply = await controller.call(controller.sarit_stub.deleteLink, pb.DeleteLinkRequest(name=name))
            problem = reply.problem

        await self._session.with_retry_of_deletion(call)
        return problem

    async def promote(self, name: str, *, planned: bool) -> LinkPromotion:
        """Make streams of a link's mirrors, which writers may write from then on.

        `planned`: where the link runs; its source becomes read-only, what is missing is copied, and nothing is lost:
        `get` shows when the state is PROMOTED.  Otherwise where the mirrors are: some of them are promoted at once, and
        the source is not made read-only, so make sure that nobody writes to it.  Repeat the call until none is left.

        Raises NotFound, Invalid."""
        return promotion_of(await self._call("promoteLink", pb.PromoteLinkRequest(name=name, planned=planned)))

    async def list(self) -> tuple[LinkInfo, ...]:
        """Return all links by name, without the problems of their streams."""
        return tuple(info_of(link) for link in (await self._call("listLinks", pb.ListLinksRequest())).links)

    async def _set(self, name: str, state: LinkState) -> LinkInfo:
        return info_of(await self._call("changeLink", pb.ChangeLinkRequest(name=name, state=state.value)))

    async def _call(self, rpc: str, request: Any) -> Any:
        controller = self._session.controller
        return await self._session.with_retry(lambda: controller.call(getattr(controller.sarit_stub, rpc), request))
