"""Resources, permissions, and the rules that give them: pure.

A resource is named as Pravega names it:

    prn::/                                  everything, and the list of scopes
    prn::/scope:S                           a scope, and what is created or listed in it
    prn::/scope:S/stream:T                  a stream
    prn::/scope:S/reader-group:G            a reader group, and its stream `_RGG`
    prn::/scope:S/key-value-table:K         a key-value table

A rule gives a subject (`user:NAME`, `role:NAME`, or `*` for everybody who has logged in) a permission on a resource, or
on all resources with a prefix (`prn::/scope:S/*`).  A caller has the highest permission that a rule gives; without a
rule there is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.core.names import MARK_PREFIX, READER_GROUP_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = "prn::/"
EVERYBODY: Final = "*"
ADMIN_ROLE: Final = "admin"

_NAME: Final = r"_?[A-Za-z0-9.\-]+"
_PATTERN: Final = re.compile(
    rf"prn::(\*|/\*?|/scope:(\*|{_NAME}(\*|/\*|/(stream|reader-group|key-value-table):({_NAME})?\*?)?))"
)
_SUBJECT: Final = re.compile(r"\*|(user|role):[A-Za-z0-9._@\-]{1,128}")


class Permission(IntEnum):
    """What one may do with a resource; each includes those below it."""

    NONE = 0
    READ = 1
    READ_UPDATE = 2


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request: `name`, and the roles that the user file or the token says."""

    name: str
    roles: frozenset[str] = frozenset()

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subjects of rules that are about this caller."""
        return (EVERYBODY, f"user:{self.name}", *(f"role:{role}" for role in sorted(self.roles)))


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """One line of an access-control list."""

    subject: str
    pattern: str
    permission: Permission

    @staticmethod
    def parse(subject: str, pattern: str, permission: str) -> Rule:
        """A rule from text.  Raises Invalid with what is allowed."""
        if _SUBJECT.fullmatch(subject) is None:
            raise Invalid(f"{subject!r} is not a subject: write user:NAME, role:NAME or *")
        if _PATTERN.fullmatch(pattern) is None:
            raise Invalid(
                f"{pattern!r} is not a resource: write prn::/ for all scopes, prn::/scope:S, prn::/scope:S/stream:T, "
                "prn::/scope:S/reader-group:G or prn::/scope:S/key-value-table:K, and * at the end for all below"
            )
        allowed = {kind.name: kind for kind in Permission if kind is not Permission.NONE}
        if permission.upper() not in allowed:
            raise Invalid(f"{permission!r} is not a permission: give READ or READ_UPDATE")
        return Rule(subject, pattern, allowed[permission.upper()])

    def covers(self, resource: str) -> bool:
        """Whether the rule is about a resource."""
        if self.pattern.endswith("*"):
            return resource.startswith(self.pattern[:-1])
        return resource == self.pattern


class Rules:
    """All rules, by subject."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._by_subject: dict[str, list[Rule]] = {}
        for rule in rules:
            self._by_subject.setdefault(rule.subject, []).append(rule)

    def __repr__(self) -> str:
        return f"<Rules, {len(self)} of {len(self._by_subject)} subjects>"

    def __len__(self) -> int:
        return sum(map(len, self._by_subject.values()))

    def of(self, caller: Caller, resource: str) -> Permission:
        """The permission of a caller on a resource; administrators have all of them."""
        if ADMIN_ROLE in caller.roles:
            return Permission.READ_UPDATE
        return max(
            (
                rule.permission
                for subject in caller.subjects
                for rule in self._by_subject.get(subject, ())
                if rule.covers(resource)
            ),
            default=Permission.NONE,
        )


def scope_resource(scope: str) -> str:
    """A scope."""
    return f"{ROOT}scope:{scope}"


def stream_resource(scope: str, stream: str) -> str:
    """A stream, internal ones by their own name: what a delegation token is about."""
    return f"{scope_resource(scope)}/stream:{stream}"


def group_resource(scope: str, group: str) -> str:
    """A reader group."""
    return f"{scope_resource(scope)}/reader-group:{group}"


def table_resource(scope: str, table: str) -> str:
    """A key-value table."""
    return f"{scope_resource(scope)}/key-value-table:{table}"


def owner_resource(scope: str, stream: str) -> str:
    """What the rules for a stream are about: of internal streams, the group or stream that they belong to."""
    if stream.startswith(READER_GROUP_PREFIX):
        return group_resource(scope, stream.removeprefix(READER_GROUP_PREFIX))
    if stream.startswith(MARK_PREFIX):
        return stream_resource(scope, stream.removeprefix(MARK_PREFIX))
    return stream_resource(scope, stream)


def needed_to_change(stream: str) -> Permission:
    """The permission on `owner_resource` that a change of a stream needs.

    Readers write to the stream of their group, and to none else: who may read with a group may write its stream."""
    return Permission.READ if stream.startswith(READER_GROUP_PREFIX) else Permission.READ_UPDATE


def needed_to_ask(stream: str, wanted: Permission) -> Permission:
    """The permission on `owner_resource` with which one may ask for a token that gives `wanted`.

    Official clients ask to write where they only read the marks of a stream: they get a token that reads."""
    internal = stream.startswith((READER_GROUP_PREFIX, MARK_PREFIX))
    return min(wanted, Permission.READ) if internal else wanted
