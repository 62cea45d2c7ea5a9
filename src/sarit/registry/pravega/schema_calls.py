"""Calls of Pravega's API on schemas, their versions and encodings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sarit.core.errors import Invalid, SaritError
from sarit.registry.access import Operation
from sarit.registry.errors import Missing, NotThere, WrongKind
from sarit.registry.limits import MAX_PRAVEGA_ANSWER_BYTES
from sarit.registry.pravega.bodies import Documents, version_info
from sarit.registry.pravega.fields import Fields, shown
from sarit.registry.pravega.formats import full_name, read_schema, readable_text
from sarit.registry.pravega.group_calls import live_group
from sarit.registry.pravega.policies import check_versions, read_policy
from sarit.registry.pravega.requests import group_of, namespace_of, new_schema_of, number_in, schema_of
from sarit.registry.values import takes
from sarit.registry.web import Answer, json_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sarit.registry.access import Guard
    from sarit.registry.registry import Registry
    from sarit.registry.statistics import Statistics
    from sarit.registry.values import Group, GroupName, NewSchema, Version
    from sarit.registry.web import Asked, Handler


class SchemaCalls:
    """The handlers of `/v1/groups/{group}/schemas`, `/encodings`, `/history`, and of `/v1/schemas/addedTo`."""

    def __init__(self, registry: Registry, guard: Guard, statistics: Statistics) -> None:
        self._registry = registry
        self._guard = guard
        self._statistics = statistics
        self._documents = Documents(registry)

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by the names of their calls."""
        return {
            "register": self._register,
            "list_latest": self._list_latest,
            "list_versions": self._list_versions,
            "show_history": self._show_history,
            "find_schema": self._find_schema,
            "check": self._check,
            "can_read": self._can_read,
            "show_schema": self._show_schema,
            "delete_schema": self._delete_schema,
            "show_version": self._show_version,
            "delete_version": self._delete_version,
            "encode": self._encode,
            "show_encoding": self._show_encoding,
            "list_groups_of_schema": self._list_groups_of_schema,
        }

    # -- registration and comparison ----------------------------------------------------------------

    async def _register(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.REGISTER)
        try:
            given = schema_of(asked)
            new = await new_schema_of(self._registry, given)
            done = await self._registry.register(name, new, properties=given.properties, create=False)
        except SaritError as error:
            self._statistics.refused(error)
            raise
        self._statistics.registered(done)
        # Deleted meanwhile or not: the schema was added.
        return json_answer(version_info(await self._registry.version(name, done.version, deleted=True)), 201)

    async def _find_schema(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.SHOW)
        new = await new_schema_of(self._registry, schema_of(asked))
        return json_answer(version_info(await self._registry.find(name, new)))

    async def _check(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.CHECK)
        fields = Fields(asked.body)
        given = read_schema(fields.object("schemaInfo"))
        policy = read_policy(fields.object("compatibility")) if "compatibility" in fields else None
        group = await live_group(self._registry, name)
        if policy is not None:
            check_versions(policy, {one.number for one in await self._registry.versions(name, deleted=True)})
        new = await new_schema_of(self._registry, given)
        _check_kind(group, new)
        try:
            reasons = await self._registry.check(name, new, policy=policy)
        except WrongKind as error:  # another type than the one of the group
            reasons = [str(error)]
        return json_answer({"valid": not reasons})

    async def _can_read(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.CHECK)
        given = schema_of(asked)
        await live_group(self._registry, name)
        new = await new_schema_of(self._registry, given)
        try:
            compatible = await self._registry.can_read(name, new)
        except WrongKind:
            compatible = False
        return json_answer({"compatible": compatible})

    # -- versions -----------------------------------------------------------------------------------

    async def _list_latest(self, asked: Asked) -> Answer:
        name, wanted = self._name(asked, Operation.SHOW), asked.query.get("type")
        latest: dict[tuple[Any, ...], Version] = {}
        for version in await self._live_versions(name):
            if wanted in (None, version.type):
                latest[(version.type,) if wanted else (version.type, version.kind)] = version
        if wanted is not None and not latest:
            raise NotThere(Missing.SCHEMA, f"the group has no schema of the type {shown(wanted)}")
        by_id = sorted(latest.values(), key=lambda version: version.number)
        return json_answer({"schemas": await self._with_versions(name, by_id)})

    async def _list_versions(self, asked: Asked) -> Answer:
        name, wanted = self._name(asked, Operation.SHOW), asked.query.get("type")
        versions = [one for one in await self._live_versions(name) if wanted in (None, one.type)]
        return json_answer({"schemas": await self._with_versions(name, versions)})

    async def _show_history(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.SHOW)
        versions = await self._live_versions(name)
        policy = await self._documents.policy(name)
        history = []
        size = 0
        for version in versions:
            found = await self._documents.found(name, version)
            record = await self._documents.with_version(found)
            text = readable_text(found.schema)
            history.append({**record, "compatibility": policy, "timestamp": version.created_ms, "schemaString": text})
            size = _grown(size, len(record["schemaInfo"]["schemaData"]) + len(text))
        return json_answer({"history": history})

    async def _live_versions(self, name: GroupName) -> list[Version]:
        await live_group(self._registry, name)
        return await self._registry.versions(name)

    async def _with_versions(self, name: GroupName, versions: Iterable[Version]) -> list[Any]:
        made = []
        size = 0
        for version in versions:
            document = await self._documents.with_version(await self._documents.found(name, version))
            size = _grown(size, len(document["schemaInfo"]["schemaData"]))
            made.append(document)
        return made

    async def _show_schema(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.SHOW)
        number = number_in(asked, "id", Missing.SCHEMA) + 1
        return await self._shown_schema(name, number)

    async def _shown_schema(self, name: GroupName, number: int) -> Answer:
        # As in Pravega, one that was deleted is still shown: events that it wrote may be there.
        found = await self._registry.version(name, number, deleted=True)
        return json_answer(await self._documents.schema(found))

    async def _show_version(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.SHOW)
        return await self._shown_schema(name, (await self._version_in(asked, name)).number)

    async def _delete_schema(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.DELETE)
        return await self._deleted(name, number_in(asked, "id", Missing.SCHEMA) + 1)

    async def _delete_version(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.DELETE)
        return await self._deleted(name, (await self._version_in(asked, name)).number)

    async def _deleted(self, name: GroupName, number: int) -> Answer:
        try:
            await self._registry.delete_version(name, number)
        except NotThere as error:
            if error.what is not Missing.DELETED_VERSION:  # as in Pravega: that is the outcome that was wanted
                raise
        return Answer(status=204)

    async def _version_in(self, asked: Asked, name: GroupName) -> Version:
        """Return the version that a path names by its format, its type, and its number in that type."""
        format_name, type_name = asked.path["format"], asked.path["type"]
        number = number_in(asked, "version", Missing.VERSION)
        for version in await self._registry.versions(name, deleted=True):
            if version.type == type_name and version.type_version == number:
                schema = (await self._documents.found(name, version)).schema
                if full_name(schema.kind, schema.format_name) == format_name:
                    return version
        raise NotThere(Missing.VERSION, f"there is no version {number} of {shown(type_name)} in {shown(format_name)}")

    # -- encodings ----------------------------------------------------------------------------------

    async def _encode(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.ADD_ENCODING)
        fields = Fields(asked.body)
        version, codec = fields.object("versionInfo").number("id") + 1, fields.text("codecType")
        return json_answer({"encodingId": await self._registry.encodings.encode(name, version, codec)})

    async def _show_encoding(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.SHOW_ENCODING)
        number = number_in(asked, "encoding", Missing.ENCODING)
        encoding = await self._registry.encodings.get(name, number)
        found = await self._registry.version(name, encoding.version, deleted=True)
        codecs = (await self._registry.group(name)).codecs if encoding.codec else {}
        codec = {"name": encoding.codec, "properties": dict(codecs.get(encoding.codec, {}))}
        return json_answer({**await self._documents.with_version(found), "codecType": codec})

    # -- all groups ---------------------------------------------------------------------------------

    async def _list_groups_of_schema(self, asked: Asked) -> Answer:
        namespace = namespace_of(asked)
        new = await new_schema_of(self._registry, schema_of(asked))
        schema = await self._registry.find_schema(namespace, new)
        groups: dict[str, Any] = {}
        for holder in await self._registry.holders(schema.id):  # a later version of a group in place of an earlier one
            if holder.name.namespace == namespace and self._guard.sees(asked.caller, holder.name):
                found = await self._registry.version(holder.name, holder.version, deleted=True)
                if new.type in ("", found.version.type) or not found.version.type:
                    groups[holder.name.group] = version_info(found)
        if not groups:
            raise NotThere(Missing.SCHEMA, "no group has the schema")
        return json_answer({"groups": groups})

    def _name(self, asked: Asked, operation: Operation) -> GroupName:
        name = group_of(asked)
        self._guard.check(asked.caller, operation, name, asked.peer)
        return name


def _check_kind(group: Group, new: NewSchema) -> None:
    if not takes(group.kind, group.format_name, new):
        raise WrongKind(f"the group is for {full_name(group.kind, group.format_name)} alone", "kind")


def _grown(size: int, more: int) -> int:
    """Return the size of an answer with a further part.  Raises Invalid beyond MAX_PRAVEGA_ANSWER_BYTES."""
    size += more
    if size > MAX_PRAVEGA_ANSWER_BYTES:
        raise Invalid(
            f"the schemas have more than {MAX_PRAVEGA_ANSWER_BYTES:,} bytes: ask for one type, or for each by its id"
        )
    return size
