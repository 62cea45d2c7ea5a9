"""Names and properties in the registry, checked before they become parts of keys.  Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.registry.limits import (
    MAX_NAMESPACE_CHARACTERS,
    MAX_REFERENCE_CHARACTERS,
    MAX_REGISTRY_NAME_CHARACTERS,
    MAX_REGISTRY_NUMBER,
    MAX_REGISTRY_PROPERTIES,
    MAX_REGISTRY_PROPERTY_BYTES,
    MAX_TYPE_CHARACTERS,
)
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.registry.values import GroupName, NewSchema

_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_.\-]*")


def check_namespace(namespace: str) -> str:
    """Return a namespace that is well formed; the empty one is the default.  Raises Invalid."""
    if len(namespace) > MAX_NAMESPACE_CHARACTERS or not _NAMESPACE.fullmatch(namespace):
        raise Invalid(
            f"{shown(namespace)} is no namespace: use letters, digits, '.', '_' and '-', at most "
            f"{MAX_NAMESPACE_CHARACTERS} characters"
        )
    return namespace


def check_group(name: GroupName) -> GroupName:
    """Return the name of a group that is well formed.  Raises Invalid."""
    check_namespace(name.namespace)
    check_text(name.group, "group", MAX_REGISTRY_NAME_CHARACTERS)
    return name


def check_level(name: GroupName) -> GroupName:
    """Return the name of a group, or with an empty group that of a namespace, that is well formed.  Raises Invalid."""
    check_namespace(name.namespace)
    return check_group(name) if name.group else name


def check_text(text: str, what: str, most: int, *, may_be_empty: bool = False) -> str:
    """Return a name of printable characters.  `what`: its kind, for errors.  Raises Invalid."""
    if not (may_be_empty or text) or len(text) > most or not text.isprintable():
        least = "at most" if may_be_empty else "1 to"
        raise Invalid(f"{shown(text)} is no name of a {what}: it has {least} {most} characters, all of them printable")
    return text


def check_codec(codec: str) -> str:
    """Return the name of a codec; the empty one means no compression.  Raises Invalid."""
    return check_text(codec, "codec", MAX_REGISTRY_NAME_CHARACTERS, may_be_empty=True)


def check_format(format_name: str) -> str:
    """Return the name of a custom format, or the empty one.  Raises Invalid."""
    return check_text(format_name, "format", MAX_REGISTRY_NAME_CHARACTERS, may_be_empty=True)


def check_new(new: NewSchema) -> NewSchema:
    """Return a schema whose names are well formed; its text is checked when it is parsed.  Raises Invalid."""
    check_text(new.type, "type", MAX_TYPE_CHARACTERS, may_be_empty=True)
    check_format(new.format_name)
    for reference in new.references:
        check_text(reference.name, "reference", MAX_REFERENCE_CHARACTERS)
        check_text(reference.group, "group", MAX_REGISTRY_NAME_CHARACTERS)
        if not 1 <= reference.version <= MAX_REGISTRY_NUMBER:
            raise Invalid(f"reference {shown(reference.name)}: a version is a number from 1 on")
    if len({reference.name for reference in new.references}) < len(new.references):
        raise Invalid("a schema has one of its references twice")
    return new


def check_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of properties within the bounds.  Raises Invalid."""
    size = 0
    for name, value in properties.items():
        size += len(name) + len(value)
        if size > MAX_REGISTRY_PROPERTY_BYTES or len(properties) > MAX_REGISTRY_PROPERTIES:
            break
        try:
            size += len((name + value).encode()) - len(name) - len(value)
        except UnicodeEncodeError:
            raise Invalid(f"property {shown(name)} is no text: it holds half of a surrogate pair") from None
    if size > MAX_REGISTRY_PROPERTY_BYTES or len(properties) > MAX_REGISTRY_PROPERTIES:
        raise Invalid(
            f"there are at most {MAX_REGISTRY_PROPERTIES} properties, with {MAX_REGISTRY_PROPERTY_BYTES:,} bytes of "
            "names and values together"
        )
    return dict(properties)
