"""Calls of Confluent's API on schemas by their ids.

An id is one of the installation, not of a context.  Who may read no group that holds a schema gets the same answer as
for an id that no schema has, so that ids tell nobody what there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.registry.confluent.bodies import TYPES, guid_of, id_in_guid, read_flag, read_page, show_schema
from sarit.registry.confluent.formats import text_of
from sarit.registry.confluent.limits import MAX_LISTED_NAMES
from sarit.registry.confluent.subjects import context_of, no_schema, parse_id, parse_subject, subject_of
from sarit.registry.errors import Missing, NotThere
from sarit.registry.web import Answer, json_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.registry.access import Guard
    from sarit.registry.registry import Registry
    from sarit.registry.values import Holder, Schema
    from sarit.registry.web import Asked, Handler


class SchemaCalls:
    """The handlers of `/schemas` but for its list."""

    def __init__(self, registry: Registry, guard: Guard) -> None:
        self._registry = registry
        self._guard = guard

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by the names of their calls."""
        return {
            "list_types": self._list_types,
            "show_schema": self._show_schema,
            "show_schema_text": self._show_schema_text,
            "list_subjects_of_schema": self._list_subjects,
            "list_versions_of_schema": self._list_versions,
            "show_schema_by_guid": self._show_schema_by_guid,
            "list_ids_of_guid": self._list_ids,
        }

    async def _list_types(self, _: Asked) -> Answer:
        return json_answer([kind.value for kind in TYPES])

    async def _show_schema(self, asked: Asked) -> Answer:
        schema = await self._schema(asked, parse_id(asked.path["id"]))
        shown = show_schema(schema, await self._text(asked, schema))
        if asked.query.get("subject"):
            name = parse_subject(asked.query["subject"], asked.path.get("context"))
            for holder in await self._holders(asked, schema.id):
                if holder.name == name:
                    shown |= {"subject": subject_of(name), "version": holder.version}
        return json_answer(shown)

    async def _show_schema_text(self, asked: Asked) -> Answer:
        schema = await self._schema(asked, parse_id(asked.path["id"]))
        return Answer((await self._text(asked, schema)).encode())

    async def _list_subjects(self, asked: Asked) -> Answer:
        names = sorted({subject_of(holder.name) for holder in await self._asked_holders(asked)})
        return json_answer(names[read_page(asked.query, MAX_LISTED_NAMES)])

    async def _list_versions(self, asked: Asked) -> Answer:
        found = [
            {"subject": subject_of(holder.name), "version": holder.version}
            for holder in await self._asked_holders(asked)
        ]
        return json_answer(found[read_page(asked.query, MAX_LISTED_NAMES)])

    async def _show_schema_by_guid(self, asked: Asked) -> Answer:
        schema = await self._by_guid(asked)
        shown = show_schema(schema, await self._text(asked, schema))
        return json_answer({"id": schema.id, **shown})

    async def _list_ids(self, asked: Asked) -> Answer:
        schema = await self._by_guid(asked)
        spaces = sorted({holder.name.namespace for holder in await self._holders(asked, schema.id)})
        return json_answer([{"context": context_of(each), "id": schema.id} for each in spaces])

    async def _text(self, asked: Asked, schema: Schema) -> str:
        return await text_of(self._registry, schema, asked.query.get("format", ""))

    async def _by_guid(self, asked: Asked) -> Schema:
        guid = asked.path["guid"]
        try:
            schema = await self._schema(asked, id_in_guid(guid))
        except NotThere:
            raise no_schema(guid) from None
        if guid_of(schema) != guid.lower():
            raise no_schema(guid)
        return schema

    async def _schema(self, asked: Asked, id: int) -> Schema:
        """Return a schema that the caller may read.  Raises NotThere(SCHEMA) also where there is one."""
        try:
            schema = await self._registry.schema(id)
            if asked.caller is not None:
                await self._holders(asked, id)
        except NotThere as error:
            raise (no_schema(str(id)) if error.what is Missing.SCHEMA else error) from None
        return schema

    async def _holders(self, asked: Asked, id: int, *, deleted: bool = True) -> list[Holder]:
        """Return the versions that hold a schema and that the caller may know of.  Raises NotThere(SCHEMA): it may read
        none of them."""
        try:
            every = await self._registry.holders(id, deleted=True)
        except NotThere:
            raise no_schema(str(id)) from None
        if not self._guard.sees_schema(asked.caller, every):
            raise no_schema(str(id))
        return [
            holder for holder in every
            if (deleted or not holder.deleted) and self._guard.sees(asked.caller, holder.name)
        ]  # fmt: skip

    async def _asked_holders(self, asked: Asked) -> list[Holder]:
        id = parse_id(asked.path["id"])
        found = await self._holders(asked, id, deleted=read_flag(asked.query, "deleted"))
        if not asked.query.get("subject"):
            return found
        name = parse_subject(asked.query["subject"], asked.path.get("context"))
        return [holder for holder in found if holder.name == name]
