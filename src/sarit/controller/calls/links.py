"""The calls on links to other installations, which `sarit.mirror` carries out.

What it takes is made, and imported, at the first call: a controller without links does not pay for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sarit.core.errors import Invalid
from sarit.rpc.generated import sarit_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable


class Links(Protocol):
    """The links of an installation (`mirror/link_calls.py`)."""

    async def create(self, request: pb.CreateLinkRequest) -> pb.LinkInfo:
        """Create a link.  Raises Invalid, Exists."""

    async def all(self) -> pb.ListLinksResponse:
        """Return all links."""

    async def status(self, name: str) -> pb.LinkInfo:
        """Return one link, with how far it is.  Raises NotFound, Invalid."""

    async def change(self, request: pb.ChangeLinkRequest) -> pb.LinkInfo:
        """Pause or resume a link, or give it other settings.  Raises NotFound, Invalid, Conflict, Exists."""

    async def delete(self, name: str) -> str:
        """Delete a link.  Raises NotFound, Invalid."""

    async def promote(self, name: str, *, planned: bool) -> pb.PromoteLinkResponse:
        """Promote mirrors of a link.  Raises NotFound, Invalid."""


class LinkCalls:
    """Calls on links.  `made`: returns the links of this installation; None: it has none, in tests."""

    def __init__(self, made: Callable[[], Links] | None) -> None:
        self._made = made

    @property
    def _links(self) -> Links:
        if self._made is None:
            raise Invalid("this controller has no links")
        return self._made()

    async def createLink(self, request: pb.CreateLinkRequest) -> pb.LinkInfo:
        return await self._links.create(request)

    async def listLinks(self, request: pb.ListLinksRequest) -> pb.ListLinksResponse:
        return await self._links.all()

    async def linkStatus(self, request: pb.LinkStatusRequest) -> pb.LinkInfo:
        return await self._links.status(request.name)

    async def changeLink(self, request: pb.ChangeLinkRequest) -> pb.LinkInfo:
        return await self._links.change(request)

    async def deleteLink(self, request: pb.DeleteLinkRequest) -> pb.DeleteLinkResponse:
        return pb.DeleteLinkResponse(problem=await self._links.delete(request.name))

    async def promoteLink(self, request: pb.PromoteLinkRequest) -> pb.PromoteLinkResponse:
        return await self._links.promote(request.name, planned=request.planned)
