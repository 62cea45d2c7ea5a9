"""The calls on scopes, and the list of controllers."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.core.errors import Exists, Invalid, NotFound
from sarit.rpc.convert import page_token
from sarit.rpc.generated import controller_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.controller.assignment import Address
    from sarit.controller.catalog import Catalog
    from sarit.controller.scopes import Scopes

_Create = pb.CreateScopeStatus
_Delete = pb.DeleteScopeStatus


class ScopeCalls:
    """Rpcs on scopes."""

    def __init__(self, catalog: Catalog, scopes: Scopes, members: Callable[[], Sequence[Address]]) -> None:
        """`members`: returns the addresses of all controllers."""
        self._catalog = catalog
        self._scopes = scopes
        self._members = members

    async def getControllerServerList(self, request: pb.ServerRequest) -> pb.ServerResponse:
        return pb.ServerResponse(nodeURI=[pb.NodeUri(endpoint=host, port=port) for host, port in self._members()])

    async def getControllerToBucketMapping(
        self, request: pb.ControllerToBucketMappingRequest
    ) -> pb.ControllerToBucketMappingResponse:
        raise NotImplementedError("this server has no buckets")

    async def createScope(self, request: pb.ScopeInfo) -> pb.CreateScopeStatus:
        try:
            await self._scopes.create(request.scope)
        except Invalid:
            return _Create(status=_Create.INVALID_SCOPE_NAME)
        except Exists:
            return _Create(status=_Create.SCOPE_EXISTS)
        return _Create(status=_Create.SUCCESS)

    async def deleteScope(self, request: pb.ScopeInfo) -> pb.DeleteScopeStatus:
        try:
            await self._scopes.delete(request.scope)
        except NotFound:
            return _Delete(status=_Delete.SCOPE_NOT_FOUND)
        except Exists:
            return _Delete(status=_Delete.SCOPE_NOT_EMPTY)
        return _Delete(status=_Delete.SUCCESS)

    async def deleteScopeRecursive(self, request: pb.ScopeInfo) -> pb.DeleteScopeStatus:
        try:
            with suppress(NotFound):  # as in Pravega: what should be gone is gone
                await self._scopes.delete_recursive(request.scope)
        except Exists:  # another client creates something during the deletion
            return _Delete(status=_Delete.SCOPE_NOT_EMPTY)
        return _Delete(status=_Delete.SUCCESS)

    async def checkScopeExists(self, request: pb.ScopeInfo) -> pb.ExistsResponse:
        return pb.ExistsResponse(exists=await self._catalog.scope_exists(request.scope))

    async def listScopes(self, request: pb.ScopesRequest) -> pb.ScopesResponse:
        asked = request.continuationToken.token
        names = await self._catalog.list_scopes(asked)
        return pb.ScopesResponse(scopes=names, continuationToken=page_token(names, asked))
