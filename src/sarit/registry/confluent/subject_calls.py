"""Calls of Confluent's API on subjects and their versions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.core.errors import Invalid, SaritError
from sarit.registry.access import Operation
from sarit.registry.confluent.bodies import (
    guid_of,
    read_flag,
    read_new,
    read_page,
    show_schema,
    show_version,
)
from sarit.registry.confluent.errors import BAD_SCHEMA, NOT_PERMITTED, Refused
from sarit.registry.confluent.formats import form_of, text_of
from sarit.registry.confluent.limits import (
    LISTED_GROUPS_PAGE,
    MAX_LISTED_NAMES,
    MAX_LISTED_SCHEMA_CHARS,
    MAX_LISTED_SCHEMAS,
)
from sarit.registry.confluent.subjects import (
    context_of,
    parse_prefix,
    parse_subject,
    parse_version,
    subject_of,
)
from sarit.registry.errors import BadSchema, Missing, NotThere
from sarit.registry.values import LATEST, GroupName, Reference
from sarit.registry.web import Answer, json_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from sarit.registry.access import Guard
    from sarit.registry.confluent.bodies import NewVersion
    from sarit.registry.registry import Registry
    from sarit.registry.statistics import Statistics
    from sarit.registry.values import FoundVersion, Schema, Version
    from sarit.registry.web import Asked, Handler


class SubjectCalls:
    """The handlers of `/subjects`, `/compatibility`, `/contexts` and of the list of schemas."""

    def __init__(self, registry: Registry, guard: Guard, statistics: Statistics) -> None:
        self._registry = registry
        self._guard = guard
        self._statistics = statistics

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by the names of their calls."""
        return {
            "root": _root,
            "list_contexts": self._list_contexts,
            "list_subjects": self._list_subjects,
            "find_schema": self._find_schema,
            "delete_subject": self._delete_subject,
            "find_metadata": self._find_metadata,
            "list_versions": self._list_versions,
            "register": self._register,
            "show_version": self._show_version,
            "delete_version": self._delete_version,
            "show_version_text": self._show_version_text,
            "list_referrers": self._list_referrers,
            "list_schemas": self._list_schemas,
            "check": self._check,
            "check_version": self._check_version,
        }

    # -- subjects -----------------------------------------------------------------------------------

    async def _list_contexts(self, asked: Asked) -> Answer:
        prefix = asked.query.get("contextPrefix", "")
        names = await self._registry.namespaces()
        if asked.caller is not None:
            names = [name for name in names if not name or await self._sees_any(asked, name)]
        contexts = [context_of(name) for name in names]
        shown = [context for context in contexts if context.startswith(prefix)]
        return json_answer(shown[read_page(asked.query, MAX_LISTED_NAMES)])

    async def _sees_any(self, asked: Asked, namespace: str) -> bool:
        async for _ in self._groups(asked, namespace, "", deleted=True):
            return True
        return False

    async def _list_subjects(self, asked: Asked) -> Answer:
        namespace, prefix = parse_prefix(asked.query.get("subjectPrefix"), asked.path.get("context"))
        page = read_page(asked.query, MAX_LISTED_NAMES)
        only, deleted = read_flag(asked.query, "deletedOnly"), read_flag(asked.query, "deleted")
        names = []
        async for name in self._groups(asked, namespace, prefix, deleted=deleted, only_deleted=only):
            names.append(subject_of(name))
            if len(names) >= page.stop:
                break
        return json_answer(names[page])

    async def _groups(
        self, asked: Asked, namespace: str | None, prefix: str, *, deleted: bool = False, only_deleted: bool = False
    ) -> AsyncIterator[GroupName]:
        """Yield the groups that the caller may know of, by name."""
        for each in await self._registry.namespaces() if namespace is None else [namespace]:
            after = ""
            while True:
                names = await self._registry.groups(
                    each, prefix=prefix, after=after, limit=LISTED_GROUPS_PAGE, deleted=deleted,
                    only_deleted=only_deleted,
                )  # fmt: skip
                for name in names:
                    if self._guard.sees(asked.caller, name):
                        yield name
                if len(names) < LISTED_GROUPS_PAGE:
                    break
                after = names[-1].group

    async def _delete_subject(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.DELETE)
        return json_answer(await self._registry.delete_group(name, permanent=read_flag(asked.query, "permanent")))

    async def _find_schema(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.SHOW)
        new = await self._new(asked, name)
        found = await self._registry.find(name, new.schema, deleted=read_flag(asked.query, "deleted"))
        return await self._shown(asked, found)

    async def _find_metadata(self, asked: Asked) -> Answer:
        # No schema has metadata here, so that only a search for none finds something: the latest version.
        name = self._name(asked, Operation.SHOW)
        found = await self._registry.version(name, LATEST, deleted=read_flag(asked.query, "deleted"))
        if "key" in asked.query:
            raise NotThere(Missing.SCHEMA, "Schema not found")
        return await self._shown(asked, found)

    # -- versions -----------------------------------------------------------------------------------

    async def _list_versions(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.SHOW)
        negative, only = read_flag(asked.query, "deletedAsNegative"), read_flag(asked.query, "deletedOnly")
        deleted = negative or read_flag(asked.query, "deleted")
        versions = await self._registry.versions(name, deleted=deleted, only_deleted=only and not negative)
        if not versions and not only:
            raise _no_subject(name)
        numbers = [-each.number if negative and each.deleted else each.number for each in versions]
        return json_answer(numbers[read_page(asked.query, MAX_LISTED_NAMES)])

    async def _register(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.REGISTER)
        try:
            new = await self._new(asked, name)
            form_of(new.schema.kind, asked.query.get("format", ""))  # refuses an unknown one before anything is done
            done = await self._registry.register(name, new.schema, id=new.id, version=new.version)
        except SaritError as error:
            self._statistics.refused(error)
            raise
        self._statistics.registered(done)
        schema = await self._registry.schema(done.id)
        answer = {"id": done.id, "version": done.version, "guid": guid_of(schema)}
        if asked.query.get("format"):
            # Only if asked for: clients take a text for the one that they sent, which may be in another format.
            answer |= show_schema(schema, await self._text(asked, schema))
        return json_answer(answer)

    async def _show_version(self, asked: Asked) -> Answer:
        return await self._shown(asked, await self._version(asked))

    async def _show_version_text(self, asked: Asked) -> Answer:
        found = await self._version(asked)
        return Answer((await self._text(asked, found.schema)).encode())

    async def _version(self, asked: Asked) -> FoundVersion:
        name, number = self._name(asked, Operation.SHOW), parse_version(asked.path["version"])
        return await self._registry.version(name, number, deleted=read_flag(asked.query, "deleted"))

    async def _delete_version(self, asked: Asked) -> Answer:
        name, number = self._name(asked, Operation.DELETE), parse_version(asked.path["version"])
        permanent = read_flag(asked.query, "permanent")
        return json_answer(await self._registry.delete_version(name, number, permanent=permanent))

    async def _list_referrers(self, asked: Asked) -> Answer:
        name, number = self._name(asked, Operation.SHOW), parse_version(asked.path["version"])
        number = (await self._registry.version(name, number, deleted=True)).version.number
        ids = await self._registry.referrers(name, number, deleted=read_flag(asked.query, "deleted"))
        if asked.caller is not None:
            ids = [id for id in ids if await self._sees(asked, id)]
        return json_answer(ids[read_page(asked.query, MAX_LISTED_NAMES)])

    async def _sees(self, asked: Asked, id: int) -> bool:
        return self._guard.sees_schema(asked.caller, await self._registry.holders(id, deleted=True))

    async def _list_schemas(self, asked: Asked) -> Answer:
        namespace, prefix = parse_prefix(asked.query.get("subjectPrefix"), asked.path.get("context"))
        page = read_page(asked.query, MAX_LISTED_SCHEMAS)
        deleted, latest = read_flag(asked.query, "deleted"), read_flag(asked.query, "latestOnly")
        places: list[tuple[GroupName, Version]] = []
        async for name in self._groups(asked, namespace, prefix, deleted=deleted):
            versions = await self._registry.versions(name, deleted=deleted)
            places += [(name, version) for version in (versions[-1:] if latest else versions)]
            if len(places) >= page.stop:
                break
        shown, size = [], 0
        for name, version in places[page]:
            found = await self._registry.version(name, version.number, deleted=deleted)
            shown.append(show_version(found))
            size += len(found.schema.text)
            if size > MAX_LISTED_SCHEMA_CHARS:
                most = f"These schemas have more than {MAX_LISTED_SCHEMA_CHARS} characters"
                raise Refused(NOT_PERMITTED, f"{most}: ask for fewer of them with limit and offset")
        return json_answer(shown)

    # -- compatibility ------------------------------------------------------------------------------

    async def _check(self, asked: Asked) -> Answer:
        return await self._checked(asked, None)

    async def _check_version(self, asked: Asked) -> Answer:
        return await self._checked(asked, parse_version(asked.path["version"]))

    async def _checked(self, asked: Asked, version: int | None) -> Answer:
        name, verbose = self._name(asked, Operation.CHECK), read_flag(asked.query, "verbose")
        try:
            new = await self._new(asked, name)
            reasons = await self._registry.check(name, new.schema, version)
        except NotThere as error:
            # Everything is compatible with the latest version of a subject that has none.
            if version is not None and version != LATEST:
                raise NotThere(Missing.VERSION, str(error)) from None
            reasons = []
        except BadSchema as error:
            if not verbose:
                raise
            reasons = [str(error)]
        messages = {"messages": reasons} if verbose else {}
        return json_answer({"is_compatible": not reasons, **messages})

    async def _shown(self, asked: Asked, found: FoundVersion) -> Answer:
        return json_answer(show_version(found, await self._text(asked, found.schema)))

    async def _text(self, asked: Asked, schema: Schema) -> str:
        return await text_of(self._registry, schema, asked.query.get("format", ""))

    # -- what a request names -----------------------------------------------------------------------

    def _name(self, asked: Asked, operation: Operation) -> GroupName:
        """Return the subject in the path, which the caller may do this with.  Raises Refused, Forbidden."""
        name = parse_subject(asked.path["subject"], asked.path.get("context"))
        self._guard.check(asked.caller, operation, name, asked.peer)
        return name

    async def _new(self, asked: Asked, name: GroupName) -> NewVersion:
        """Return the schema in the body.  Raises Refused, NotThere (a reference), Forbidden (a reference).

        The schema is shown with the texts that it refers to, so its caller must be allowed to read them."""
        new = read_new(asked.body, name.namespace)
        for group in sorted({each.group for each in new.schema.references}):
            self._guard.check(asked.caller, Operation.SHOW, GroupName(name.namespace, group), asked.peer)
        references = [await self._resolved(name, each) for each in new.schema.references]
        return replace(new, schema=replace(new.schema, references=tuple(references)))

    async def _resolved(self, name: GroupName, reference: Reference) -> Reference:
        if reference.version != LATEST:
            return reference
        try:
            found = await self._registry.version(GroupName(name.namespace, reference.group), LATEST)
        except (NotThere, Invalid) as error:
            raise Refused(BAD_SCHEMA, f"The reference {reference.name!a} leads nowhere: {error}") from None
        return replace(reference, version=found.version.number)


async def _root(_: Asked) -> Answer:
    return json_answer({})


def _no_subject(name: GroupName) -> NotThere:
    return NotThere(Missing.GROUP, f"Subject {subject_of(name)!a} not found.")
