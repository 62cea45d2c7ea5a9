"""What the schema registry of the process reports to the console: values, and the port that a process fills.  Pure.

Each call names who asks, and the process checks what that one may see.  A group is Confluent's subject; a namespace its
context, the empty one its default one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.schemas.definitions import Kind
    from sarit.security.permissions import Caller


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version of a group: its number, the id of its schema, its format, and when it was registered (ms since 1970).

    `type`: of the record or message; `deleted`: softly."""

    number: int
    schema_id: int
    kind: str
    type: str = ""
    deleted: bool = False
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Some groups, each as (namespace, group), in order; `total`: how many the caller may see."""

    names: Sequence[tuple[str, str]]
    total: int


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group with its versions, ascending, deleted ones too.

    `policy`: of compatibility, in words; `own_policy`: whether the group has it itself.  `mode`: as READWRITE.
    `codecs`: of Pravega's encodings."""

    namespace: str
    group: str
    versions: Sequence[VersionRow]
    policy: str
    own_policy: bool
    mode: str
    codecs: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class VersionView:
    """A version with its text.

    `references`: (name in the text, group, version) of the versions that it refers to.  `referrers`: (group, version)
    of those that refer to it, as far as the caller may see them."""

    row: VersionRow
    text: str
    references: Sequence[tuple[str, str, int]] = ()
    referrers: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """A schema by which an event is shown; `references`: texts by name; `codec`: of the payload, empty for none.

    `message`: the full name of the Protobuf message, where events do not say which it is."""

    kind: Kind
    text: str
    references: Mapping[str, str] = field(default_factory=dict)
    codec: str = ""
    message: str = ""


class SchemasView(Protocol):
    """The schema registry of a process.  Calls raise the kinds of `core.errors`; `caller` None: nobody logs in."""

    async def groups(self, caller: Caller | None, prefix: str, offset: int, limit: int) -> GroupPage:
        """Return groups whose names begin with `prefix`, of all namespaces."""

    async def group(self, caller: Caller | None, namespace: str, group: str) -> GroupView:
        """Return a group.  Raises NotFound, Forbidden."""

    async def version(self, caller: Caller | None, namespace: str, group: str, number: int) -> VersionView:
        """Return a version, also one that is deleted softly.  Raises NotFound, Forbidden."""

    async def schema(self, caller: Caller | None, schema_id: int) -> SchemaSource:
        """Return the schema of an id.  Raises NotFound, also if the caller may see none of its groups."""

    async def encoding(self, caller: Caller | None, namespace: str, group: str, number: int) -> SchemaSource:
        """Return what one of Pravega's encodings of a group means.  Raises NotFound, Forbidden."""
