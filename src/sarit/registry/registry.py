"""The registry over its table: reads rows, decides by `decisions`, writes one conditional batch.

Every answer but that of `schema` reads the table, so that whoever was answered by one controller finds the same at
another.  A schema never changes under its id, so its text is cached.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from sarit.core.errors import Invalid
from sarit.registry import decisions, keys, records
from sarit.registry.changes import Changes
from sarit.registry.decisions import GroupRows, Registration
from sarit.registry.deletion import Deletions
from sarit.registry.encodings import Encodings
from sarit.registry.errors import Missing, NotThere, PolicyChanged, WrongKind
from sarit.registry.limits import MAX_CODECS_OF_GROUP, MAX_REGISTRY_NUMBER
from sarit.registry.names import (
    check_codec,
    check_format,
    check_group,
    check_level,
    check_namespace,
    check_new,
    check_properties,
)
from sarit.registry.parser import Parser
from sarit.registry.policies import check_policy, for_reading
from sarit.registry.records import Head, Remains
from sarit.registry.references import References
from sarit.registry.registration import Registrations
from sarit.registry.rows import Rows
from sarit.registry.values import LATEST, FoundVersion, Group, GroupName, Mode, Settings, takes
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sarit.controller.ports import Tables
    from sarit.env.ports import Env
    from sarit.registry.changes import Counts
    from sarit.registry.decisions import Change
    from sarit.registry.parser import Parsed
    from sarit.registry.records import Counters
    from sarit.registry.values import Holder, NewSchema, Registered, Schema, Version
    from sarit.schemas.compatibility import Policy

    T = TypeVar("T")


class Registry:
    """The schemas of an installation.  All methods raise Unavailable and Corrupt besides what they name; what needs
    long computing (a parse, a comparison) is done on a worker thread.

    `encodings`: Pravega's encodings and codecs."""

    def __init__(self, tables: Tables, env: Env, installation: str = "") -> None:
        """`installation`: the id of the node or the cluster, by which a restore from a backup is recognized, since a
        restored one has another id: its counters rise once; empty: they never do."""
        self._rows = Rows(tables)
        self._changes = Changes(tables, self._rows, env, installation)
        self._parser = Parser(env)
        self._references = References(self._rows)
        self._registrations = Registrations(self._rows, self._changes, self._parser, self._references, env)
        self._deletions = Deletions(self._rows, self._changes)
        self._clock = env.clock
        self.encodings = Encodings(self._rows, self._changes)

    def __repr__(self) -> str:
        return f"<Registry, {self._changes!r}>"

    async def close(self) -> None:
        """End the worker."""
        await self._parser.close()

    @property
    def counts(self) -> Counts | None:
        """How many schemas and groups there were at the last change that this process saw; None before the first."""
        return self._changes.counts

    async def compute(self, work: Callable[[], T], size: int) -> T:
        """Return what `work`, a pure function of texts of `size` bytes, returns, within the bounds of the worker.

        Raises Unavailable (too many requests wait), and what `work` raises."""
        return await self._parser.run(work, size)

    # -- schemas ------------------------------------------------------------------------------------

    async def register(
        self, name: GroupName, new: NewSchema, *, properties: Mapping[str, str] | None = None,
        id: int | None = None, version: int | None = None, create: bool = True,
    ) -> Registered:  # fmt: skip
        """Add a schema to a group as its next version; return the version that holds it if one does already.

        `create`: make the group if there is none, for schemas of any kind.  `id`, `version`: those of another
        registry, in Mode.IMPORT alone.  A schema that was softly deleted gets a new version, with its old id.
        Raises NotThere(GROUP), BadSchema, BadReference, WrongKind, Incompatible, ReadOnly, Full, Invalid."""
        copy = check_properties(properties or {})
        parsed = await self._parse(check_group(name), new)
        wanted = Registration(parsed.schema, parsed.type, bool(new.type), copy, create, id, version)
        return await self._registrations.register(name, parsed, wanted)

    async def find(self, name: GroupName, new: NewSchema, *, deleted: bool = False) -> FoundVersion:
        """Return the version of a group that holds a schema, the latest one if several do.

        Raises NotThere(GROUP or SCHEMA), BadSchema, BadReference."""
        rows = GroupRows(name, await self._rows.head(check_group(name)), None)
        head = rows.require_any() if deleted else rows.require()
        schema = await self.find_schema(name.namespace, new)
        latest = await self._rows.latest(name, head)
        if latest is None or latest.schema != schema.id or not _fits(latest, new):
            every = await self._rows.held(schema.id, name, head)
            held = [one for one in every if (deleted or not one.deleted) and _fits(one, new)]
            if not held:
                raise NotThere(Missing.SCHEMA, f"no version of group {shown(str(name))} holds the schema")
            latest = held[-1]
        return FoundVersion(name, latest, schema)

    async def find_schema(self, namespace: str, new: NewSchema) -> Schema:
        """Return the stored schema that equals one.  `namespace`: of the groups of its references.

        Raises NotThere(SCHEMA), BadSchema, BadReference."""
        parsed = await self._parse(GroupName(check_namespace(namespace), ""), new)
        key = keys.fingerprint_key(parsed.fingerprint)
        (row,) = await self._rows.get([key])
        schema = None if row is None else await self._rows.schema(records.decode_id(row.value, records.name_of(key)))
        if schema is None:
            raise NotThere(Missing.SCHEMA, "the schema is not registered")
        return schema

    async def check(
        self, name: GroupName, new: NewSchema, version: int | None = None, *, policy: Policy | None = None
    ) -> list[str]:  # fmt: skip
        """Return why the policy of a group refuses a schema; nothing if it does not.  Changes nothing.

        `version`: compare with this one alone (or LATEST), in the policy's directions; None: as `register` does.
        `policy`: check by this one instead of that in force.
        A group without versions refuses nothing.  Raises NotThere(VERSION), BadSchema, BadReference, Full."""
        parsed = await self._parse(check_group(name), new)
        group = await self._rows.group(name)
        policy = policy or group.settings.policy
        assert policy is not None  # settings in force are complete
        only = None
        if version is not None:
            only = await self._rows.find_version(name, version)
        if group.head is None:
            return []
        refusal = await self._registrations.kind_refusal(group.head, name, parsed)
        return [refusal] if refusal else await self._registrations.reasons(name, group.head, policy, parsed, only)

    async def can_read(self, name: GroupName, new: NewSchema) -> bool:
        """Return whether a reader with this schema reads the versions of a group that its policy lets writers use
        (Pravega's canRead).  Raises NotThere(GROUP), BadSchema, WrongKind."""
        group = await self._rows.group(check_group(name))
        head = group.require()
        if not takes(head.kind, head.format_name, new):
            assert head.kind is not None
            raise WrongKind(f"group {shown(str(name))} holds schemas of the kind {head.kind.value}", "kind")
        parsed = await self._parse(name, new)
        policy = group.settings.policy
        reading = None if policy is None else for_reading(policy)
        return reading is None or not await self._registrations.reasons(name, head, reading, parsed)

    async def schema(self, id: int) -> Schema:
        """Return the schema of an id.  Raises NotThere(SCHEMA)."""
        found = await self._rows.schema(id) if 0 < id <= MAX_REGISTRY_NUMBER else None
        if found is None:
            raise NotThere(Missing.SCHEMA, f"schema {id} does not exist")
        return found

    async def texts(self, schema: Schema) -> dict[str, str]:
        """Return the texts of a schema's references, and of theirs, by the name that refers to them.

        Raises NotThere(VERSION)."""
        return await self._references.of_stored(schema)

    async def referenced(self, schema: Schema) -> Sequence[FoundVersion]:
        """Return the versions that a schema refers to, in order.  Raises NotThere(VERSION)."""
        return await self._references.versions(schema.namespace, schema.references, deleted=True)

    async def holders(self, id: int, *, deleted: bool = False) -> list[Holder]:
        """Return the versions that hold a schema, by name.  Raises NotThere(SCHEMA)."""
        await self.schema(id)
        return [one for one in await self._rows.holders(id) if deleted or not one.deleted]

    async def _parse(self, name: GroupName, new: NewSchema) -> Parsed:
        check_new(new)
        texts = await self._references.of_new(name.namespace, new.references)
        return await self._parser.parse(new, texts, name.namespace)

    # -- versions -----------------------------------------------------------------------------------

    async def version(self, name: GroupName, number: int, *, deleted: bool = False) -> FoundVersion:
        """Return a version, or with LATEST the highest.  Raises NotThere(GROUP or VERSION)."""
        version = await self._rows.find_version(check_group(name), _checked(number), deleted=deleted)
        found = await self._rows.found(name, version)
        if found is None:
            raise NotThere(Missing.VERSION, f"group {shown(str(name))} has no version {version.number}")
        return found

    async def versions(self, name: GroupName, *, deleted: bool = False, only_deleted: bool = False) -> list[Version]:
        """Return the versions of a group, ascending, deleted ones too if asked for.  Raises NotThere(GROUP)."""
        rows = GroupRows(name, await self._rows.head(check_group(name)), None)
        head = rows.require_any() if deleted or only_deleted else rows.require()
        found = await self._rows.versions(name, head)
        if only_deleted:
            return [one for one in found if one.deleted]
        return [one for one in found if deleted or not one.deleted]

    async def referrers(self, name: GroupName, number: int, *, deleted: bool = False) -> list[int]:
        """Return the ids of the schemas that refer to a version (or LATEST), ascending.

        `deleted`: also of those whose versions are all deleted softly.  Raises NotThere(GROUP or VERSION)."""
        found = await self._rows.find_version(check_group(name), _checked(number), deleted=deleted)
        rows = await self._rows.scan(keys.referrers_of(name, found.number))
        ids = sorted(keys.parse_referrer(key) for key, _ in rows)
        if deleted:
            return ids
        return [id for id in ids if any(not one.deleted for one in await self._rows.holders(id))]

    async def delete_version(self, name: GroupName, number: int, *, permanent: bool = False) -> int:
        """Delete a version (or LATEST) softly, or permanently one that is deleted softly; return its number.

        A version is referred to while a version that is not deleted softly (`permanent`: any version) holds a schema
        that refers to it.
        Raises NotThere(GROUP, VERSION, DELETED_VERSION: it is deleted softly already), NotDeleted, Referenced,
        ReadOnly."""
        check_group(name)
        if permanent:
            return await self._deletions.purge_version(name, _checked(number))
        return await self._deletions.version(name, _checked(number))

    # -- groups -------------------------------------------------------------------------------------

    async def namespaces(self) -> list[str]:
        """Return the namespaces that have groups, in order, the default one ("") first, which is always there."""
        found, start = [""], keys.groups_of("")
        while rows := await self._rows.scan(keys.GROUPS, start, 1):
            namespace = keys.parse_head(rows[0][0]).namespace
            if namespace:
                found.append(namespace)
            start = keys.after_prefix(keys.groups_of(namespace))
        return found

    async def groups(
        self, namespace: str | None, *, prefix: str = "", after: str = "", limit: int = 0, deleted: bool = False,
        only_deleted: bool = False,
    ) -> list[GroupName]:  # fmt: skip
        """Return groups by name, from the one after `after` on; `namespace` None: of all; `limit` 0: no limit.

        Groups without versions that Pravega's face made are listed; deleted ones if asked for.  Raises Invalid."""
        start, of = b"", keys.GROUPS
        if namespace is not None:
            of = keys.groups_of(check_namespace(namespace))
            try:
                start = of + after.encode() + b"\0" if after else b""
                of += prefix.encode()
            except UnicodeEncodeError:
                raise Invalid("the name of a group is no text") from None
        found: list[GroupName] = []
        async for name, head in self._rows.all_heads(of, start, limit):
            if (head.hidden if only_deleted else deleted or not head.hidden) and name.group.startswith(prefix):
                found.append(name)
                if len(found) == limit:
                    break
        return found

    async def group(self, name: GroupName) -> Group:
        """Return a group; its settings are its own.  Raises NotThere(GROUP)."""
        rows = await self._rows.group(check_group(name))
        head = rows.require_any()
        return Group(
            name, rows.levels[0], head.kind, head.format_name, head.many_types, head.properties, head.codecs,
            head.hidden, head.created_ms,
        )  # fmt: skip

    async def create_group(self, group: Group) -> None:
        """Create a group without versions, or bring back one that was deleted softly, whose versions stay deleted.

        Raises Exists, Full, ReadOnly, Invalid (a name; the policy is not for this kind)."""
        check_group(group.name)
        check_format(group.format_name)
        if len(group.codecs) > MAX_CODECS_OF_GROUP:
            raise Invalid(f"a group has at most {MAX_CODECS_OF_GROUP} codecs")
        head = Head(
            Remains(), created=True, kind=group.kind, format_name=group.format_name, many_types=group.many_types,
            properties=check_properties(group.properties),
            codecs={check_codec(codec): check_properties(own) for codec, own in group.codecs.items()},
            created_ms=self._clock.wall_ms(),
        )  # fmt: skip

        async def decide(counters: Counters) -> Change[None]:
            return decisions.create_group(await self._rows.group(group.name), counters, head, group.settings)

        await self._changes.make(decide)

    async def delete_group(self, name: GroupName, *, permanent: bool = False) -> list[int]:
        """Delete all versions of a group softly, or permanently if they are; return their numbers.

        References of its versions to each other do not count.
        Raises NotThere(GROUP, DELETED_GROUP), NotDeleted, Referenced, ReadOnly."""
        check_group(name)
        return await (self._deletions.purge_group(name) if permanent else self._deletions.group(name))

    # -- settings -----------------------------------------------------------------------------------

    async def settings(self, name: GroupName) -> Settings:
        """Return the settings in force for a group, which need not exist: every field is set.  A GroupName with an
        empty group: those of its namespace, of which the default one has those of the installation."""
        return (await self._rows.group(check_level(name))).settings

    async def own_settings(self, name: GroupName) -> Settings:
        """Return what is set at a name itself (see `settings`).  Raises NotThere(SETTING) if nothing is."""
        own = (await self._rows.group(check_level(name))).levels[0]
        if own == Settings():
            raise NotThere(Missing.SETTING, f"{shown(str(name)) or 'the installation'} has no settings of its own")
        return own

    async def set_policy(self, name: GroupName, policy: Policy | None, *, expected: Policy | None = None) -> None:
        """Set the policy of a name (see `settings`); None: remove it.  `expected`: what is in force now.

        Raises PolicyChanged, NotThere(SETTING: nothing to remove; GROUP, with `expected`), ReadOnly, Invalid."""

        async def decide(counters: Counters) -> Change[None]:
            group = await self._rows.group(check_level(name))
            if expected is not None:
                group.require()
                if group.settings.policy != expected:
                    raise PolicyChanged(f"group {shown(str(name))} has another policy")
            group.require_writable()
            if policy is not None and group.head is not None:
                check_policy(policy, group.head.kind)
            own = group.levels[0]
            if policy is None and own.policy is None:
                own = Settings()
            return decisions.set_own(name, counters, own, replace(own, policy=policy))

        await self._changes.make(decide)

    async def set_mode(self, name: GroupName, mode: Mode | None, *, force: bool = False) -> None:
        """Set the mode of a name; None: remove it.

        Raises Invalid (IMPORT with versions there, unless `force`), NotThere(SETTING: nothing to remove)."""

        async def decide(counters: Counters) -> Change[None]:
            group = await self._rows.group(check_level(name))
            own = group.levels[0]
            if (
                mode is Mode.IMPORT
                and own.mode is not Mode.IMPORT
                and not force
                and await self._rows.has_versions(name)
            ):
                raise Invalid("mode IMPORT is for a name without versions: force it, or delete them permanently")
            if mode is None and own.mode is None:
                own = Settings()
            return decisions.set_own(name, counters, own, replace(own, mode=mode))

        await self._changes.make(decide)


def _fits(version: Version, new: NewSchema) -> bool:
    """Return whether a version that holds a schema has the type that is asked for, if one is."""
    return not new.type or version.type in ("", new.type)


def _checked(number: int) -> int:
    """Return the number of a version.  Raises Invalid."""
    if number != LATEST and not 1 <= number <= MAX_REGISTRY_NUMBER:
        raise Invalid(f"a version is a number from 1 to {MAX_REGISTRY_NUMBER:,}")
    return number
