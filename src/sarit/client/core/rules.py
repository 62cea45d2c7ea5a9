"""Requests on rules of access: for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.rpc.generated import sarit_pb2
from sarit.security.permissions import Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.client.core.controller import ControllerClient


async def list_rules(controller: ControllerClient) -> list[Rule]:
    """List all rules.  Raises Forbidden; Invalid where the server checks nobody."""
    reply = await controller.call(controller.sarit_stub.listRules, sarit_pb2.ListRulesRequest())
    return [Rule.parse(rule.subject, rule.resource, rule.permission) for rule in reply.rules]


async def change_rules(controller: ControllerClient, rules: Sequence[Rule]) -> int:
    """Set rules, and remove those with NONE, all or none.  Returns how many changed.  Raises as `list_rules`."""
    given = [
        sarit_pb2.AccessRule(
            subject=rule.subject, resource=rule.pattern, permission=rule.permission.name if rule.permission else ""
        )
        for rule in rules
    ]
    reply = await controller.call(controller.sarit_stub.changeRules, sarit_pb2.ChangeRulesRequest(rules=given))
    changed: int = reply.changed
    return changed
