"""Resources, permissions, and the rules that grant permissions.

A resource is named as Pravega names it:

    prn::/                                  everything, and the list of scopes
    prn::/scope:S                           a scope, and to create and list things in it
    prn::/scope:S/stream:T                  a stream
    prn::/scope:S/reader-group:G            a reader group, and its stream `_RGG`
    prn::/scope:S/key-value-table:K         a key-value table
    prn::/namespace:N                       a namespace of the schema registry, and to create groups in it
    prn::/namespace:N/group:G               a group of the schema registry, G in the encoding of URLs; the default
                                            namespace has no name: prn::/namespace:/group:G
    prn::/mirror:S                          the streams of scope S for links: with READ, another installation may copy
                                            them; with READ_UPDATE, also write mirrors into the scope, keep streams from
                                            being truncated, and make them read-only.  No rule on the scope gives it

A rule grants a subject (`user:NAME`, `role:NAME`, or `*` for everybody who has logged in) a permission on a resource,
or on all resources with a prefix (`prn::/scope:S/*`).  A caller has the highest permission that any rule grants, and
none without a rule.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_plus

from sarit.core.errors import Invalid
from sarit.core.names import MARK_PREFIX, READER_GROUP_PREFIX, TABLE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = "prn::/"
EVERYBODY: Final = "*"
ADMIN_ROLE: Final = "admin"

_NAME: Final = r"_?[A-Za-z0-9.\-]+"
_NAMESPACE: Final = r"[A-Za-z0-9_.\-]{0,255}"
_ENCODED: Final = r"(?:[A-Za-z0-9_.\-+]|%[0-9A-F]{2}){1,1020}"  # 255 characters of up to four bytes
_PATTERN: Final = re.compile(
    rf"prn::(\*|/\*?|/scope:(\*|{_NAME}(\*|/\*|/(stream|reader-group|key-value-table):({_NAME})?\*?)?)"
    rf"|/namespace:{_NAMESPACE}(\*|/\*|/group:({_ENCODED})?\*?)?|/mirror:(\*|{_NAME}\*?))"
)
_SUBJECT: Final = re.compile(r"\*|(user|role):[A-Za-z0-9._@\-]{1,128}")
_ONE_NAME: Final = r"_?[A-Za-z0-9.\-]{1,255}"
_LITERAL: Final = re.compile(
    rf"prn::/(scope:{_ONE_NAME}(/(stream:{_ONE_NAME}({TABLE_SUFFIX})?|(reader-group|key-value-table):{_ONE_NAME}))?"
    rf"|namespace:{_NAMESPACE}(/group:{_ENCODED})?|mirror:{_ONE_NAME})?"
)


class Permission(IntEnum):
    """A permission on a resource; each includes the lower ones."""

    NONE = 0
    READ = 1
    READ_UPDATE = 2


@dataclass(frozen=True, slots=True)
class Caller:
    """The user who makes a request, with the roles from the user file or the token."""

    name: str
    roles: frozenset[str] = frozenset()

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subjects whose rules apply to this caller."""
        return (EVERYBODY, f"user:{self.name}", *(f"role:{role}" for role in sorted(self.roles)))


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """A rule of access: `subject` has `permission` on the resources that `pattern` matches."""

    subject: str
    pattern: str
    permission: Permission

    @staticmethod
    def parse(subject: str, pattern: str, permission: str) -> Rule:
        """Parse a rule.  Raises Invalid, with what is allowed."""
        if _SUBJECT.fullmatch(subject) is None:
            raise Invalid(f"{subject!r} is not a subject: write user:NAME, role:NAME or *")
        if _PATTERN.fullmatch(pattern) is None:
            raise Invalid(
                f"{pattern!r} is not a resource: write prn::/ for all scopes, prn::/scope:S, prn::/scope:S/stream:T, "
                "prn::/scope:S/reader-group:G, prn::/scope:S/key-value-table:K, prn::/namespace:N, "
                "prn::/namespace:N/group:G or prn::/mirror:S, and * at the end for all below"
            )
        allowed = {kind.name: kind for kind in Permission if kind is not Permission.NONE}
        if permission.upper() not in allowed:
            raise Invalid(f"{permission!r} is not a permission: give READ or READ_UPDATE")
        return Rule(subject, pattern, allowed[permission.upper()])

    def covers(self, resource: str) -> bool:
        """Return whether the rule applies to a resource."""
        if self.pattern.endswith("*"):
            return resource.startswith(self.pattern[:-1])
        return resource == self.pattern


