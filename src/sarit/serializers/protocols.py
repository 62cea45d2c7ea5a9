"""What serializers and deserializers are, and the error for an event that cannot be decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from sarit.core.names import SegmentId, StreamName

T = TypeVar("T")
T_in = TypeVar("T_in", contravariant=True)
T_out = TypeVar("T_out", covariant=True)


class Serializer(Protocol[T_in]):
    """Encodes values as payloads of events.  Any object with this method is one."""

    def serialize(self, value: T_in, /) -> bytes:
        """Return the payload of a value.  Raises Invalid for a value that does not fit."""


class Deserializer(Protocol[T_out]):
    """Decodes payloads of events.  Any object with this method is one."""

    def deserialize(self, payload: bytes, /) -> T_out:
        """Return the value of a payload.  Raises Invalid, or any error of its own, for one that it cannot decode."""


class Undecodable(Invalid):
    """An event that the deserializer cannot decode; it is not consumed, and read again.

    `event`: its bytes, with the header.  `offset`: where it begins in `segment` of `stream`, in bytes.  `schema_id`:
    the id that its header names; None: it has none."""

    def __init__(
        self, why: str, event: bytes, stream: StreamName, segment: SegmentId, offset: int, schema_id: int | None
    ) -> None:
        named = "" if schema_id is None else f" (schema id {schema_id})"
        super().__init__(f"the event at offset {offset} of {stream.segment(segment)}{named} cannot be decoded: {why}")
        self.why = why
        self.event = event
        self.stream = stream
        self.segment = segment
        self.offset = offset
        self.schema_id = schema_id

    def __reduce__(self) -> tuple[object, ...]:
        given = (self.why, self.event, self.stream, self.segment, self.offset, self.schema_id)
        return (type(self), given)


class SchemaNeeded(Exception):
    """A signal of a decoder: before it can decode the event, somebody must call its `fetch` with the id."""

    def __init__(self, schema_id: int) -> None:
        super().__init__(f"schema {schema_id} is to be fetched")
        self.schema_id = schema_id
