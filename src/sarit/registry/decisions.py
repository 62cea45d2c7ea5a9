"""Changes of the registry as functions of its rows: which rows to write, and what to answer.  Pure.

Every change expects the version of the counters' row and writes that row again, so that the rows that a decision is
made on are those of the moment of the write: had any other change come in between, the write would fail as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from sarit.core.errors import Exists, Invalid
from sarit.registry import keys, records
from sarit.registry.errors import Full, Missing, NotDeleted, NotThere, ReadOnly, Referenced, WrongKind
from sarit.registry.limits import (
    MAX_CODECS_OF_GROUP,
    MAX_ENCODINGS_OF_GROUP,
    MAX_IMPORTED_NUMBER,
    MAX_REGISTRY_NUMBER,
    MAX_SCHEMA_GROUPS,
    MAX_VERSIONS_OF_GROUP,
    NUMBERS_LEFT_OUT_BY_RESTORE,
)
from sarit.registry.policies import check_policy, in_force
from sarit.registry.records import NO_NUMBERS, Counters, Head, Remains, TypeNumbers
from sarit.registry.values import Encoding, GroupName, Mode, Registered, Schema, Settings, Version, takes
from sarit.schemas.compatibility import PolicyName
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")


@dataclass(slots=True)
class Change(Generic[T]):
    """The answer of a call, and what to write.  `rows`: new values by key, None removes a row that is there.

    `removed`: ids of schemas whose rows are removed."""

    answer: T
    counters: Counters
    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    removed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupRows:
    """The rows of a group that most decisions need.

    `levels`: the settings at the group, its namespace and the installation."""

    name: GroupName
    head: Head | None
    remains: Remains | None
    levels: tuple[Settings, ...] = ()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return in_force(list(self.levels))

    def require(self) -> Head:
        """Return the head of a group that is there.  Raises NotThere(GROUP)."""
        if self.head is None or self.head.hidden:
            raise NotThere(Missing.GROUP, f"group {shown(str(self.name))} does not exist")
        return self.head

    def require_any(self) -> Head:
        """Return the head of a group that is there, or deleted softly.  Raises NotThere(GROUP)."""
        if self.head is None:
            raise NotThere(Missing.GROUP, f"group {shown(str(self.name))} does not exist")
        return self.head

    def require_writable(self) -> None:
        """Raises ReadOnly."""
        mode = self.settings.mode
        if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE):
            raise ReadOnly(f"group {shown(str(self.name))} is in mode {mode.value}: it takes no changes")


@dataclass(frozen=True, slots=True)
class Registration:
    """A schema to be added to a group.  `schema`: as it would be stored, its id not given yet.

    `type`: the full name of what it defines, as the version says it.  `typed`: the user named it, so that a version of
    another type is another one.  `create`, `id`, `version`, `properties`: as in `Registry.register`."""

    schema: Schema
    type: str
    typed: bool
    properties: Mapping[str, str]
    create: bool = True
    id: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class RegisterRows:
    """The rows that a registration is decided on.

    `id`: the schema's, if it is stored.  `held`: the group's versions that hold it, or the latest one alone if that may
    answer.  `latest`: the latest version, if the schema is stored or `create_group` made the group.
    `types`: the numbers of its type.  `imported`: the schema that is stored under the id that the registration brings.
    `gone`: a schema was deleted permanently under that id; its fingerprint."""

    group: GroupRows
    counters: Counters
    id: int | None = None
    held: Sequence[Version] = ()
    latest: Version | None = None
    types: TypeNumbers = NO_NUMBERS
    imported: bool = False
    gone: bytes | None = None


def holding(rows: RegisterRows, wanted: Registration) -> Version | None:
    """Return the latest version that holds the schema and is not deleted, if a registration may be answered by it.

    A version that was registered without a type, as Confluent's clients do, is one of any type."""
    live = [
        one
        for one in rows.held
        if not one.deleted
        and wanted.version in (None, one.number)
        and (not wanted.typed or one.type in ("", wanted.type))
    ]
    if rows.id is not None and wanted.id not in (None, rows.id):
        return None
    return max(live, key=lambda one: one.number, default=None)