class Rules:
    """All rules.  A resource takes a look-up per subject, and another for each length of the subject's prefixes."""

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
        """Return the permission of a caller on a resource; administrators have every permission.

        No rule applies to an impossible name, which might contain `*` or `a/stream:b`."""
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
    """Return the resource of a scope."""
    return f"{ROOT}scope:{scope}"


def stream_resource(scope: str, stream: str) -> str:
    """Return the resource of a stream in delegation tokens, where internal streams have resources of their own."""
    return f"{scope_resource(scope)}/stream:{stream}"


def group_resource(scope: str, group: str) -> str:
    """Return the resource of a reader group."""
    return f"{scope_resource(scope)}/reader-group:{group}"


def table_resource(scope: str, table: str) -> str:
    """Return the resource of a key-value table."""
    return f"{scope_resource(scope)}/key-value-table:{table}"


def namespace_resource(namespace: str) -> str:
    """Return the resource of a namespace of the schema registry."""
    return f"{ROOT}namespace:{namespace}"


def schema_group_resource(namespace: str, group: str) -> str:
    """Return the resource of a group of the schema registry: its name is encoded as Java encodes it for URLs, and `*`,
    too, which ends patterns."""
    encoded = quote_plus(group, safe="").replace("~", "%7E")
    return f"{namespace_resource(namespace)}/group:{encoded}"


def mirror_resource(scope: str) -> str:
    """Return the resource of a scope for links to other installations."""
    return f"{ROOT}mirror:{scope}"


def owner_resource(scope: str, stream: str) -> str:
    """Return the resource whose rules apply to a stream; for an internal stream, the group or stream that it belongs
    to."""
    if stream.startswith(READER_GROUP_PREFIX):
        return group_resource(scope, stream.removeprefix(READER_GROUP_PREFIX))
    if stream.startswith(MARK_PREFIX):
        return stream_resource(scope, stream.removeprefix(MARK_PREFIX))
    return stream_resource(scope, stream)


def is_literal(resource: str) -> bool:
    """Return whether a resource is the possible name of one thing, and not a pattern."""
    return _LITERAL.fullmatch(resource) is not None


def token_resources(scope: str, name: str) -> tuple[tuple[str, str], ...]:
    """Return what a token for `name` may grant: pairs of a resource in the token, and the resource whose rules decide.

    Official clients ask for every name as if it were a stream's.  Java names a key-value table by its bare name; Rust
    and Python name a table, or one of their reader groups, `X_kvtable`.  Each kind has a resource of its own in the
    token, so that rules for one kind grant nothing on another."""
    if name.endswith(TABLE_SUFFIX):
        bare = name.removesuffix(TABLE_SUFFIX)
        table, group, earlier = table_resource(scope, bare), group_resource(scope, bare), stream_resource(scope, name)
        # `earlier`: the only name by which stores of an earlier release know tables.
        return (group, group), (table, table), (earlier, group), (earlier, table)
    if name.startswith((READER_GROUP_PREFIX, MARK_PREFIX)):
        return ((stream_resource(scope, name), owner_resource(scope, name)),)
    table, stream = table_resource(scope, name), stream_resource(scope, name)
    return (table, table), (stream, stream)


def token_permission(name: str, had: Permission) -> Permission:
    """Return the permission on a stream's segments for a token.  `had`: the caller's permission on `owner_resource`.

    READ on a group lets its readers write to the group's stream.  Only the system writes mark streams."""
    if name.startswith(READER_GROUP_PREFIX):
        return Permission.NONE if had is Permission.NONE else Permission.READ_UPDATE
    return min(had, Permission.READ) if name.startswith(MARK_PREFIX) else had


def needed_to_ask(stream: str, wanted: Permission) -> Permission:
    """Return the permission on `owner_resource` that is needed to ask for a token that grants `wanted`.

    Official clients ask for write access although they only read marks: they get a token that can only read."""
    internal = stream.startswith((READER_GROUP_PREFIX, MARK_PREFIX))
    return min(wanted, Permission.READ) if internal else wanted
