"""Bodies of Confluent's API: what requests say, and how answers show schemas.  Pure."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sarit.core.texts import cut_text
from sarit.registry.confluent.errors import BAD_LEVEL, BAD_MODE, BAD_RULES, BAD_SCHEMA, NOT_PERMITTED, Refused
from sarit.registry.confluent.subjects import no_schema, parse_subject, subject_of
from sarit.registry.limits import MAX_REGISTRY_NUMBER
from sarit.registry.values import LATEST, GroupName, Mode, NewSchema, Reference
from sarit.schemas.compatibility import Level
from sarit.schemas.definitions import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.registry.values import FoundVersion, Schema

TYPES: Final = (Kind.AVRO, Kind.JSON, Kind.PROTOBUF)
_UNSUPPORTED_SETTINGS: Final = (
    "alias", "aliasForDeks", "compatibilityGroup", "compatibilityPolicy", "defaultMetadata", "overrideMetadata",
    "defaultRuleSet", "overrideRuleSet",
)  # fmt: skip
_GUID_HASH_LENGTH: Final = 12
_FLAGS: Final = {"true": True, "false": False, "": False}


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A schema as a request gives it.  `id`, `version`: those of another registry, or None."""

    schema: NewSchema
    id: int | None = None
    version: int | None = None


def read_flag(query: Mapping[str, str], name: str) -> bool:
    """Return a parameter that is true or false; false if it is not given.  Raises Refused."""
    value = _FLAGS.get(query.get(name, "").lower())
    if value is None:
        raise Refused(400, f"The parameter {name} is true or false")
    return value


def read_page(query: Mapping[str, str], most: int) -> slice:
    """Return which items of a list `offset` and `limit` ask for, at most `most`.  Raises Refused."""
    numbers = {}
    for name, default in (("offset", 0), ("limit", -1)):
        text = query.get(name, str(default))
        try:
            numbers[name] = int(text[:20])
        except ValueError:
            raise Refused(400, f"The parameter {name} is a whole number") from None
    start, limit = max(0, numbers["offset"]), numbers["limit"]
    return slice(start, start + (most if limit < 0 else min(limit, most)))


def read_new(body: Any, namespace: str) -> NewVersion:
    """Return the schema in the body of a request.  `namespace`: of the group that it is for.

    A reference may have LATEST as its version.  Raises Refused."""
    if not isinstance(body, dict):
        raise Refused(BAD_SCHEMA, 'The body is not an object: send {"schema": "..."}')
    text = body.get("schema")
    if not isinstance(text, str) or not text.strip():
        raise Refused(BAD_SCHEMA, 'The schema is missing: send its text as {"schema": "..."}')
    name = body.get("schemaType")
    kind = Kind.AVRO if name is None else next((each for each in TYPES if each.value == name), None)
    if kind is None:
        names = ", ".join(each.value for each in TYPES)
        raise Refused(BAD_SCHEMA, f"The schemaType {_shown(name)} is not known: it is one of {names}")
    for field, code in (("ruleSet", BAD_RULES), ("metadata", BAD_SCHEMA)):
        if body.get(field):
            raise Refused(code, f"This registry keeps no {field}: register the schema without it")
    references = _read_references(body.get("references"), namespace)
    return NewVersion(NewSchema(kind, text, references), _number(body, "id"), _number(body, "version"))


def _read_references(value: Any, namespace: str) -> tuple[Reference, ...]:
    if value is None:
        return ()
    found = []
    for each in value if isinstance(value, list) else [None]:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str) or not isinstance(
            each.get("subject"), str
        ):  # fmt: skip
            raise Refused(BAD_SCHEMA, "The references are a list of objects with name, subject and version")
        version = each.get("version")
        if type(version) is not int or not (version == LATEST or 1 <= version <= MAX_REGISTRY_NUMBER):
            raise Refused(BAD_SCHEMA, f"The version of the reference {_shown(each['name'])} is not a number from 1 on")
        name = parse_subject(each["subject"], namespace)
        if name.namespace != namespace:
            raise Refused(BAD_SCHEMA, f"The reference {_shown(each['name'])} leads to another context")
        found.append(Reference(each["name"], name.group, version))
    return tuple(found)


