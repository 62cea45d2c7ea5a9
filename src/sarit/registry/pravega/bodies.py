"""Documents of Pravega's API: groups, versions and schemas as its clients read them."""

from __future__ import annotations

import base64
from functools import partial
from typing import TYPE_CHECKING, Any

from sarit.registry.errors import NotThere
from sarit.registry.pravega.formats import format_body, full_name, schema_data
from sarit.registry.pravega.policies import policy_body, shown_policy, versions_of
from sarit.registry.values import FoundVersion
from sarit.schemas.definitions import Kind

if TYPE_CHECKING:
    from sarit.registry.registry import Registry
    from sarit.registry.values import Group, GroupName, Schema, Version


class Documents:
    """Makes documents of what the registry holds."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def group(self, group: Group) -> dict[str, Any]:
        """Return the GroupProperties of a group."""
        return {
            "serializationFormat": format_body(group.kind, group.format_name),
            "compatibility": await self.policy(group.name),
            "allowMultipleTypes": group.many_types,
            "properties": dict(group.properties),
        }

    async def policy(self, name: GroupName) -> dict[str, Any]:
        """Return the Compatibility that is in force for a group."""
        policy = shown_policy(await self._registry.settings(name))
        infos = {}
        for number in versions_of(policy):
            try:
                infos[number] = version_info(await self._registry.version(name, number, deleted=True))
            except NotThere:
                continue  # `policy_body` says what is shown then
        return policy_body(policy, infos)

    async def found(self, name: GroupName, version: Version) -> FoundVersion:
        """Return a version of a group with its schema.  Raises NotThere(SCHEMA)."""
        return FoundVersion(name, version, await self._registry.schema(version.schema))

    async def schema(self, found: FoundVersion) -> dict[str, Any]:
        """Return the SchemaInfo of a version.  Raises NotThere(VERSION): one that it refers to is gone."""
        schema = found.schema
        return {
            "type": found.version.type,
            "serializationFormat": format_body(schema.kind, schema.format_name),
            "schemaData": base64.b64encode(await self._data(schema)).decode(),
            "properties": dict(found.version.properties),
        }

    async def _data(self, schema: Schema) -> bytes:
        if schema.kind is not Kind.PROTOBUF and not schema.references:
            return schema_data(schema, {})
        texts = await self._registry.texts(schema) if schema.references else {}
        size = len(schema.text) + sum(map(len, texts.values()))
        return await self._registry.compute(partial(schema_data, schema, texts), size)

    async def with_version(self, found: FoundVersion) -> dict[str, Any]:
        """Return the SchemaWithVersion of a version."""
        return {"schemaInfo": await self.schema(found), "versionInfo": version_info(found)}


def version_info(found: FoundVersion) -> dict[str, Any]:
    """Return the VersionInfo of a version.  Its id is counted from 0 in the group."""
    version = found.version
    return {
        "type": version.type,
        "serializationFormat": full_name(found.schema.kind, found.schema.format_name),
        "version": version.type_version,
        "id": version.number - 1,
    }
