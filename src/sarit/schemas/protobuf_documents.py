"""Protobuf data as JSON documents for people, as Protobuf's own library prints JSON: fields that are set, by the names
that JSON has for them.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError

from sarit.core.errors import Invalid
from sarit.schemas.protobuf_schema import MAIN_FILE, pool_of
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor import Descriptor

    from sarit.schemas.protobuf_schema import ProtobufSchema


class ProtobufDocuments:
    """Reads messages of one schema."""

    def __init__(self, schema: ProtobufSchema, message: str = "") -> None:
        """`message`: the full name of the one that all payloads are; empty: their indexes say which.  Raises Invalid:
        there is none."""
        self._pool = pool_of(schema)
        self._message = None if not message else self._named(message)
        self._classes: dict[tuple[int, ...], Any] = {}

    def __repr__(self) -> str:
        return f"<ProtobufDocuments, {len(self._classes)} messages>"

    def __call__(self, payload: bytes, indexes: Sequence[int]) -> Any:
        """Return the document of a message; `indexes`: which message of the file.  Raises Invalid."""
        found = self._message or self._classes.get(key := tuple(indexes))
        if found is None:
            found = self._classes[key] = message_factory.GetMessageClass(self._descriptor(key))
        try:
            message = found.FromString(payload)
            return json_format.MessageToDict(message, descriptor_pool=self._pool)
        except DecodeError as error:
            raise Invalid(f"it is no message {found.DESCRIPTOR.full_name}: {shown(str(error))}") from None
        except Exception as error:  # what its library cannot print: times out of range, types that Any names
            raise Invalid(f"the message {found.DESCRIPTOR.full_name} is not shown: {shown(str(error))}") from None

    def _named(self, message: str) -> Any:
        try:
            return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(message))
        except KeyError:
            raise Invalid(f"the schema has no message {shown(message)}") from None

    def _descriptor(self, indexes: tuple[int, ...]) -> Descriptor:
        """Return a message by its place.  Raises Invalid."""
        level = list(self._pool.FindFileByName(MAIN_FILE).message_types_by_name.values())
        found: Descriptor | None = None
        for index in indexes:
            if index >= len(level):
                raise Invalid(f"the schema has no message with the indexes {list(indexes)}")
            found = level[index]
            level = list(found.nested_types)
        assert found is not None
        return found