def check_registration(rows: RegisterRows, wanted: Registration) -> None:
    """Check what forbids a registration, compatibility aside.  Raises NotThere(GROUP), ReadOnly, WrongKind, Full,
    Invalid."""
    group, head = rows.group, rows.group.head
    if not wanted.create:
        group.require()
    group.require_writable()
    importing, what = group.settings.mode is Mode.IMPORT, shown(str(group.name))
    if importing != (wanted.id is not None):
        why = (
            "only schemas with ids are added to it" if importing else "schemas with ids are added in mode IMPORT alone"
        )
        raise ReadOnly(f"group {what}: {why}")
    if wanted.version is not None and not importing:
        raise ReadOnly(f"group {what}: versions are given in mode IMPORT alone")
    if head is None:
        if rows.counters.groups >= MAX_SCHEMA_GROUPS:
            raise Full(f"the registry has {MAX_SCHEMA_GROUPS:,} groups, which is the limit: delete some permanently")
        return
    refusal = kind_refusal(group.name, head, rows.latest, wanted.schema, wanted.type)
    if refusal is not None:
        raise refusal
    policy = group.settings.policy
    if policy is not None and policy.name is PolicyName.DENY_ALL and head.live:
        raise ReadOnly(f"group {what}: its policy DenyAll allows no schema after the first")
    if head.versions >= MAX_VERSIONS_OF_GROUP:
        raise Full(
            f"group {what} has {MAX_VERSIONS_OF_GROUP:,} versions, which is the limit: delete some of them permanently"
        )


def kind_refusal(name: GroupName, head: Head, latest: Version | None, schema: Schema, type: str) -> WrongKind | None:
    """Return the refusal of a schema whose kind or type a group does not take; None if it does."""
    what = shown(str(name))
    if not takes(head.kind, head.format_name, schema):
        assert head.kind is not None
        return WrongKind(f"group {what} holds schemas of the kind {head.kind.value}, not {schema.kind.value}", "kind")
    if head.created and not head.many_types and latest is not None and latest.type != type:
        text = f"group {what} holds schemas of the type {shown(latest.type)} alone, not {shown(type)}"
        return WrongKind(text, "type")
    return None


def register(rows: RegisterRows, wanted: Registration, now_ms: int) -> Change[Registered]:
    """Add a schema to a group.  Compatibility is checked already.  Raises as `check_registration` does."""
    found = holding(rows, wanted)
    if found is not None:
        return Change(Registered(found.schema, found.number, new=False), rows.counters)
    check_registration(rows, wanted)
    group, name = rows.group, rows.group.name
    counters, id = _schema_id(rows, wanted)
    head = group.head or Head(_first_numbers(group.remains, counters), created_ms=now_ms)
    numbers = head.numbers.raised(counters.restores)
    number = _version_number(name, numbers, wanted)
    schema = replace(wanted.schema, id=id)
    types = rows.types.raised(counters.restores)
    version = Version(
        number, id, schema.kind, wanted.type, types.next, properties=dict(wanted.properties), created_ms=now_ms
    )
    head = replace(
        head, numbers=replace(numbers, next_version=number + 1), latest=number, versions=head.versions + 1,
        live=head.live + 1, deleted=False,
    )  # fmt: skip
    if group.head is None:
        counters = replace(counters, groups=counters.groups + 1)
    change = Change(Registered(id, number, new=True), counters)
    if rows.id is None:
        change.counters = replace(counters, schemas=counters.schemas + 1)
        change.rows |= _schema_rows(schema)
        if rows.gone is not None:
            change.rows[keys.deleted_schema_key(id)] = None
    if group.head is None and group.remains is not None:
        change.rows[keys.remains_key(name)] = None
    change.rows |= {
        keys.version_key(name, number): records.encode_version(version),
        keys.holder_key(id, name, number): records.MARK,
        keys.head_key(name): records.encode_head(head),
        keys.type_key(name, wanted.type): records.encode_type_numbers(replace(types, next=types.next + 1)),
    }
    return change


