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
from sarit.core.names import MARK_PREFIX, READER_GROUP_PREFIX, TABLE_SUFFIX

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
_ONE_NAME: Final = r"_?[A-Za-z0-9.\-]{1,255}"
_LITERAL: Final = re.compile(
    rf"prn::/(scope:{_ONE_NAME}(/(stream:{_ONE_NAME}({TABLE_SUFFIX})?|(reader-group|key-value-table):{_ONE_NAME}))?)?"
)


class Permission(IntEnum):
    """A permission on a resource; each includes those below it."""

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
        """Return a rule from text.  Raises Invalid with what is allowed."""
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
        """Return whether the rule is about a resource."""
        if self.pattern.endswith("*"):
            return resource.startswith(self.pattern[:-1])
        return resource == self.pattern


class Rules:
    """All rules, by subject: one look-up for the rule of a resource, and one for each length that a prefix has."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._exact: dict[tuple[str, str], Permission] = {}
        self._prefixes: dict[str, dict[int, dict[str, Permission]]] = {}  # by subject and length
        self._count = 0
        for rule in rules:
            self._count += 1
            if rule.pattern.endswith("*"):
                prefix = rule.pattern[:-1]
                known = self._prefixes.setdefault(rule.subject, {}).setdefault(len(prefix), {})
                known[prefix] = max(rule.permission, known.get(prefix, Permission.NONE))
            else:
                key = rule.subject, rule.pattern
                self._exact[key] = max(rule.permission, self._exact.get(key, Permission.NONE))

    def __repr__(self) -> str:
        return f"<Rules, {self._count}>"

    def __len__(self) -> int:
        return self._count

    def of(self, caller: Caller, resource: str) -> Permission:
        """Return the permission of a caller on a resource; administrators have all of them.

        What no thing can be called is covered by no rule: its name might say `*`, or `a/stream:b`."""
        if ADMIN_ROLE in caller.roles:
            return Permission.READ_UPDATE
        if not is_literal(resource):
            return Permission.NONE
        most = Permission.NONE
        for subject in caller.subjects:
            most = max(most, self._exact.get((subject, resource), Permission.NONE))
            for length, known in self._prefixes.get(subject, {}).items():
                most = max(most, known.get(resource[:length], Permission.NONE))
        return most


def scope_resource(scope: str) -> str:
    """Return a scope."""
    return f"{ROOT}scope:{scope}"


def stream_resource(scope: str, stream: str) -> str:
    """Return a stream, internal ones by their own name: what a delegation token is about."""
    return f"{scope_resource(scope)}/stream:{stream}"


def group_resource(scope: str, group: str) -> str:
    """Return a reader group."""
    return f"{scope_resource(scope)}/reader-group:{group}"


def table_resource(scope: str, table: str) -> str:
    """Return a key-value table."""
    return f"{scope_resource(scope)}/key-value-table:{table}"


def owner_resource(scope: str, stream: str) -> str:
    """Return the resource whose rules hold for a stream: of internal streams, the group or stream that they belong
    to."""
    if stream.startswith(READER_GROUP_PREFIX):
        return group_resource(scope, stream.removeprefix(READER_GROUP_PREFIX))
    if stream.startswith(MARK_PREFIX):
        return stream_resource(scope, stream.removeprefix(MARK_PREFIX))
    return stream_resource(scope, stream)


def is_literal(resource: str) -> bool:
    """Return whether a resource is one thing by a name that it can have, and no pattern."""
    return _LITERAL.fullmatch(resource) is not None


def token_resources(scope: str, name: str) -> tuple[tuple[str, str], ...]:
    """Return the resources that a token for `name` may be about: its resource in the token, and the one whose rules
    give it.

    Official clients ask for every name as if it were a stream's.  Java means a key-value table by its bare name, Rust
    and Python mean a table, or a reader group of theirs, by `X_kvtable`.  Each right is a resource of its own in the
    token, so that the rules of one kind open nothing of another."""
    if name.endswith(TABLE_SUFFIX):
        bare = name.removesuffix(TABLE_SUFFIX)
        table, group, earlier = table_resource(scope, bare), group_resource(scope, bare), stream_resource(scope, name)
        # `earlier`: for stores of the version before, which know tables by no other name.
        return (group, group), (table, table), (earlier, group), (earlier, table)
    if name.startswith((READER_GROUP_PREFIX, MARK_PREFIX)):
        return ((stream_resource(scope, name), owner_resource(scope, name)),)
    table, stream = table_resource(scope, name), stream_resource(scope, name)
    return (table, table), (stream, stream)


def token_permission(name: str, had: Permission) -> Permission:
    """Return the permission that a token gives on the segments of a stream to whom the rules give `had` on its owner.

    Readers write to the stream of their group.  Only the system writes marks."""
    if name.startswith(READER_GROUP_PREFIX):
        return Permission.NONE if had is Permission.NONE else Permission.READ_UPDATE
    return min(had, Permission.READ) if name.startswith(MARK_PREFIX) else had


def needed_to_ask(stream: str, wanted: Permission) -> Permission:
    """Return the permission on `owner_resource` with which one may ask for a token that gives `wanted`.

    Official clients ask to write where they only read the marks of a stream: they get a token that reads."""
    internal = stream.startswith((READER_GROUP_PREFIX, MARK_PREFIX))
    return min(wanted, Permission.READ) if internal else wanted
