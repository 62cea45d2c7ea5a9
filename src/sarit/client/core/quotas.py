"""Requests on quotas: for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sarit.rpc.generated import sarit_pb2
from sarit.security.quotas import Quota, Quotas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.core.controller import ControllerClient


class ScopeUse(NamedTuple):
    """The resources that a scope uses; `segments`: those that accept appends."""

    streams: int
    segments: int
    storage_bytes: int


async def list_quotas(controller: ControllerClient) -> Quotas:
    """List all quotas.  Raises Forbidden."""
    reply = await controller.call(controller.sarit_stub.listQuotas, sarit_pb2.ListQuotasRequest())
    return Quotas({each.subject: Quota.decode(each.limits) for each in reply.quotas}, reply.full)


async def change_quotas(controller: ControllerClient, quotas: Mapping[str, Quota | None]) -> int:
    """Set quotas, and remove those with None, all or none.  Returns how many changed.  Raises Invalid, Forbidden."""
    given = [
        sarit_pb2.Quota(subject=subject, limits=quota.encode() if quota is not None else "")
        for subject, quota in quotas.items()
    ]
    reply = await controller.call(controller.sarit_stub.changeQuotas, sarit_pb2.ChangeQuotasRequest(quotas=given))
    changed: int = reply.changed
    return changed


async def quota_use(controller: ControllerClient, scope: str) -> ScopeUse:
    """Return the resources that a scope uses now.  Raises NotFound, Forbidden."""
    reply = await controller.call(controller.sarit_stub.quotaUse, sarit_pb2.QuotaUseRequest(scope=scope))
    return ScopeUse(reply.streams, reply.segments, reply.storageBytes)
