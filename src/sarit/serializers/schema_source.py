"""Where readers of events get schemas from: a registry over HTTP, or the one that the process itself keeps.

A schema never changes under its number, so a source remembers what it was asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from sarit.core.errors import Invalid
from sarit.schemas.avro_definition import parse_avro
from sarit.schemas.avro_forms import whole_text
from sarit.schemas.avro_shapes import shape_of
from sarit.serializers.limits import MAX_AVRO_LEVELS
from sarit.serializers.schema import AVRO, PROTOBUF

if TYPE_CHECKING:
    from collections.abc import Mapping


class UnusableSchema(Invalid):
    """A schema that the registry has, and whose data are not decoded."""


class WrittenSchema(NamedTuple):
    """The schema that events were written with.

    `format`: as registries name it.  `text`: of Avro with what it refers to.  `recursive`: an Avro schema has a type
    that contains itself.  `codec`: of the payloads, "" for none.  `references`: of Protobuf, the path of each import
    and its text.  `version`: the number of a version that was asked for, where the registry tells it.  `message`: the
    full name of the Protobuf message that payloads are which do not say it; "": the first one of the file."""

    format: str
    text: str
    recursive: bool = False
    codec: str = ""
    references: tuple[tuple[str, str], ...] = ()
    version: int | None = None
    message: str = ""


class SchemaSource(Protocol):
    """A registry as readers of events ask it.

    Calls block: asyncio's side makes them on a thread.  Raises Unavailable, Unauthenticated, Forbidden, Invalid (the
    call is wrong); NotFound for what the registry does not have; UnusableSchema."""

    def written(self, subject: str, number: int, header: str) -> WrittenSchema:
        """Return the schema that the number in an event's header names.  `subject`: the group, for Pravega's header."""

    def version(self, subject: str, version: int | None) -> WrittenSchema:
        """Return a version of a subject; None: the latest one."""


def written_schema(
    format: str, text: str, references: Mapping[str, str], codec: str = "", message: str = ""
) -> WrittenSchema:
    """Return a schema whose data do no harm.  `references`: text by name, a used one before its users.

    Raises UnusableSchema for another one."""
    if format == AVRO:
        return _avro(text, references)._replace(codec=codec)
    if format != PROTOBUF:
        return WrittenSchema(format, text, codec=codec)
    return WrittenSchema(format, text, codec=codec, references=tuple(references.items()), message=message)


def _avro(text: str, references: Mapping[str, str]) -> WrittenSchema:
    try:
        found = parse_avro(text, references)
    except Invalid as error:
        raise UnusableSchema(f"its schema cannot be used: {error}") from None
    shape = shape_of(found.root)
    if shape.levels > MAX_AVRO_LEVELS:
        raise UnusableSchema(f"the Avro schema has more than {MAX_AVRO_LEVELS} types within each other")
    if shape.array_of_nothing:
        raise UnusableSchema("the Avro schema has an array whose items take no bytes, so that no data bound its length")
    return WrittenSchema(AVRO, whole_text(found), shape.recursive)
