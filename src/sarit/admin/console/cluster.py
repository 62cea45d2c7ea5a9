"""What a cluster needs: bookies, ZooKeeper, object storage; and the quotas of scopes and users."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sarit.admin.console.calls import call, for_all
from sarit.admin.console.limits import CONSOLE_MAX_QUOTAS
from sarit.client.core.quotas import list_quotas, quota_use
from sarit.core.errors import NotFound
from sarit.security.quotas import SCOPE, Quota

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from sarit.admin.console.permissions import Rights
    from sarit.admin.console.view import NodeView
    from sarit.client.aio import Client
    from sarit.security.quotas import Quotas


class ClusterCalls:
    """The call on the cluster and on quotas."""

    def __init__(self, client: Client, node: NodeView, rights: Rights) -> None:
        self._client = client
        self._rights = rights
        self._node = node

    def __repr__(self) -> str:
        return "<ClusterCalls>"

    def routes(self) -> list[BaseRoute]:
        """Below /console/api."""
        return [call("/cluster", self.cluster)]

    async def cluster(self, request: Request) -> Any:
        """Return the parts of the cluster (null: there is none), and quotas (null: the caller may not see them)."""
        found = await self._node.cluster()
        document: dict[str, Any] = {"cluster": None if found is None else asdict(found), "quotas": None}
        if not self._rights.changes_everything():  # nobody is refused what he did not ask for
            return document
        session = self._client.session
        quotas = await session.with_retry(lambda: list_quotas(session.controller))
        subjects = sorted(quotas.by_subject)
        rows = await for_all(subjects[:CONSOLE_MAX_QUOTAS], lambda subject: self._row(quotas, subject))
        return document | {"quotas": rows, "all_quotas": len(subjects)}

    async def _row(self, quotas: Quotas, subject: str) -> dict[str, Any]:
        quota = quotas.by_subject[subject]
        row: dict[str, Any] = {"subject": subject, **{name: getattr(quota, name) for name in Quota.__slots__}}
        row |= {"full": False, "used": None}
        scope = subject.removeprefix(SCOPE)
        if scope != subject and scope != "*":
            session = self._client.session
            row["full"] = scope in quotas.full
            try:
                used = await session.with_retry(lambda: quota_use(session.controller, scope))
            except NotFound:  # the quota is older than the scope
                return row
            row["used"] = used._asdict()
        return row
