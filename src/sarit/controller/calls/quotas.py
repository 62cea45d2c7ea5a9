"""The calls on quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.rpc.generated import sarit_pb2 as pb
from sarit.security.quotas import Quota

if TYPE_CHECKING:
    from sarit.controller.quotas import QuotaTable


class QuotaCalls:
    """Calls on quotas."""

    def __init__(self, quotas: QuotaTable) -> None:
        self._quotas = quotas

    async def listQuotas(self, request: pb.ListQuotasRequest) -> pb.ListQuotasResponse:
        await self._quotas.refresh()
        found = self._quotas.quotas
        given = [pb.Quota(subject=subject, limits=quota.encode()) for subject, quota in found.by_subject.items()]
        return pb.ListQuotasResponse(quotas=given, full=sorted(found.full))

    async def changeQuotas(self, request: pb.ChangeQuotasRequest) -> pb.ChangeQuotasResponse:
        changes = {each.subject: Quota.decode(each.limits) if each.limits else None for each in request.quotas}
        if len(changes) != len(request.quotas):
            raise Invalid("a subject is there twice: each has one quota")
        return pb.ChangeQuotasResponse(changed=await self._quotas.change(changes))

    async def quotaUse(self, request: pb.QuotaUseRequest) -> pb.QuotaUseResponse:
        use = await self._quotas.use(request.scope)
        size = await self._quotas.storage_bytes(request.scope)
        return pb.QuotaUseResponse(streams=use.streams, segments=use.segments, storageBytes=size)
