"""Rules of access: what they cover, who they are about, what cannot be one."""

from __future__ import annotations

import pytest

from sarit.cli.acl import scope_of
from sarit.core.errors import Invalid
from sarit.security.permissions import (
    Caller,
    Permission,
    Rule,
    Rules,
    group_resource,
    is_literal,
    needed_to_ask,
    owner_resource,
    stream_resource,
    token_permission,
)

READ, UPDATE, NONE = Permission.READ, Permission.READ_UPDATE, Permission.NONE


@pytest.mark.parametrize(
    ("pattern", "resource", "covers"),
    [
        ("prn::/scope:app", "prn::/scope:app", True),
        ("prn::/scope:app", "prn::/scope:app/stream:s", False),
        ("prn::/scope:app", "prn::/scope:apple", False),
        ("prn::/scope:app/*", "prn::/scope:app/stream:s", True),
        ("prn::/scope:app/*", "prn::/scope:app", False),
        ("prn::/scope:app/*", "prn::/scope:apple/stream:s", False),
        ("prn::/scope:app*", "prn::/scope:apple/stream:s", True),
        ("prn::/scope:app/stream:s*", "prn::/scope:app/stream:sales", True),
        ("prn::/scope:app/stream:s", "prn::/scope:app/stream:sales", False),
        ("prn::/*", "prn::/scope:app/key-value-table:t", True),
        ("prn::*", "prn::/", True),
        ("prn::/namespace:/*", "prn::/namespace:/group:orders-value", True),
        ("prn::/namespace:*", "prn::/namespace:team/group:a%2Fb", True),
        ("prn::/namespace:team", "prn::/namespace:team/group:a", False),
        ("prn::/namespace:team/group:orders-*", "prn::/namespace:team/group:orders-value", True),
        ("prn::/namespace:team/group:a%2Fb", "prn::/namespace:team/group:a%2Fb", True),
        ("prn::/scope:app/*", "prn::/namespace:app/group:a", False),
        ("prn::/mirror:app", "prn::/mirror:app", True),
        ("prn::/mirror:app*", "prn::/mirror:apple", True),
        ("prn::/mirror:*", "prn::/mirror:app", True),
        ("prn::/scope:*", "prn::/mirror:app", False),
        ("prn::/mirror:*", "prn::/scope:app", False),
    ],
)
def test_rule_covers_resource_or_prefix(pattern, resource, covers):
    assert Rule.parse("user:a", pattern, "READ").covers(resource) is covers


def test_highest_permission_of_all_subjects_counts():
    rules = Rules([
        Rule.parse("*", "prn::/scope:app/*", "READ"),
        Rule.parse("role:writer", "prn::/scope:app/stream:s", "READ_UPDATE"),
        Rule.parse("user:eve", "prn::/scope:other/*", "READ_UPDATE"),
    ])  # fmt: skip
    stream = stream_resource("app", "s")
    assert rules.of(Caller("bob"), stream) is READ
    assert rules.of(Caller("bob", frozenset({"writer"})), stream) is UPDATE
    assert rules.of(Caller("eve"), stream) is READ
    assert rules.of(Caller("bob"), stream_resource("other", "s")) is NONE
    assert rules.of(Caller("any", frozenset({"admin"})), stream_resource("other", "s")) is UPDATE
    assert Rules().of(Caller("bob"), stream) is NONE


@pytest.mark.parametrize("subject", ["alice", "user:", "user:a b", "group:x", "user:a\0", ""])
def test_subject_that_cannot_be_is_refused(subject):
    with pytest.raises(Invalid, match="is not a subject"):
        Rule.parse(subject, "prn::/", "READ")


@pytest.mark.parametrize(
    "pattern",
    ["", "scope:app", "prn::/scope:", "prn::/scope:a/b", "prn::/scope:a/stream:s/x", "prn::/scope:*a", "prn::/../x",
     "prn::/scope:a/stream:s\0", "prn::/scope:a/table:t", "prn::/namespace:a/b", "prn::/namespace:a/group:b/c",
     "prn::/namespace:a/group:b%2f", "prn::/namespace:a/group:b c", "prn::/namespace:*a"],
)  # fmt: skip
def test_resource_that_cannot_be_is_refused(pattern):
    with pytest.raises(Invalid, match="is not a resource"):
        Rule.parse("user:a", pattern, "READ")


def test_permission_that_cannot_be_is_refused():
    with pytest.raises(Invalid, match="give READ or READ_UPDATE"):
        Rule.parse("user:a", "prn::/", "WRITE")


def test_internal_streams_belong_to_their_group_or_stream():
    assert owner_resource("app", "_RGteam") == group_resource("app", "team")
    assert owner_resource("app", "_MARKs") == stream_resource("app", "s")
    assert owner_resource("app", "s") == stream_resource("app", "s")


def test_token_of_a_reader_writes_to_the_stream_of_a_group_and_nobodys_to_marks():
    assert [token_permission(name, READ) for name in ("_RGteam", "_MARKs", "s")] == [UPDATE, READ, READ]
    assert [token_permission(name, UPDATE) for name in ("_RGteam", "_MARKs", "s")] == [UPDATE, READ, UPDATE]
    assert [token_permission(name, NONE) for name in ("_RGteam", "_MARKs", "s")] == [NONE] * 3


@pytest.mark.parametrize("odd", ["*", "", "a/b", "a/stream:b", "a b", "s\0", "s\n", "x" * 256, "_", "__a", "a_b"])
def test_name_that_nothing_has_is_covered_by_no_rule(odd):
    everything = Rules([Rule.parse("*", "prn::*", "READ_UPDATE")])
    for resource in (stream_resource("app", odd), stream_resource(odd, "s"), group_resource("app", odd)):
        assert not is_literal(resource)
        assert everything.of(Caller("bob"), resource) is NONE
    assert everything.of(Caller("bob"), stream_resource("..", "s_kvtable")) is UPDATE


def test_readers_may_ask_to_write_what_they_only_read():
    assert [needed_to_ask(name, UPDATE) for name in ("_RGteam", "_MARKs", "s")] == [READ, READ, UPDATE]
    assert needed_to_ask("s", READ) is READ


@pytest.mark.parametrize(
    ("resource", "scope"),
    [
        ("prn::/scope:a", "a"),
        ("prn::/scope:a/*", "a"),
        ("prn::/scope:a/stream:b*", "a"),
        ("prn::/scope:a*", None),
        ("prn::/*", None),
        ("prn::/", None),
    ],
)
def test_rule_is_about_one_scope_or_about_several(resource, scope):
    assert scope_of(resource) == scope
