"""A mapping: which fields of the events of a stream are searched, and of which kinds they are.  Pure.

An event is a JSON document, a document of the stream's registered schema, or a text.  The path of a field is the names
to it, separated by dots, as `customer.id`; places in arrays have no names: a field of objects in an array has several
values.  A value that does not fit its field's kind is left out of the field, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sarit.core.errors import Invalid
from sarit.search.limits import MAX_FIELD_PATH_CHARACTERS, MAX_MAPPED_FIELDS

_SHOWN_CHARACTERS: Final = 80
NO_FIELDS: Final = "the events have no fields"
"""What an error says of a query that names a field where none is known."""


class Kind(StrEnum):
    """Kinds of fields: `text` is searched by its words, `keyword` as a whole; times are milliseconds since 1970."""

    TEXT = "text"
    KEYWORD = "keyword"
    NUMBER = "number"
    TIME = "time"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its path and its kind."""

    path: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Mapping:
    """The fields of a stream's events.

    `time_field`: the path of the field that says when an event happened; "": none.  Without it, that is the time of its
    envelope, or else when it was appended, about."""

    fields: tuple[Field, ...] = ()
    time_field: str = ""

    def check(self) -> Mapping:
        """Return this mapping if it is well formed.  Raises Invalid with the reason."""
        if len(self.fields) > MAX_MAPPED_FIELDS:
            raise Invalid(f"a mapping has {len(self.fields)} fields: at most {MAX_MAPPED_FIELDS}")
        for field in self.fields:
            if not 1 <= len(field.path) <= MAX_FIELD_PATH_CHARACTERS or not field.path.isprintable():
                raise Invalid(
                    f"the path of a field has to have 1 to {MAX_FIELD_PATH_CHARACTERS} printable characters, not "
                    f"{field.path[:_SHOWN_CHARACTERS]!a}"
                )
        kinds = {field.path: field.kind for field in self.fields}
        if len(kinds) != len(self.fields):
            raise Invalid("a mapping has a field twice")
        if self.time_field and kinds.get(self.time_field) is not Kind.TIME:
            raise Invalid(
                f"the time field {self.time_field[:_SHOWN_CHARACTERS]!a} of a mapping is not among its fields of times"
            )
        return self


def to_document(mapping: Mapping) -> dict[str, object]:
    """Return a mapping as a document of JSON: `fields`, the kind of each path, and `time_field`, if there is one."""
    found: dict[str, object] = {"fields": {field.path: field.kind.value for field in mapping.fields}}
    if mapping.time_field:
        found["time_field"] = mapping.time_field
    return found


def from_document(found: object) -> Mapping:
    """Return the mapping that a document of JSON has.  Raises Invalid with the reason."""
    if not isinstance(found, dict):
        raise Invalid("a mapping has to be a JSON object with `fields`")
    if unknown := found.keys() - {"fields", "time_field"}:
        shown = min(map(str, unknown))[:_SHOWN_CHARACTERS]
        raise Invalid(f"a mapping has an unknown part {shown!a}: `fields` and `time_field` are known")
    kinds, time_field = found.get("fields", {}), found.get("time_field", "")
    if not isinstance(kinds, dict) or not isinstance(time_field, str):
        raise Invalid("in a mapping, `fields` has to be an object and `time_field` a string")
    return Mapping(tuple(Field(path, _kind(path, kind)) for path, kind in kinds.items()), time_field).check()


def _kind(path: str, kind: object) -> Kind:
    try:
        return Kind(kind)  # type: ignore[arg-type]
    except ValueError:
        raise Invalid(
            f"field {path[:_SHOWN_CHARACTERS]!a} has an unknown kind: {', '.join(one.value for one in Kind)}"
        ) from None