def _schema_id(rows: RegisterRows, wanted: Registration) -> tuple[Counters, int]:
    """Return the id of the schema, and the counters after it was given.  Raises Invalid, Full."""
    counters = rows.counters
    if rows.id is not None:
        if wanted.id not in (None, rows.id):
            raise Invalid(f"the schema has the id {rows.id} here, and cannot have the id {wanted.id}, too")
        return counters, rows.id
    if wanted.id is None:
        if counters.next_schema > MAX_REGISTRY_NUMBER:
            raise Full(f"all schema ids up to {MAX_REGISTRY_NUMBER:,} were given")
        return replace(counters, next_schema=counters.next_schema + 1), counters.next_schema
    if not 1 <= wanted.id <= MAX_IMPORTED_NUMBER:
        raise Invalid(f"a schema id that is imported is in [1, {MAX_IMPORTED_NUMBER:,}]")
    if rows.imported or rows.gone not in (None, records.fingerprint(wanted.schema)):
        raise Invalid(f"the id {wanted.id} was given to another schema here")
    return replace(counters, next_schema=max(counters.next_schema, wanted.id + 1)), wanted.id


def _version_number(name: GroupName, numbers: Remains, wanted: Registration) -> int:
    if wanted.version is None:
        if numbers.next_version > MAX_REGISTRY_NUMBER:
            raise Full(f"group {shown(str(name))}: all versions up to {MAX_REGISTRY_NUMBER:,} were given")
        return numbers.next_version
    if not 1 <= wanted.version <= MAX_IMPORTED_NUMBER:
        raise Invalid(f"a version that is imported is in [1, {MAX_IMPORTED_NUMBER:,}]")
    if wanted.version < numbers.next_version:
        raise Invalid(
            f"group {shown(str(name))}: version {wanted.version} was given, or left out, before: the next one is "
            f"{numbers.next_version}, and versions are imported in order"
        )
    return wanted.version


def _schema_rows(schema: Schema) -> dict[bytes, bytes | None]:
    rows: dict[bytes, bytes | None] = {
        keys.schema_key(schema.id, part): value for part, value in enumerate(records.encode_schema(schema))
    }
    rows[keys.fingerprint_key(records.fingerprint(schema))] = records.encode_id(schema.id)
    for reference in schema.references:
        rows[keys.referrer_key(schema.namespace, reference, schema.id)] = records.MARK
    return rows


def _first_numbers(remains: Remains | None, counters: Counters) -> Remains:
    """Return the numbers of a new group.  Encodings are in events that a restore may have left without their group."""
    return remains or Remains(1, NUMBERS_LEFT_OUT_BY_RESTORE * counters.restores, counters.restores)


# -- deletion ---------------------------------------------------------------------------------------


def delete_version(
    group: GroupRows, counters: Counters, versions: Sequence[Version], number: int, referred: bool
) -> Change[int]:  # fmt: skip
    """Delete a version softly.

    `versions`: all of the group if it is the latest one, else that one.  `referred`: a schema in use refers to it."""
    head = group.require()
    group.require_writable()
    version = next((one for one in versions if one.number == number), None)
    what = f"version {number} of group {shown(str(group.name))}"
    if version is None:
        raise NotThere(Missing.VERSION, f"{what} does not exist")
    if version.deleted:
        raise NotThere(Missing.DELETED_VERSION, f"{what} is deleted already: delete it permanently, or not at all")
    if referred:
        raise Referenced(f"{what} is referred to by other schemas: delete their versions first")
    head = replace(head, live=head.live - 1)
    if number == head.latest:
        head = replace(
            head, latest=max((one.number for one in versions if not one.deleted and one is not version), default=0)
        )
    row = records.encode_version(replace(version, deleted=True))
    return Change(
        number,
        counters,
        {keys.version_key(group.name, number): row, keys.head_key(group.name): records.encode_head(head)},
    )


