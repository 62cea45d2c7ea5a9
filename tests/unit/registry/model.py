"""The registry as plain dictionaries, and random calls: what a registry must answer, and what it must then show."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Exists, Invalid, SaritError
from sarit.registry.errors import (
    BadReference,
    BadSchema,
    Incompatible,
    NotDeleted,
    NotThere,
    ReadOnly,
    Referenced,
    WrongKind,
)
from sarit.registry.values import Group, GroupName, Mode, NewSchema, Reference, Settings
from sarit.schemas.compatibility import Level, Policy, PolicyName, policy_of
from sarit.schemas.definitions import incompatibilities, parse_definition
from tests.unit.registry.world import avro, using

if TYPE_CHECKING:
    import random

    from sarit.registry.registry import Registry

GROUPS: Final = [GroupName("", "a"), GroupName("", "b"), GroupName("n", "a")]
POLICIES: Final = [
    policy_of(Level.NONE), policy_of(Level.BACKWARD), policy_of(Level.FULL), policy_of(Level.BACKWARD_TRANSITIVE),
    Policy(PolicyName.DENY_ALL),
]  # fmt: skip
STEP: Final = 1_000_000


@dataclass
class ModelVersion:
    schema: int
    deleted: bool = False


@dataclass
class ModelGroup:
    made: bool = False
    gone: bool = False  # softly, as a whole
    versions: dict[int, ModelVersion] = field(default_factory=dict)
    encodings: dict[int, int] = field(default_factory=dict)

    @property
    def live(self) -> list[int]:
        return [number for number, one in sorted(self.versions.items()) if not one.deleted]

    @property
    def hidden(self) -> bool:
        return self.gone or (not self.made and not self.live)


@dataclass
class Call:
    """A call by the name of its method here and its arguments."""

    name: str
    arguments: tuple[Any, ...]


@dataclass
class Model:
    groups: dict[GroupName, ModelGroup] = field(default_factory=dict)
    next_version: dict[GroupName, int] = field(default_factory=dict)
    next_encoding: dict[GroupName, int] = field(default_factory=dict)
    schemas: dict[int, tuple[str, NewSchema]] = field(default_factory=dict)  # id -> namespace of references, schema
    next_id: int = 1
    settings: dict[GroupName, Settings] = field(default_factory=dict)
    restores: int = 0
    given: dict[GroupName, set[int]] = field(default_factory=dict)  # all encodings that there ever were

    # -- calls: each returns what the registry must answer, or raises the kind of its error --------------

    def register(self, name: GroupName, new: NewSchema) -> tuple[int, int, bool]:
        for one in new.references:
            self.live(GroupName(name.namespace, one.group), one.version, BadReference)
        try:
            self.parsed(name.namespace, new)
        except Invalid:
            raise BadSchema("") from None
        group = self.groups.get(name)
        id = self.id_of(name.namespace, new)
        if group is not None and id is not None:
            held = [number for number in group.live if group.versions[number].schema == id]
            if held:
                return id, held[-1], False
        self.writable(name)
        if group is not None:
            self.fits(group, new)
            self.allowed(group, name, new)
        group = self.groups.setdefault(name, ModelGroup())
        if id is None:
            id, self.next_id = self.next_id, self.next_id + 1
            self.schemas[id] = (name.namespace if new.references else "", new)
        number = self.next_version.get(name, 1)
        self.next_version[name] = number + 1
        self.next_encoding.setdefault(name, self.restores * STEP)
        group.versions[number] = ModelVersion(id)
        group.gone = False
        return id, number, True

    def delete(self, name: GroupName, number: int) -> int:
        group = self.shown(name)
        self.writable(name)
        if number not in group.versions or group.versions[number].deleted:
            raise NotThere(None, "")
        if self.referrers(name, [number], live=True):
            raise Referenced("")
        group.versions[number].deleted = True
        return number

    def purge(self, name: GroupName, number: int) -> int:
        group = self.there(name)
        if number not in group.versions:
            raise NotThere(None, "")
        self.writable(name)
        if not group.versions[number].deleted:
            raise NotDeleted(None, "")
        if self.referrers(name, [number], live=False):
            raise Referenced("")
        self.remove(name, [number])
        if not group.versions and not group.made:
            self.end(name)
        return number

    def delete_group(self, name: GroupName) -> list[int]:
        group = self.there(name)
        if group.hidden:
            raise NotThere(None, "")
        self.writable(name)
        if self.referrers(name, list(group.versions), live=True, outside=True):
            raise Referenced("")
        live = group.live
        for one in group.versions.values():
            one.deleted = True
        group.gone = True
        return live

    def purge_group(self, name: GroupName) -> list[int]:
        group = self.there(name)
        self.writable(name)
        if not group.hidden:
            raise NotDeleted(None, "")
        if self.referrers(name, list(group.versions), live=False, outside=True):
            raise Referenced("")
        numbers = sorted(group.versions)
        self.remove(name, numbers)
        self.end(name)
        return numbers

    def create_group(self, name: GroupName) -> None:
        group = self.groups.get(name)
        if group is not None and not group.hidden:
            raise Exists("")
        self.writable(name)
        for one in self.groups.setdefault(name, ModelGroup()).versions.values():
            one.deleted = True
        self.groups[name].made, self.groups[name].gone = True, False
        self.next_version.setdefault(name, 1)
        self.next_encoding.setdefault(name, self.restores * STEP)
        self.keep(name, Settings(None, self.settings.get(name, Settings()).mode))

    def encode(self, name: GroupName, number: int) -> int:
        group = self.shown(name)
        self.live(name, number, NotThere)
        if number in group.encodings:
            return group.encodings[number]
        self.writable(name)
        made = group.encodings[number] = self.next_encoding[name]
        self.next_encoding[name] = made + 1
        self.given.setdefault(name, set()).add(made)
        return made

    def set_policy(self, name: GroupName, policy: Policy | None) -> None:
        self.writable(name)
        own = self.settings.get(name, Settings())
        if policy is None and own.policy is None:
            raise NotThere(None, "")
        self.keep(name, Settings(policy, own.mode))

    def set_mode(self, name: GroupName, mode: Mode | None) -> None:
        own = self.settings.get(name, Settings())
        if mode is None and own.mode is None:
            raise NotThere(None, "")
        self.keep(name, Settings(own.policy, mode))

    def restore(self) -> None:
        self.restores += 1
        self.next_id += STEP
        for numbers in (self.next_version, self.next_encoding):
            for name in numbers:
                numbers[name] += STEP

    # -- parts ------------------------------------------------------------------------------------------

    def there(self, name: GroupName) -> ModelGroup:
        if name not in self.groups:
            raise NotThere(None, "")
        return self.groups[name]

    def shown(self, name: GroupName) -> ModelGroup:
        if self.there(name).hidden:
            raise NotThere(None, "")
        return self.groups[name]

    def live(self, name: GroupName, number: int, error: type[SaritError]) -> ModelVersion:
        group = self.groups.get(name)
        if group is None or group.hidden or number not in group.live:
            raise error(None, "") if error is NotThere else error("")
        return group.versions[number]

    def id_of(self, namespace: str, new: NewSchema) -> int | None:
        wanted = (namespace if new.references else "", new)
        return next((id for id, found in self.schemas.items() if found == wanted), None)

    def in_force(self, name: GroupName) -> Settings:
        own, all_of_them = self.settings.get(name, Settings()), self.settings.get(GroupName("", ""), Settings())
        return Settings(
            own.policy or all_of_them.policy or policy_of(Level.BACKWARD),
            own.mode or all_of_them.mode or Mode.READWRITE,
        )

    def writable(self, name: GroupName) -> None:
        if self.in_force(name).mode is Mode.READONLY:
            raise ReadOnly("")

    def keep(self, name: GroupName, settings: Settings) -> None:
        self.settings.pop(name, None)
        if settings != Settings():
            self.settings[name] = settings

    def fits(self, group: ModelGroup, new: NewSchema) -> None:
        if group.made and group.live:
            _, latest = self.schemas[group.versions[group.live[-1]].schema]
            if json.loads(latest.text)["name"] != json.loads(new.text)["name"]:
                raise WrongKind("", "type")

    def allowed(self, group: ModelGroup, name: GroupName, new: NewSchema) -> None:
        policy = self.in_force(name).policy
        assert policy is not None
        if not group.live or policy.name is PolicyName.ALLOW_ANY:
            return
        if policy.name is PolicyName.DENY_ALL:
            raise ReadOnly("")
        ours = self.parsed(name.namespace, new)
        every = policy.name is PolicyName.BACKWARD_TRANSITIVE
        for number in group.live if every else group.live[-1:]:
            namespace, old = self.schemas[group.versions[number].schema]
            theirs = self.parsed(namespace, old)
            if incompatibilities(ours, theirs) or (policy.name is PolicyName.FULL and incompatibilities(theirs, ours)):
                raise Incompatible("", ())

    def parsed(self, namespace: str, new: NewSchema) -> Any:
        texts = {}
        for one in new.references:
            version = self.groups[GroupName(namespace, one.group)].versions[one.version]
            texts[one.name] = self.schemas[version.schema][1].text
        return parse_definition(new.kind, new.text, texts)

    def referrers(
        self, name: GroupName, numbers: list[int], *, live: bool, outside: bool = False
    ) -> set[int]:  # fmt: skip
        found = set()
        for other, group in self.groups.items():
            for version in group.versions.values():
                namespace, schema = self.schemas[version.schema]
                refers = namespace == name.namespace and any(
                    one.group == name.group and one.version in numbers for one in schema.references
                )
                if refers and not (live and version.deleted) and not (outside and other == name):
                    found.add(version.schema)
        return found

    def remove(self, name: GroupName, numbers: list[int]) -> None:
        group = self.groups[name]
        for number in numbers:
            del group.versions[number]
            group.encodings.pop(number, None)
        held = {one.schema for each in self.groups.values() for one in each.versions.values()}
        self.schemas = {id: schema for id, schema in self.schemas.items() if id in held}

    def end(self, name: GroupName) -> None:
        del self.groups[name]
        self.settings.pop(name, None)

    def shows(self) -> dict[str, Any]:
        """Return what a registry must show."""
        groups = {
            name: (
                group.hidden,
                {number: (one.schema, one.deleted) for number, one in group.versions.items()},
                group.encodings,
            )
            for name, group in self.groups.items()
        }
        holders = {
            id: sorted(
                (name, number, one.deleted)
                for name, group in self.groups.items()
                for number, one in group.versions.items()
                if one.schema == id
            )
            for id in self.schemas
        }
        return {
            "groups": groups,
            "holders": holders,
            "settings": {name: self.in_force(name) for name in GROUPS},
        }


async def shown(registry: Registry, model: Model) -> dict[str, Any]:
    """Return what a registry shows, in the form of `Model.shows`."""
    groups = {}
    for name in await registry.groups(None, deleted=True):
        group = await registry.group(name)
        versions = await registry.versions(name, deleted=True)
        encodings = {}
        for at in sorted(model.given.get(name, ())):
            try:
                encoding = await registry.encodings.get(name, at)
            except NotThere:
                continue
            encodings[encoding.version] = at
        groups[name] = (group.deleted, {one.number: (one.schema, one.deleted) for one in versions}, encodings)
    holders = {}
    ids = {one for _, versions, _ in groups.values() for one, _ in versions.values()}
    for id in sorted(ids | set(model.schemas)):
        try:
            found = await registry.holders(id, deleted=True)
        except NotThere:
            continue
        holders[id] = [(one.name, one.version, one.deleted) for one in found]
        schema = await registry.schema(id)
        if id in model.schemas:
            wanted = model.schemas[id][1]
            assert schema.text == parse_definition(wanted.kind, wanted.text, await registry.texts(schema)).text
    return {
        "groups": groups,
        "holders": holders,
        "settings": {name: await registry.settings(name) for name in GROUPS},
    }


def drawn(chance: random.Random, model: Model) -> Call:
    """Draw a call that is about what is there as often as not."""
    name = chance.choice(GROUPS)
    known = list(model.groups[name].versions) if name in model.groups else []
    number = chance.choice([*known, *known, model.next_version.get(name, 1) - 1, 1])
    number = max(number, 1)
    kind = chance.choices(
        ["register", "delete", "purge", "delete_group", "purge_group", "create_group", "encode", "set_policy",
         "set_mode"],
        [40, 24, 10, 4, 5, 3, 8, 8, 2],
    )[0]  # fmt: skip
    if kind == "register":
        return Call(kind, (name, _schema(chance, model, name)))
    if kind in ("delete", "purge", "encode"):
        return Call(kind, (name, number))
    if kind == "set_policy":
        return Call(kind, (chance.choice([name, GroupName("", "")]), chance.choice([*POLICIES, None])))
    if kind == "set_mode":
        return Call(kind, (name, chance.choice([Mode.READONLY, None, None, None])))
    return Call(kind, (name,))


def _schema(chance: random.Random, model: Model, name: GroupName) -> NewSchema:
    if chance.random() < 0.25:
        items = [
            Reference("Item", group.group, number)
            for group, found in model.groups.items()
            for number, one in found.versions.items()
            if group.namespace == name.namespace and '"Item"' in model.schemas[one.schema][1].text
        ]
        wrong = Reference(chance.choice(["Item", "Order"]), chance.choice(GROUPS).group, chance.randint(1, 3))
        return using("Order", chance.choice([*items, wrong]))
    if chance.random() < 0.3:
        return avro(chance.choice("xy"), name="Item")
    fields = chance.sample("abc", chance.randint(1, 2))
    return avro(*sorted(fields), **({chance.choice("de"): chance.randint(0, 1)} if chance.random() < 0.7 else {}))


async def carry_out(registry: Registry, call: Call) -> Any:
    """Make a call of the real registry; return what `Model` returns for it."""
    name, *rest = call.arguments
    match call.name:
        case "register":
            done = await registry.register(name, rest[0])
            return done.id, done.version, done.new
        case "delete":
            return await registry.delete_version(name, rest[0])
        case "purge":
            return await registry.delete_version(name, rest[0], permanent=True)
        case "delete_group":
            return await registry.delete_group(name)
        case "purge_group":
            return await registry.delete_group(name, permanent=True)
        case "create_group":
            return await registry.create_group(Group(name))
        case "encode":
            return await registry.encodings.encode(name, rest[0], "")
        case "set_policy":
            return await registry.set_policy(name, rest[0])
        case "set_mode":
            return await registry.set_mode(name, rest[0])
    raise AssertionError(call.name)


def expected(model: Model, call: Call) -> tuple[Model, Any]:
    """Return the model after a call, and what it answers: a value or a kind of error."""
    after = copy.deepcopy(model)
    try:
        return after, getattr(after, call.name)(*call.arguments)
    except SaritError as error:
        return copy.deepcopy(model), type(error)
