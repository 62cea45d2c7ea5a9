"""Calls of Pravega's API on groups, with their policies and codecs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from sarit.registry.access import Operation
from sarit.registry.errors import Missing, NotThere, ReadOnly
from sarit.registry.limits import MAX_PRAVEGA_GROUPS, PRAVEGA_GROUPS
from sarit.registry.names import check_group
from sarit.registry.pravega.bodies import Documents
from sarit.registry.pravega.fields import Fields
from sarit.registry.pravega.formats import read_format
from sarit.registry.pravega.policies import check_format, check_versions, read_policy, versions_of
from sarit.registry.pravega.requests import group_of, limit_of, namespace_of
from sarit.registry.values import Group, GroupName, Mode, Settings
from sarit.registry.web import Answer, json_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.registry.access import Guard
    from sarit.registry.registry import Registry
    from sarit.registry.web import Asked, Handler
    from sarit.schemas.compatibility import Policy


class GroupCalls:
    """The handlers of `/v1/groups` and of `/v1/groups/{group}` but for its schemas."""

    def __init__(self, registry: Registry, guard: Guard) -> None:
        self._registry = registry
        self._guard = guard
        self._documents = Documents(registry)

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by the names of their calls."""
        return {
            "ping": _ping,
            "list_groups": self._list_groups,
            "create_group": self._create_group,
            "show_group": self._show_group,
            "delete_group": self._delete_group,
            "set_policy": self._set_policy,
            "list_codecs": self._list_codecs,
            "add_codec": self._add_codec,
        }

    async def _list_groups(self, asked: Asked) -> Answer:
        namespace = namespace_of(asked)
        limit = limit_of(asked, PRAVEGA_GROUPS, MAX_PRAVEGA_GROUPS)
        after = asked.query.get("continuationToken", "")
        shown: dict[str, Any] = {}
        more = True
        # A page without groups ends the list of a client: it must be the last one.
        while more and len(shown) < limit:
            names = await self._registry.groups(namespace, after=after, limit=limit - len(shown))
            more = bool(names)
            for name in names:
                after = name.group
                if self._guard.sees(asked.caller, name):
                    shown |= await self._shown(name)
        return json_answer({"groups": shown, "continuationToken": after})

    async def _shown(self, name: GroupName) -> dict[str, Any]:
        try:
            return {name.group: await self._documents.group(await self._registry.group(name))}
        except NotThere:
            return {}  # deleted meanwhile

    async def _create_group(self, asked: Asked) -> Answer:
        fields = Fields(asked.body)
        name = check_group(GroupName(namespace_of(asked), fields.text("groupName")))
        self._guard.check(asked.caller, Operation.CREATE, name, asked.peer)
        properties = fields.object("groupProperties")
        kind, format_name = read_format(properties.object("serializationFormat"))
        policy = read_policy(properties.object("compatibility"))
        check_format(policy, kind, new=True)
        check_versions(policy, ())
        await self._registry.create_group(
            Group(
                name, Settings(policy=policy), kind, format_name,
                many_types=properties.flag("allowMultipleTypes"), properties=properties.properties("properties"),
            )
        )  # fmt: skip
        return Answer(status=201)

    async def _show_group(self, asked: Asked) -> Answer:
        return json_answer(await self._documents.group(await self._group(asked, Operation.SHOW_SETTINGS)))

    async def _delete_group(self, asked: Asked) -> Answer:
        name = group_of(asked)
        self._guard.check(asked.caller, Operation.DELETE, name, asked.peer)
        with contextlib.suppress(NotThere):  # as in Pravega: that is the outcome that was wanted
            await self._registry.delete_group(name)
        return Answer(status=204)

    async def _set_policy(self, asked: Asked) -> Answer:
        group = await self._group(asked, Operation.SET_POLICY)
        fields = Fields(asked.body)
        policy = read_policy(fields.object("compatibility"))
        check_format(policy, group.kind, new=False)
        previous = read_policy(fields.object("previousCompatibility")) if "previousCompatibility" in fields else None
        mode = (await self._registry.settings(group.name)).mode
        if mode is not Mode.READWRITE:
            assert mode is not None
            raise ReadOnly(f"the mode {mode.value} of Confluent's API is in force: set it to READWRITE first")
        await self._check_versions(policy, group.name)
        await self._registry.set_policy(group.name, policy, expected=previous)
        return Answer(status=200)

    async def _check_versions(self, policy: Policy, name: GroupName) -> None:
        if versions_of(policy):
            check_versions(policy, {one.number for one in await self._registry.versions(name, deleted=True)})

    async def _list_codecs(self, asked: Asked) -> Answer:
        group = await self._group(asked, Operation.SHOW_ENCODING)
        codecs = [{"name": name, "properties": dict(found)} for name, found in sorted(group.codecs.items())]
        return json_answer({"codecTypes": codecs})

    async def _add_codec(self, asked: Asked) -> Answer:
        name = group_of(asked)
        self._guard.check(asked.caller, Operation.ADD_CODEC, name, asked.peer)
        fields = Fields(asked.body)
        codec, properties = fields.text("name"), fields.properties("properties")
        await self._registry.encodings.add_codec(name, codec, properties)
        return Answer(status=201)

    async def _group(self, asked: Asked, operation: Operation) -> Group:
        name = group_of(asked)
        self._guard.check(asked.caller, operation, name, asked.peer)
        return await live_group(self._registry, name)


async def live_group(registry: Registry, name: GroupName) -> Group:
    """Return a group that is not deleted.  Raises NotThere(GROUP)."""
    group = await registry.group(name)
    if group.deleted:
        raise NotThere(Missing.GROUP, "there is no such group: it was deleted")
    return group


async def _ping(_: Asked) -> Answer:
    return Answer()