def delete_group(
    group: GroupRows, counters: Counters, versions: Sequence[Version], referred: Sequence[int]
) -> Change[list[int]]:  # fmt: skip
    """Delete a group softly.  `referred`: its versions that schemas in use refer to."""
    head = group.require_any()
    what = f"group {shown(str(group.name))}"
    if head.hidden:
        raise NotThere(Missing.DELETED_GROUP, f"{what} is deleted already: delete it permanently, or not at all")
    group.require_writable()
    if referred:
        raise Referenced(
            f"version {referred[0]} of {what} is referred to by other schemas: delete their versions first"
        )
    below = head.numbers.next_version
    head = replace(head, live=0, latest=0, deleted_below=below, deleted=True)
    live = [one.number for one in versions if not one.deleted]
    return Change(live, counters, {keys.head_key(group.name): records.encode_head(head)})


@dataclass(frozen=True, slots=True)
class Purged:
    """A version to be deleted permanently, with the rows that it leaves behind.

    `schema`: its schema, if no other version holds it.  `encodings`: keys of the rows of its encodings."""

    version: Version
    schema: Schema | None = None
    encodings: Sequence[bytes] = ()


def check_purge(group: GroupRows, version: Version | None, number: int, referred: bool) -> None:
    """Check what forbids to delete a version permanently.  `referred`: any schema refers to it.

    Raises NotThere(GROUP, VERSION), NotDeleted, Referenced, ReadOnly."""
    group.require_any()
    what = f"version {number} of group {shown(str(group.name))}"
    if version is None:
        raise NotThere(Missing.VERSION, f"{what} does not exist")
    group.require_writable()
    if not version.deleted:
        raise NotDeleted(Missing.VERSION, f"{what} is not deleted yet: delete it softly first, then permanently")
    if referred:
        raise Referenced(f"{what} is referred to by other schemas: delete those permanently first")


def check_group_purge(group: GroupRows, referred: bool) -> None:
    """Check what forbids to delete a group permanently.  Raises NotThere(GROUP), NotDeleted, Referenced, ReadOnly."""
    head, what = group.require_any(), f"group {shown(str(group.name))}"
    group.require_writable()
    if not head.hidden:
        raise NotDeleted(Missing.GROUP, f"{what} is not deleted yet: delete it softly first, then permanently")
    if referred:
        raise Referenced(f"{what} has versions that other schemas refer to: delete those permanently first")


