"""Rows of the registry's table, as values and as bytes.  Pure.  docs/formats/registry.md shows the bytes.

Every row begins with the byte of its format, and goes on with a JSON object; the first part of a schema's text follows
a line feed.  Rows without content have the byte alone.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Corrupt, Invalid
from sarit.registry import keys
from sarit.registry.limits import NUMBERS_LEFT_OUT_BY_RESTORE, SCHEMA_PART_BYTES
from sarit.registry.policies import policy_from_json, policy_to_json
from sarit.registry.values import Encoding, Mode, Reference, Schema, Settings, Version
from sarit.schemas.definitions import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar

    T = TypeVar("T")

FORMAT: Final = 1
MARK: Final = bytes((FORMAT,))  # a row without content


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of the installation.

    `next_schema`: the next schema id.  `schemas`, `groups`: how many there are.  `installation`: the id of the node or
    cluster that gave the numbers; a restored one has another id.  `restores`: how often the counters rose for that."""

    next_schema: int = 1
    schemas: int = 0
    groups: int = 0
    installation: str = ""
    restores: int = 0

    def of(self, installation: str) -> Counters:
        """Return the counters for an installation: raised if they are from the backup of another one.

        An installation without an id takes them as they are."""
        if not installation or installation == self.installation:
            return self
        if not self.installation:
            return replace(self, installation=installation)
        raised = self.next_schema + NUMBERS_LEFT_OUT_BY_RESTORE
        return replace(self, next_schema=raised, installation=installation, restores=self.restores + 1)


