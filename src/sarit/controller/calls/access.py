"""The calls on rules of access."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.rpc.generated import sarit_pb2 as pb
from sarit.security.permissions import Permission, Rule

if TYPE_CHECKING:
    from sarit.controller.rules import RuleTable


class AccessCalls:
    """Calls on rules of access.  `rules`: None where access is not checked."""

    def __init__(self, rules: RuleTable | None) -> None:
        self._rules = rules

    async def listRules(self, request: pb.ListRulesRequest) -> pb.ListRulesResponse:
        rules = await self._table().rules()
        return pb.ListRulesResponse(
            rules=[
                pb.AccessRule(subject=rule.subject, resource=rule.pattern, permission=rule.permission.name)
                for rule in rules
            ]
        )

    async def changeRules(self, request: pb.ChangeRulesRequest) -> pb.ChangeRulesResponse:
        return pb.ChangeRulesResponse(changed=await self._table().change([_rule(each) for each in request.rules]))

    def _table(self) -> RuleTable:
        if self._rules is None:
            raise Invalid("this server does not check who does what: start it with --users and --token-keys")
        return self._rules


def _rule(given: pb.AccessRule) -> Rule:
    if given.permission:
        return Rule.parse(given.subject, given.resource, given.permission)
    return replace(Rule.parse(given.subject, given.resource, "READ"), permission=Permission.NONE)
