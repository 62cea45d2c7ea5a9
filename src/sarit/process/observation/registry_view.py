"""What the console shows of the schema registry of this process: asked in the process, with the rights of who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.admin.console.schema_view import GroupPage, GroupView, SchemaSource, VersionRow, VersionView
from sarit.core.errors import NotFound
from sarit.registry.access import Operation
from sarit.registry.errors import Missing, NotThere
from sarit.registry.values import GroupName
from sarit.schemas.compatibility import Span, is_level, level_of

if TYPE_CHECKING:
    from sarit.registry.access import Guard
    from sarit.registry.registry import Registry
    from sarit.registry.values import Schema, Version
    from sarit.schemas.compatibility import Policy, Till
    from sarit.security.permissions import Caller


class RegistryView:
    """The registry for the console; `guard` checks each call as it checks those of the API."""

    def __init__(self, registry: Registry, guard: Guard) -> None:
        self._registry = registry
        self._guard = guard

    def __repr__(self) -> str:
        return f"<RegistryView of {self._registry!r}>"

    async def groups(self, caller: Caller | None, prefix: str, offset: int, limit: int) -> GroupPage:
        """Return groups whose names begin with `prefix`, of all namespaces, with deleted ones."""
        found = await self._registry.groups(None, prefix=prefix, deleted=True)
        seen = [(name.namespace, name.group) for name in found if self._guard.sees(caller, name)]
        return GroupPage(seen[offset : offset + limit], len(seen))

    async def group(self, caller: Caller | None, namespace: str, group: str) -> GroupView:
        """Return a group.  Raises NotFound, Forbidden."""
        name = self._checked(caller, Operation.SHOW, namespace, group)
        found = await self._registry.group(name)
        settings = await self._registry.settings(name)
        versions = await self._registry.versions(name, deleted=True)
        assert settings.policy is not None  # settings in force are complete
        assert settings.mode is not None
        return GroupView(
            namespace, group, [_row(one) for one in versions], _text_of(settings.policy),
            await self._has_own_policy(name), settings.mode.value, sorted(found.codecs),
        )  # fmt: skip

    async def _has_own_policy(self, name: GroupName) -> bool:
        try:
            return (await self._registry.own_settings(name)).policy is not None
        except NotThere:
            return False

    async def version(self, caller: Caller | None, namespace: str, group: str, number: int) -> VersionView:
        """Return a version, also one that is deleted softly.  Raises NotFound, Forbidden."""
        name = self._checked(caller, Operation.SHOW, namespace, group)
        found = await self._registry.version(name, number, deleted=True)
        holders = [
            holder
            for schema_id in await self._registry.referrers(name, number, deleted=True)
            for holder in await self._registry.holders(schema_id, deleted=True)
        ]
        return VersionView(
            _row(found.version),
            found.schema.text,
            [(one.name, one.group, one.version) for one in found.schema.references],
            [(one.name.group, one.version) for one in holders if self._guard.sees(caller, one.name)],
        )

    async def schema(self, caller: Caller | None, schema_id: int) -> SchemaSource:
        """Return the schema of an id.  Raises NotFound, also if the caller may see none of its groups."""
        found = await self._registry.schema(schema_id)
        if not self._guard.sees_schema(caller, await self._registry.holders(schema_id, deleted=True)):
            raise NotThere(Missing.SCHEMA, "the schema is not registered")
        return await self._source(found)

    async def encoding(self, caller: Caller | None, namespace: str, group: str, number: int) -> SchemaSource:
        """Return what one of Pravega's encodings of a group means.  Raises NotFound, Forbidden."""
        name = self._checked(caller, Operation.SHOW_ENCODING, namespace, group)
        found = await self._registry.encodings.get(name, number)
        version = await self._registry.version(name, found.version, deleted=True)
        return await self._source(version.schema, found.codec, version.version.type)

    async def _source(self, schema: Schema, codec: str = "", message: str = "") -> SchemaSource:
        return SchemaSource(schema.kind, schema.text, await self._registry.texts(schema), codec, message)

    def _checked(self, caller: Caller | None, operation: Operation, namespace: str, group: str) -> GroupName:
        if not group:
            raise NotFound("a group has a name")
        name = GroupName(namespace, group)
        self._guard.check(caller, operation, name)
        return name


def _row(version: Version) -> VersionRow:
    return VersionRow(
        version.number, version.schema, version.kind.value, version.type, version.deleted, version.created_ms
    )


def _text_of(policy: Policy) -> str:
    """Return a policy in words: a level of Confluent's where one means the same, else Pravega's name of it."""
    if is_level(policy):
        return level_of(policy).value
    directions = (("backward", policy.backward), ("forward", policy.forward))
    parts = [f"{name} {_span(span)}" for name, span in directions if span is not None]
    return f"{policy.name.value}{': ' if parts else ''}{', '.join(parts)}"


def _span(span: Span | Till) -> str:
    return span.value if isinstance(span, Span) else f"till version {span.version}"