@dataclass(frozen=True, slots=True)
class Remains:
    """The numbers that a group goes on with: its next version and encoding.

    `restores`: those of the counters when these numbers were written; for each later one they rise."""

    next_version: int = 1
    next_encoding: int = 0
    restores: int = 0

    def raised(self, restores: int) -> Remains:
        """Return the numbers after all restores."""
        more = NUMBERS_LEFT_OUT_BY_RESTORE * (restores - self.restores)
        return Remains(self.next_version + more, self.next_encoding + more, restores)


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a group; the fields that `values.Group` has, too, are as there.

    `numbers`: the next ones.  `latest`: the highest version that is not deleted, or 0.  `versions`, `live`: how many
    versions there are, and how many are not deleted.  `deleted_below`: all versions below this number are deleted
    softly, whatever their rows say.  `created`: by `create_group`, so that the group may be without versions.
    `deleted`: by `delete_group`, and not brought back since."""

    numbers: Remains
    latest: int = 0
    versions: int = 0
    live: int = 0
    encodings: int = 0
    deleted_below: int = 0
    created: bool = False
    deleted: bool = False
    kind: Kind | None = None
    format_name: str = ""
    many_types: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    codecs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    created_ms: int = 0

    @property
    def hidden(self) -> bool:
        """Whether the group is deleted softly."""
        return self.deleted or (not self.created and self.live == 0)


@dataclass(frozen=True, slots=True)
class TypeNumbers:
    """The next number of a version among those of its type.  `restores`: as in `Remains`."""

    next: int = 0
    restores: int = 0

    def raised(self, restores: int) -> TypeNumbers:
        """Return the number after all restores, in which a type without versions has no part."""
        more = NUMBERS_LEFT_OUT_BY_RESTORE * (restores - self.restores) if self.next else 0
        return TypeNumbers(self.next + more, restores)


NO_NUMBERS: Final = TypeNumbers()


def fingerprint(schema: Schema) -> bytes:
    """Return the digest by which equal schemas are found, whatever their ids: 32 bytes."""
    references = [[one.name, one.group, one.version] for one in schema.references]
    parts = [schema.kind.value, schema.format_name, schema.text, schema.namespace, references]
    return hashlib.sha256(json.dumps(parts).encode()).digest()


def encode_schema(schema: Schema) -> list[bytes]:
    """Return the rows of a schema, by part."""
    text = schema.text.encode()
    head = _encode(
        {
            "kind": schema.kind.value,
            "type": schema.type,
            "format": schema.format_name,
            "namespace": schema.namespace,
            "references": [[one.name, one.group, one.version] for one in schema.references],
            "bytes": len(text),
            "fingerprint": fingerprint(schema).hex(),
        }
    )
    first = max(SCHEMA_PART_BYTES - len(head), 0)
    rest = range(first, len(text), SCHEMA_PART_BYTES)
    return [head + b"\n" + text[:first], *(MARK + text[at : at + SCHEMA_PART_BYTES] for at in rest)]


def further_parts(first: bytes) -> int:
    """Return how many rows of a schema follow its first.  Raises Corrupt."""
    head, _, text = first.partition(b"\n")
    left = _int(_decode(head, "a schema"), "bytes") - len(text)
    return -(-max(left, 0) // SCHEMA_PART_BYTES)


def decode_schema(id: int, rows: Sequence[bytes]) -> Schema:
    """Return a schema from its rows.  Raises Corrupt."""
    what = f"schema {id}"
    head, _, text = rows[0].partition(b"\n")
    row = _decode(head, what)

    def build() -> Schema:
        whole = text + b"".join(_content(one, what) for one in rows[1:])
        references = tuple(Reference(name, group, int(version)) for name, group, version in row["references"])
        kind, type, format_name = Kind(row["kind"]), str(row["type"]), str(row["format"])
        schema = Schema(id, kind, whole.decode(), references, type, format_name, str(row["namespace"]))
        if len(whole) != row["bytes"] or fingerprint(schema).hex() != row["fingerprint"]:
            raise ValueError("its text is not the one that was written")
        return schema

    return _built(build, what)


def encode_id(id: int) -> bytes:
    """Return the row that holds a schema id, or the number of an encoding."""
    return _encode({"id": id})


def decode_id(value: bytes, what: str) -> int:
    """Return a schema id, or the number of an encoding.  Raises Corrupt."""
    return _int(_decode(value, what), "id")


def encode_counters(counters: Counters) -> bytes:
    """Return the row of the counters."""
    return _encode(
        {
            "next_schema": counters.next_schema,
            "schemas": counters.schemas,
            "groups": counters.groups,
            "installation": counters.installation,
            "restores": counters.restores,
        }
    )


def decode_counters(value: bytes) -> Counters:
    """Return the counters.  Raises Corrupt."""
    what = "the counters"
    row = _decode(value, what)
    return _built(
        lambda: Counters(
            _int(row, "next_schema"),
            _int(row, "schemas"),
            _int(row, "groups"),
            str(row["installation"]),
            _int(row, "restores"),
        ),
        what,
    )


def encode_remains(numbers: Remains) -> bytes:
    """Return the row of what remains of a group."""
    return _encode(_numbers(numbers))


def decode_remains(value: bytes, what: str) -> Remains:
    """Return what remains of a group.  Raises Corrupt."""
    row = _decode(value, what)
    return _built(lambda: _remains(row), what)


def encode_head(head: Head) -> bytes:
    """Return the row of a group's head."""
    return _encode(
        {
            **_numbers(head.numbers),
            "latest": head.latest,
            "versions": head.versions,
            "live": head.live,
            "encodings": head.encodings,
            "deleted_below": head.deleted_below,
            "created": head.created,
            "deleted": head.deleted,
            "kind": None if head.kind is None else head.kind.value,
            "format": head.format_name,
            "many_types": head.many_types,
            "properties": dict(head.properties),
            "codecs": {name: dict(properties) for name, properties in head.codecs.items()},
            "created_ms": head.created_ms,
        }
    )


def decode_head(value: bytes, what: str) -> Head:
    """Return the head of a group.  Raises Corrupt."""
    row = _decode(value, what)
    return _built(
        lambda: Head(
            _remains(row),
            _int(row, "latest"),
            _int(row, "versions"),
            _int(row, "live"),
            _int(row, "encodings"),
            _int(row, "deleted_below"),
            bool(row["created"]),
            bool(row["deleted"]),
            None if row["kind"] is None else Kind(row["kind"]),
            str(row["format"]),
            bool(row["many_types"]),
            _texts(row["properties"]),
            {str(name): _texts(properties) for name, properties in row["codecs"].items()},
            _int(row, "created_ms"),
        ),
        what,
    )