def _number(body: Mapping[str, Any], name: str) -> int | None:
    """Return an id or a version; None: not given, also as 0 or -1 as some clients do."""
    value = body.get(name)
    if value is None or value in (0, -1):
        return None
    if type(value) is not int or not 1 <= value <= MAX_REGISTRY_NUMBER:
        raise Refused(BAD_SCHEMA, f"The {name} is not a number from 1 to {MAX_REGISTRY_NUMBER}")
    return value


def read_level(body: Any) -> Level | None:
    """Return the level in a body of `/config`; None: it changes nothing.  Raises Refused."""
    if not isinstance(body, dict):
        raise Refused(BAD_LEVEL, 'The body is not an object: send {"compatibility": "..."}')
    for name in _UNSUPPORTED_SETTINGS:
        if body.get(name):
            raise Refused(NOT_PERMITTED, f"This registry has no setting {name}: leave it out")
    value = body.get("compatibility", body.get("compatibilityLevel"))
    if value is None:
        return None
    names = [level.value for level in Level]
    if not isinstance(value, str) or value.upper() not in names:
        raise Refused(BAD_LEVEL, f"The level {_shown(value)} is not known: it is one of {', '.join(names)}")
    return Level(value.upper())


def read_mode(body: Any) -> Mode:
    """Return the mode in a body of `/mode`.  Raises Refused."""
    value = body.get("mode") if isinstance(body, dict) else None
    names = [mode.value for mode in Mode]
    if not isinstance(value, str) or value.upper() not in names:
        raise Refused(BAD_MODE, f"The mode {_shown(value)} is not known: it is one of {', '.join(names)}")
    return Mode(value.upper())


def _shown(value: Any) -> str:
    return cut_text(ascii(value), 60)


def guid_of(schema: Schema) -> str:
    """Return the GUID of a schema: 12 bytes of a hash of what it says, and the four bytes of its id.

    So a GUID finds its schema without an index, and one that a registry never gave finds nothing.  Two installations
    have the same GUID for a schema if it has the same id in both."""
    parts = (schema.kind.value, schema.format_name, schema.type, schema.text,
             *(f"{each.name}\0{each.group}\0{each.version}" for each in schema.references))  # fmt: skip
    made = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        made.update(len(raw).to_bytes(8, "big") + raw)
    found = bytearray(made.digest()[:_GUID_HASH_LENGTH] + schema.id.to_bytes(4, "big"))
    found[6] = 0x80 | found[6] & 0x0F  # version 8: of a form that its maker chose
    found[8] = 0x80 | found[8] & 0x3F
    return str(uuid.UUID(bytes=bytes(found)))


def id_in_guid(text: str) -> int:
    """Return the id that a GUID has in it.  Raises NotThere(SCHEMA)."""
    try:
        return int.from_bytes(uuid.UUID(text[:40]).bytes[_GUID_HASH_LENGTH:], "big")
    except ValueError:
        raise no_schema(text) from None


def show_schema(schema: Schema, text: str | None = None) -> dict[str, Any]:
    """Return what answers say of a schema; `text`: in another format."""
    found: dict[str, Any] = {"guid": guid_of(schema)}
    if schema.kind is not Kind.AVRO:
        found["schemaType"] = schema.kind.value
    found["schema"] = schema.text if text is None else text
    if schema.references:
        found["references"] = [
            {"name": each.name, "subject": subject_of(GroupName(schema.namespace, each.group)), "version": each.version}
            for each in schema.references
        ]
    return found


def show_version(found: FoundVersion, text: str | None = None) -> dict[str, Any]:
    """Return what answers say of a version; `text`: of its schema in another format."""
    shown = {"subject": subject_of(found.name), "version": found.version.number, "id": found.schema.id}
    deleted = {"deleted": True} if found.version.deleted else {}
    return {**shown, **show_schema(found.schema, text), **deleted}
