"""Serializers that leave bytes as they are."""

from __future__ import annotations

from sarit.core.errors import Invalid


class BytesSerializer:
    """Writes bytes as they are; other values are refused."""

    def __repr__(self) -> str:
        return "BytesSerializer()"

    def serialize(self, value: bytes | bytearray | memoryview) -> bytes:
        """Return the bytes.  Raises Invalid for anything else."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise Invalid(f"the value is a {type(value).__name__}, not bytes")
        return bytes(value)


class BytesDeserializer:
    """Reads events as they are, with the header of a schema, if they have one."""

    def __repr__(self) -> str:
        return "BytesDeserializer()"

    def deserialize(self, payload: bytes) -> bytes:
        """Return the bytes of an event."""
        return payload
