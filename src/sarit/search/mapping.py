"""A mapping: which fields of the events of a stream are searched, and of which kinds they are.  Pure.

An event is a JSON document, a document of the stream's registered schema, or a text.  The path of a field is the names
to it, separated by dots, as `customer.id`; places in arrays have no names: a field of objects in an array has several
values.  A value that does not fit its field's kind is left out of the field, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
