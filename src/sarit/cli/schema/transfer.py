"""All schemas of a registry as JSON lines, and back with their ids.

A line is a version of a subject, or the compatibility of a subject or of all:

    {"compatibility": "FULL", "subject": "shop.orders"}
    {"subject": "shop.orders", "version": 1, "id": 3, "type": "AVRO", "schema": "...", "references": []}

A version comes after those that it refers to.  Events have the ids of their schemas, so an import keeps the ids: the
registry takes them while the subject is in its mode IMPORT.  An import that is repeated skips what is there.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from sarit.cli.limits import MAX_LINE_BYTES
from sarit.cli.pipes import TOO_LONG
from sarit.core.bounded_json import parse_json
from sarit.core.errors import Conflict, Invalid, NotFound, SaritError
from sarit.schemas.limits import MAX_SCHEMA_REFERENCES
from sarit.serializers.schema import Schema, SchemaReference, SchemaVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sarit.serializers.registry_client import RegistryClient

_IMPORT: Final = "IMPORT"
_MAX_NUMBER: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a subject with its schema; `deleted`: softly."""

    held: SchemaVersion
    deleted: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Subject and number."""
        return self.held.subject, self.held.version

    def used(self) -> Iterator[tuple[str, int]]:
        """Yield the keys of the versions that it refers to: subjects without a context are in its own."""
        context = context_of(self.held.subject)
        for one in self.held.schema.references:
            yield one.subject if one.subject.startswith(":.") else context + one.subject, one.version


@dataclass(frozen=True, slots=True)
class Setting:
    """The compatibility of a subject; `subject` None: of all without their own."""

    subject: str | None
    level: str


def context_of(subject: str) -> str:
    """Return the context with which the name of a subject begins, as ":.team:"; empty: none."""
    if not subject.startswith(":."):
        return ""
    end = subject.find(":", 1)
    return subject[: end + 1]


# -- from a registry ---------------------------------------------------------------------------


def settings_of(client: RegistryClient, subjects: Iterable[str]) -> Iterator[Setting]:
    """Yield the levels of compatibility of these subjects that have one, and that of all before them."""
    for subject in (None, *subjects):
        if (level := client.own_compatibility(subject)) is not None:
            yield Setting(subject, level)


def versions_of(client: RegistryClient, subject: str, *, deleted: bool) -> Iterator[Version]:
    """Yield the versions of a subject; `deleted`: also those that were deleted softly."""
    numbers = client.versions(subject, deleted=deleted)
    left = set(left_of(client, subject)) if deleted else set(numbers)
    for number in numbers:
        yield Version(client.version(subject, number, deleted=deleted), deleted=number not in left)


def left_of(client: RegistryClient, subject: str) -> list[int]:
    """Return the numbers of the versions of a subject that are not deleted; none if it is itself."""
    try:
        return client.versions(subject)
    except NotFound:
        return []


def ordered(versions: Iterable[Version]) -> list[Version]:
    """Return versions by id, each after those that it refers to."""
    found = {one.key: one for one in sorted(versions, key=lambda one: (one.held.id, *one.key))}
    done: dict[tuple[str, int], Version] = {}
    for one in found.values():
        # A path from a version down to what it refers to; references form no circle in a registry.
        path = [one]
        while path:
            missing = [key for key in path[-1].used() if key in found and key not in done]
            if missing and len(path) <= MAX_SCHEMA_REFERENCES:
                path.append(found[missing[0]])
            else:
                last = path.pop()
                done[last.key] = last
    return list(done.values())


# -- lines -------------------------------------------------------------------------------------


def to_line(item: Version | Setting) -> bytes:
    """Return an item as a line, with its end."""
    if isinstance(item, Setting):
        row: dict[str, Any] = {"compatibility": item.level}
        if item.subject is not None:
            row["subject"] = item.subject
    else:
        held = item.held
        row = {"subject": held.subject, "version": held.version, "id": held.id, "type": held.schema.format,
               "schema": held.schema.text}  # fmt: skip
        if held.schema.references:
            row["references"] = [
                {"name": one.name, "subject": one.subject, "version": one.version} for one in held.schema.references
            ]
        if item.deleted:
            row["deleted"] = True
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def read_file(file: str) -> list[Version | Setting]:
    """Return the items of a file; "-": standard input.  Raises Invalid, which names file and line."""
    try:
        if file == "-":
            return list(read_lines(sys.stdin.buffer))
        with Path(file).open("rb") as source:
            return list(read_lines(source))
    except Invalid as error:
        raise Invalid(f"{file}: {error}") from None


def read_lines(source: BinaryIO) -> Iterator[Version | Setting]:
    """Yield the items of a file.  Raises Invalid, which names the line."""
    number = 0
    while line := source.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise Invalid(f"line {number}: {TOO_LONG}")
        if not line.strip():
            continue
        try:
            yield _from_json(parse_json(line))
        except ValueError as error:  # Invalid is one
            why = str(error) if isinstance(error, Invalid) else f"it is no JSON: {error}"
            raise Invalid(f"line {number}: {why}; is it a file of `sarit schema export`?") from None


def _from_json(row: Any) -> Version | Setting:
    if not isinstance(row, dict):
        raise Invalid("it is no JSON object")
    if "compatibility" in row:
        subject = _field(row, "subject", str) if "subject" in row else None
        return Setting(subject, _field(row, "compatibility", str))
    references = row.get("references", [])
    if not isinstance(references, list) or len(references) > MAX_SCHEMA_REFERENCES:
        raise Invalid(f'its "references" are no list of at most {MAX_SCHEMA_REFERENCES}')
    used = tuple(
        SchemaReference(_field(one, "name", str), _field(one, "subject", str), _number(one, "version"))
        for one in references
    )
    made = Schema(_field(row, "schema", str), _field(row, "type", str), used)
    held = SchemaVersion(_field(row, "subject", str), _number(row, "version"), _number(row, "id"), made)
    return Version(held, deleted=row.get("deleted") is True)


def _field(row: Any, name: str, kind: type) -> Any:
    found = row.get(name) if isinstance(row, dict) else None
    if not isinstance(found, kind) or isinstance(found, bool):
        raise Invalid(f'it has no "{name}" that is {"a text" if kind is str else "a whole number"}')
    return found


def _number(row: Any, name: str) -> int:
    found: int = _field(row, name, int)
    if not 0 < found <= _MAX_NUMBER:
        raise Invalid(f'its "{name}" is {found}, and numbers go from 1 to {_MAX_NUMBER:,}')
    return found


# -- into a registry ---------------------------------------------------------------------------


@dataclass(slots=True)
class Imported:
    """The outcome of an import: how many versions are new, and how many were there.  `ids`: old id -> id here."""

    new: int
    there: int
    ids: dict[int, int]


NEW_IDS: Final = (
    "import into another registry, or give the schemas new ids with --new-ids (events that carry the old ids cannot be "
    "read by them)"
)


class Import:
    """One import.  `keep_ids`: register with the ids and versions of the file; otherwise with new ones.

    `advice`: what to do if the registry cannot keep them, for errors."""

    def __init__(self, client: RegistryClient, *, keep_ids: bool = True, advice: str = NEW_IDS) -> None:
        self._client = client
        self._advice = advice
        self._keep_ids = keep_ids
        self._modes: dict[str, str | None] = {}  # subjects that are in mode IMPORT -> the mode that each had
        self._numbers: dict[tuple[str, int], int] = {}  # without `keep_ids`: versions of the file -> versions here

    def __repr__(self) -> str:
        return f"<Import, {len(self._modes)} subjects in mode {_IMPORT}>"

    def run(self, items: Iterable[Version | Setting]) -> Imported:
        """Register what is not there yet.  A version that is another one in this registry is refused before any is
        registered.

        Raises Conflict for that; what the registry refuses; then what came before it is there, and the same import
        may be repeated."""
        found = list(items)
        versions = [one for one in found if isinstance(one, Version)]
        there = self._there(versions) if self._keep_ids else set()
        for one in found:
            if isinstance(one, Setting):
                self._client.set_compatibility(one.level, one.subject)
        done = Imported(0, len(there), {})
        try:
            for version in versions:
                if version.key not in there:
                    done.ids[version.held.id] = self._register(version)
                    done.new += 1
        finally:
            self._end()
        for version in versions:
            if version.deleted and version.key not in there:
                self._client.delete(version.held.subject, self._numbers.get(version.key, version.held.version))
        return done

    def _there(self, versions: list[Version]) -> set[tuple[str, int]]:
        """Return the keys of the versions that the registry has.  Raises Conflict: one of them is another one."""
        wanted = {one.key: one.held for one in versions}
        found: set[tuple[str, int]] = set()
        for subject in dict.fromkeys(subject for subject, _ in wanted):
            try:
                numbers = self._client.versions(subject, deleted=True)
            except NotFound:
                continue
            for number in set(numbers) & {version for held, version in wanted if held == subject}:
                here, given = self._client.version(subject, number, deleted=True), wanted[subject, number]
                if not self._same(here, given):
                    raise Conflict(
                        f"version {number} of {subject}, id {here.id}, is in the registry, and is another one, id "
                        f"{given.id}, in the file: {self._advice}"
                    )
                found.add((subject, number))
        return found

    def _same(self, here: SchemaVersion, given: SchemaVersion) -> bool:
        if here.id != given.id or here.schema == given.schema:
            return here.id == given.id
        try:
            # Registries print schemas each in its own way: this one says whether it is the same.
            found = self._client.lookup(given.subject, given.schema, normalize=True, deleted=True)
        except (NotFound, Invalid):
            return False
        return found.id == here.id

    def _register(self, version: Version) -> int:
        held = version.held
        if not self._keep_ids:
            schema = replace(held.schema, references=tuple(map(self._renumbered(held.subject), held.schema.references)))
            made = self._client.register(held.subject, schema)
            self._numbers[version.key] = self._client.lookup(held.subject, schema).version
            return made
        if held.subject not in self._modes:
            self._begin(held.subject)
        try:
            return self._client.import_version(held)
        except (Conflict, Invalid) as error:
            raise Conflict(
                f"version {held.version} of {held.subject}, id {held.id}: {error}; an id of the registry cannot stand "
                f"for two schemas: {self._advice}"
            ) from None

    def _renumbered(self, subject: str) -> Callable[[SchemaReference], SchemaReference]:
        context = context_of(subject)

        def renumber(one: SchemaReference) -> SchemaReference:
            key = (one.subject if one.subject.startswith(":.") else context + one.subject, one.version)
            return replace(one, version=self._numbers.get(key, one.version))

        return renumber

    def _begin(self, subject: str) -> None:
        before = self._client.own_mode(subject)
        try:
            # Forced, since the subject may have versions: none of the file has a number of theirs with another id.
            self._client.set_mode(_IMPORT, subject, force=True)
        except (Invalid, Conflict) as error:
            raise Invalid(f"the registry takes no ids of another one for {subject}: {error}; {self._advice}") from None
        self._modes[subject] = None if before == _IMPORT else before

    def _end(self) -> None:
        """Put the subjects back into the modes that they had."""
        problem: SaritError | None = None
        for subject, before in self._modes.items():
            try:
                self._client.set_mode(before, subject)
            except SaritError as error:
                problem = error
        if problem is not None:
            raise problem
