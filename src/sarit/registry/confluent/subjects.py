"""Names of Confluent's API: subjects, contexts, versions, and what they mean in the registry.  Pure.

A subject is `SUBJECT`, or `:.CONTEXT:SUBJECT` in a context.  The context `.` is the default one, and `.__GLOBAL` names
the settings of the installation.
"""

from __future__ import annotations

import re
from typing import Final

from sarit.core.errors import Invalid
from sarit.core.texts import cut_text
from sarit.registry.confluent.errors import BAD_SUBJECT, BAD_VERSION, Refused
from sarit.registry.errors import Missing, NotThere
from sarit.registry.limits import MAX_REGISTRY_NUMBER
from sarit.registry.names import check_level
from sarit.registry.values import LATEST, GroupName

_GLOBAL: Final = "__GLOBAL"
_NUMBER: Final = re.compile(r"[+-]?\d{1,10}", re.ASCII)
_EVERY_CONTEXT: Final = ":*:"


def namespace_of(context: str) -> str:
    """Return the namespace that a context names: `.NAME`, also `:.NAME:`; `.` and nothing are the default."""
    name = context.removeprefix(":").removesuffix(":").removeprefix(".")
    return "" if name == _GLOBAL else name


def context_of(namespace: str) -> str:
    """Return the name of a context."""
    return f".{namespace}"


def subject_of(name: GroupName) -> str:
    """Return the name of a subject, with its context unless that is the default."""
    return f":.{name.namespace}:{name.group}" if name.namespace else name.group


def parse_subject(text: str, context: str | None = None) -> GroupName:
    """Return the group of a subject.  `context`: of the path.  Raises Refused(BAD_SUBJECT)."""
    name = parse_level(text, context)
    if not name.group:
        raise Refused(BAD_SUBJECT, "The subject has no name")
    return name


def parse_level(text: str, context: str | None = None) -> GroupName:
    """Return what a subject of `/config` and `/mode` names: a group, or with an empty one a context or everything.

    Raises Refused(BAD_SUBJECT)."""
    if text.startswith(":."):
        context, _, text = text[1:].partition(":")
    try:
        return check_level(GroupName(namespace_of(context or ""), text))
    except Invalid as error:
        raise Refused(BAD_SUBJECT, str(error)) from None


def parse_prefix(text: str | None, context: str | None = None) -> tuple[str | None, str]:
    """Return the namespace (None: all of them) and the beginning of names that a `subjectPrefix` asks for.

    Raises Refused(BAD_SUBJECT)."""
    if text is not None and text.startswith(_EVERY_CONTEXT):
        return None, text.removeprefix(_EVERY_CONTEXT)
    if text is None and context is None:
        return None, ""
    name = parse_level(text or "", context)
    return name.namespace, name.group


def parse_version(text: str) -> int:
    """Return the number of a version, or LATEST.  Raises Refused(BAD_VERSION)."""
    text = text.strip()
    if text.lower() == "latest" or text == "-1":
        return LATEST
    number = int(text) if _NUMBER.fullmatch(text) else 0
    if not 1 <= number <= MAX_REGISTRY_NUMBER:
        raise Refused(
            BAD_VERSION,
            f"The version {cut_text(ascii(text), 40)} is not valid: give a number from 1 to {MAX_REGISTRY_NUMBER}, or "
            "latest",
        )
    return number


def parse_id(text: str) -> int:
    """Return the id of a schema.  Raises NotThere(SCHEMA): no schema has such an id."""
    number = int(text) if _NUMBER.fullmatch(text) else 0
    if not 1 <= number <= MAX_REGISTRY_NUMBER:
        raise no_schema(text)
    return number


def no_schema(id: str) -> NotThere:
    """Return the error of an id, or GUID, that no schema has, or none that the caller may read: both look the same."""
    return NotThere(Missing.SCHEMA, f"Schema {cut_text(ascii(id).strip(chr(39)), 40)} not found")