def purge(
    group: GroupRows, counters: Counters, purged: Sequence[Purged], own_settings: bool, *, end: bool
) -> Change[None]:  # fmt: skip
    """Delete versions permanently, and the group if `end`, or if it is one of `register` and these are its last.

    `own_settings`: the group has a row of settings."""
    head, name = group.require_any(), group.name
    change: Change[None] = Change(None, counters)
    for one in purged:
        number, id = one.version.number, one.version.schema
        change.rows[keys.version_key(name, number)] = None
        change.rows[keys.holder_key(id, name, number)] = None
        change.rows |= dict.fromkeys(one.encodings)
        if one.schema is not None:
            fingerprint = records.fingerprint(one.schema)
            parts = len(records.encode_schema(one.schema))
            change.rows |= dict.fromkeys(keys.schema_key(id, part) for part in range(parts))
            change.rows[keys.fingerprint_key(fingerprint)] = None
            change.rows[keys.deleted_schema_key(id)] = records.MARK + fingerprint
            for reference in one.schema.references:
                change.rows[keys.referrer_key(one.schema.namespace, reference, id)] = None
            change.removed += (id,)
    change.counters = counters = replace(counters, schemas=counters.schemas - len(change.removed))
    numbers = head.numbers.raised(counters.restores)
    left = head.versions - len(purged)
    if left == 0 and (end or not head.created):
        change.counters = replace(counters, groups=counters.groups - 1)
        change.rows[keys.head_key(name)] = None
        change.rows[keys.remains_key(name)] = records.encode_remains(numbers)
        if own_settings:
            change.rows[keys.settings_keys(name)[0]] = None
        return change
    encodings = head.encodings - sum(len(one.encodings) // 2 for one in purged)
    head = replace(head, numbers=numbers, versions=left, encodings=encodings)
    change.rows[keys.head_key(name)] = records.encode_head(head)
    return change


# -- groups and settings ----------------------------------------------------------------------------


def create_group(group: GroupRows, counters: Counters, wanted: Head, settings: Settings) -> Change[None]:
    """Create a group, or bring one back that was deleted softly.  `wanted`: a head with the user's choices.

    A mode that was set at the name stays; a policy is replaced.
    Raises Exists, Full, ReadOnly, Invalid."""
    name, head = group.name, group.head
    if head is not None and not head.hidden:
        raise Exists(f"group {shown(str(name))} exists")
    group.require_writable()
    if settings.policy is not None:
        check_policy(settings.policy, wanted.kind)
    change: Change[None] = Change(None, counters)
    if head is None:
        if counters.groups >= MAX_SCHEMA_GROUPS:
            raise Full(f"the registry has {MAX_SCHEMA_GROUPS:,} groups, which is the limit: delete some permanently")
        change.counters = replace(counters, groups=counters.groups + 1)
        made = replace(wanted, numbers=_first_numbers(group.remains, counters).raised(counters.restores))
        if group.remains is not None:
            change.rows[keys.remains_key(name)] = None
    else:
        made = replace(
            wanted, numbers=head.numbers, versions=head.versions, encodings=head.encodings,
            deleted_below=head.numbers.next_version,
        )  # fmt: skip
    change.rows[keys.head_key(name)] = records.encode_head(made)
    own = group.levels[0]
    settings = replace(settings, mode=settings.mode or own.mode)
    if settings != own:
        row = None if settings == Settings() else records.encode_settings(settings)
        change.rows[keys.settings_keys(name)[0]] = row
    return change


def set_own(name: GroupName, counters: Counters, before: Settings, after: Settings) -> Change[None]:
    """Replace what is set at a name.  Raises NotThere(SETTING): nothing is there to remove."""
    change: Change[None] = Change(None, counters)
    if before == after == Settings():
        where = shown(str(name)) or "the installation"
        raise NotThere(Missing.SETTING, f"{where} has no such setting of its own")
    if before != after:
        row = None if after == Settings() else records.encode_settings(after)
        change.rows[keys.settings_keys(name)[0]] = row
    return change


# -- encodings --------------------------------------------------------------------------------------


def encode(
    group: GroupRows, counters: Counters, version: Version | None, number: int, codec: str, known: int | None
) -> Change[int]:  # fmt: skip
    """Number a version with a codec.  `version`: the row of version `number`.  `known`: the number it has already."""
    head, name = group.require(), group.name
    what = f"group {shown(str(name))}"
    if version is None or version.deleted:
        raise NotThere(Missing.VERSION, f"version {number} of {what} does not exist")
    if codec and codec not in head.codecs:
        raise NotThere(Missing.CODEC, f"{what} has no codec {shown(codec)}: add it to the group first")
    if known is not None:
        return Change(known, counters)
    group.require_writable()
    numbers = head.numbers.raised(counters.restores)
    made = numbers.next_encoding
    if head.encodings >= MAX_ENCODINGS_OF_GROUP or made > MAX_REGISTRY_NUMBER:
        raise Full(f"{what} has {MAX_ENCODINGS_OF_GROUP:,} encodings, which is the limit: delete versions permanently")
    head = replace(head, numbers=replace(numbers, next_encoding=made + 1), encodings=head.encodings + 1)
    rows: dict[bytes, bytes | None] = {
        keys.head_key(name): records.encode_head(head),
        keys.encoding_key(name, made): records.encode_encoding(Encoding(made, number, codec)),
        keys.encoding_number_key(name, number, codec): records.encode_id(made),
    }
    return Change(made, counters, rows)


def add_codec(group: GroupRows, counters: Counters, codec: str, properties: Mapping[str, str]) -> Change[None]:
    """Add a codec to a group.  Raises NotThere(GROUP), Full, ReadOnly."""
    head = group.require()
    if codec in head.codecs and head.codecs[codec] == properties:
        return Change(None, counters)
    group.require_writable()
    if codec not in head.codecs and len(head.codecs) >= MAX_CODECS_OF_GROUP:
        raise Full(f"group {shown(str(group.name))} has {MAX_CODECS_OF_GROUP} codecs, which is the limit")
    head = replace(head, codecs={**head.codecs, codec: dict(properties)})
    return Change(None, counters, {keys.head_key(group.name): records.encode_head(head)})
