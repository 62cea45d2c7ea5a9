"""How a structure encodes its values: by a serializer and a deserializer, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sarit.client.structures.limits import SHOWN_VALUE_CHARS
from sarit.core.errors import Invalid
from sarit.core.texts import cut_text

if TYPE_CHECKING:
    from sarit.serializers.protocols import Deserializer, Serializer

T = TypeVar("T")


class Values(Generic[T]):
    """The serializer and the deserializer of one structure; without both, values are bytes."""

    def __init__(self, serializer: Serializer[T] | None, deserializer: Deserializer[T] | None) -> None:
        """Raises Invalid: one of them is missing, or asks a schema registry."""
        if (serializer is None) != (deserializer is None):
            raise Invalid("a structure reads what it writes: give a serializer and a deserializer, or neither")
        for one in (serializer, deserializer):
            if getattr(one, "registration", None) is not None:
                raise Invalid(f"a {type(one).__name__} with a schema registry is for streams: give one without it")
        self._serializer = serializer
        self._deserializer = deserializer

    def __repr__(self) -> str:
        return f"Values({type(self._serializer).__name__}, {type(self._deserializer).__name__})"

    def encode(self, value: Any, name: str = "value") -> bytes:
        """Return the bytes of a value; `name`: of the argument.  Raises Invalid, or what the serializer raises."""
        found = value if self._serializer is None else self._serializer.serialize(value)
        if not isinstance(found, bytes):
            wanted = "bytes, or open the structure with a serializer" if self._serializer is None else "another one"
            raise Invalid(f"{name}={cut_text(ascii(value), SHOWN_VALUE_CHARS)} is not encoded as bytes: give {wanted}")
        return found

    def decode(self, data: bytes, where: str) -> T:
        """Return the value of `encode`'s bytes; `where` names its place.  Raises Invalid."""
        if self._deserializer is None:
            return data  # type: ignore[return-value]
        try:
            return self._deserializer.deserialize(data)
        except Exception as error:  # deserializers raise errors of their own
            raise Invalid(f"{where} cannot be decoded, by {type(self._deserializer).__name__}: {error}") from error