def encode_version(version: Version) -> bytes:
    """Return the row of a version."""
    return _encode(
        {
            "schema": version.schema,
            "kind": version.kind.value,
            "type": version.type,
            "type_version": version.type_version,
            "deleted": version.deleted,
            "properties": dict(version.properties),
            "created_ms": version.created_ms,
        }
    )


def decode_version(number: int, value: bytes, head: Head, what: str) -> Version:
    """Return a version of a group with this head.  Raises Corrupt."""
    row = _decode(value, what)
    return _built(
        lambda: Version(
            number,
            _int(row, "schema"),
            Kind(row["kind"]),
            str(row["type"]),
            _int(row, "type_version"),
            bool(row["deleted"]) or number < head.deleted_below,
            _texts(row["properties"]),
            _int(row, "created_ms"),
        ),
        what,
    )


def encode_type_numbers(numbers: TypeNumbers) -> bytes:
    """Return the row of the numbers of a type's versions."""
    return _encode({"next": numbers.next, "restores": numbers.restores})


def decode_type_numbers(value: bytes, what: str) -> TypeNumbers:
    """Return the numbers of a type's versions.  Raises Corrupt."""
    row = _decode(value, what)
    return TypeNumbers(_int(row, "next"), _int(row, "restores"))


def encode_encoding(encoding: Encoding) -> bytes:
    """Return the row of an encoding."""
    return _encode({"version": encoding.version, "codec": encoding.codec})


def decode_encoding(number: int, value: bytes, what: str) -> Encoding:
    """Return an encoding.  Raises Corrupt."""
    row = _decode(value, what)
    return _built(lambda: Encoding(number, _int(row, "version"), str(row["codec"])), what)


def encode_settings(settings: Settings) -> bytes:
    """Return the row of settings."""
    policy, mode = settings.policy, settings.mode
    return _encode(
        {
            "policy": None if policy is None else policy_to_json(policy),
            "mode": None if mode is None else mode.value,
        }
    )


def decode_settings(value: bytes, what: str) -> Settings:
    """Return settings.  Raises Corrupt."""
    row = _decode(value, what)
    return _built(
        lambda: Settings(
            None if row["policy"] is None else policy_from_json(row["policy"]),
            None if row["mode"] is None else Mode(row["mode"]),
        ),
        what,
    )


def name_of(key: bytes) -> str:
    """Return how errors name a row."""
    return f"row {keys.shown(key)}"


def _numbers(numbers: Remains) -> dict[str, Any]:
    return {
        "next_version": numbers.next_version,
        "next_encoding": numbers.next_encoding,
        "restores": numbers.restores,
    }


def _remains(row: Mapping[str, Any]) -> Remains:
    return Remains(_int(row, "next_version"), _int(row, "next_encoding"), _int(row, "restores"))


def _encode(row: Mapping[str, Any]) -> bytes:
    return MARK + json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


def require_format(value: bytes, what: str) -> None:
    """Check the byte of a row's format.  Raises Corrupt."""
    _content(value, what)


def _content(value: bytes, what: str) -> bytes:
    """Return a row without the byte of its format.  Raises Corrupt."""
    if not value:
        raise Corrupt(f"the registry's table is damaged: {what} is empty")
    if value[0] != FORMAT:
        raise Corrupt(f"{what} of the registry is of format {value[0]}; this version of Sarit reads {FORMAT}")
    return value[1:]


def _decode(value: bytes, what: str) -> dict[str, Any]:
    try:
        row = parse_json(_content(value, what))
        if isinstance(row, dict):
            return row
    except ValueError:
        pass
    raise Corrupt(f"the registry's table is damaged: {what} is no JSON object")


def _int(row: Mapping[str, Any], name: str) -> int:
    number = row.get(name)
    if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
        return number
    raise Corrupt(f"the registry's table is damaged: a row has no number {name}")


def _texts(given: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in given.items()}


def _built(build: Callable[[], T], what: str) -> T:
    try:
        return build()
    except (KeyError, TypeError, ValueError, AttributeError, Invalid) as error:
        raise Corrupt(f"the registry's table is damaged: {what}: {error}") from None
