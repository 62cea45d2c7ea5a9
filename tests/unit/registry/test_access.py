"""Who may do what at the registry, by the rules of `sarit acl`."""

from __future__ import annotations

import pytest

from sarit.core.errors import Forbidden
from sarit.registry.access import NEEDS, Guard, Operation, resource_of
from sarit.registry.values import GroupName, Holder
from sarit.security.permissions import Caller, Permission, Rule, Rules, is_literal

ALICE = Caller("alice")
ORDERS = GroupName("team", "orders/ü *~")


class Noted:
    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []

    def note(self, **line: object) -> None:
        self.lines.append(line)


def guard(*rules: tuple[str, str]) -> tuple[Guard, Noted]:
    known, noted = Rules([Rule.parse("user:alice", pattern, kind) for pattern, kind in rules]), Noted()
    return Guard(known.of, noted), noted


def allowed(made: Guard, name: GroupName) -> set[Operation]:
    found = set()
    for operation in Operation:
        try:
            made.check(ALICE, operation, name)
        except Forbidden:
            continue
        found.add(operation)
    return found


def test_every_operation_has_a_row() -> None:
    assert NEEDS.keys() == set(Operation)
    changes = {"register", "delete", "create", "set policy", "set mode", "add codec"}
    assert {one.value for one, needed in NEEDS.items() if needed is Permission.READ_UPDATE} == changes


def test_names_are_those_of_pravegas_registry() -> None:
    assert resource_of(ORDERS) == "prn::/namespace:team/group:orders%2F%C3%BC+%2A%7E"
    assert resource_of(GroupName("", "orders-value")) == "prn::/namespace:/group:orders-value"
    assert resource_of(GroupName("team", "")) == "prn::/namespace:team"
    assert resource_of(GroupName("", "")) == "prn::/"
    for name in (ORDERS, GroupName("", "☃" * 255), GroupName("n" * 255, "a")):
        assert is_literal(resource_of(name))


@pytest.mark.parametrize("name", [GroupName("a/b", "c"), GroupName("*", "c"), GroupName("a", "☃" * 1000)])
def test_impossible_names_are_covered_by_no_rule(name) -> None:
    made, _ = guard(("prn::*", "READ_UPDATE"))
    assert not made.sees(ALICE, name)


def test_rules_of_a_group_decide() -> None:
    reader, _ = guard((resource_of(ORDERS), "READ"))
    read = {one for one, needed in NEEDS.items() if needed <= Permission.READ}
    assert allowed(reader, ORDERS) == read
    assert allowed(reader, GroupName("", "other")) == {Operation.LIST}
    assert reader.sees(ALICE, ORDERS)
    assert not reader.sees(ALICE, GroupName("team", "orders"))
    writer, _ = guard(("prn::/namespace:team/group:orders*", "READ_UPDATE"))
    assert allowed(writer, ORDERS) == set(Operation)
    owner, _ = guard(("prn::/namespace:team", "READ_UPDATE"))
    assert allowed(owner, ORDERS) == {Operation.LIST, Operation.CREATE}
    assert allowed(owner, GroupName("team", "")) == set(Operation)
    assert allowed(owner, GroupName("", "")) == {Operation.LIST}


def test_schema_is_seen_through_one_group_that_holds_it() -> None:
    made, _ = guard((resource_of(ORDERS), "READ"))
    other = Holder(GroupName("", "other"), 1, False)
    assert not made.sees_schema(ALICE, [])
    assert not made.sees_schema(ALICE, [other])
    assert made.sees_schema(ALICE, [other, Holder(ORDERS, 1, True)])


def test_decisions_are_noted() -> None:
    made, noted = guard((resource_of(ORDERS), "READ"))
    made.check(ALICE, Operation.SHOW, ORDERS, "10.0.0.7:1")
    with pytest.raises(Forbidden, match="sarit acl grant user:alice"):
        made.check(ALICE, Operation.REGISTER, ORDERS, "10.0.0.7:1")
    assert [(line["what"], line["allowed"], line["peer"]) for line in noted.lines] == [
        ("registry: show", True, "10.0.0.7:1"),
        ("registry: register", False, "10.0.0.7:1"),
    ]


def test_without_users_everybody_may() -> None:
    made = Guard()
    assert allowed(made, ORDERS) == set(Operation)
    made.check(None, Operation.DELETE, ORDERS)
    assert made.sees(None, ORDERS)
    assert made.sees_schema(None, [])
