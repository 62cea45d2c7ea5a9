"""Serializers of JSON: one value an event, with a JSON Schema in a registry or without."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Invalid
from sarit.core.texts import cut_text
from sarit.serializers.avro_format import as_schema
from sarit.serializers.registration import Registration, registration
from sarit.serializers.schema import JSON, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.core.names import StreamName
    from sarit.serializers.pravega_registry import PravegaRegistry
    from sarit.serializers.registration import Written
    from sarit.serializers.registry_client import RegistryClient

T = TypeVar("T")

_SHOWN: Final = 300
_TYPE: Final = "object"  # the name of a schema without a title


class JsonSerializer(Generic[T]):
    """Encodes values as JSON in UTF-8: what `json.dumps` takes, or what `to_dict` makes of them.

    `schema`: a JSON Schema, for the registry; None: the subject's latest one, with `use_latest`, or none without a
    registry.  `validate`: a function that raises an error for a value that does not fit, as those of packages for JSON
    Schema do; None: nothing is checked.  `registry`, `subject` and the options: see `Registration`."""

    @overload
    def __init__(
        self: JsonSerializer[Any],
        schema: str | Mapping[str, Any] | bool | Schema | None = None,
        *,
        to_dict: None = None,
        validate: Callable[[Any], object] | None = None,
        registry: RegistryClient | PravegaRegistry | None = None,
        subject: str | Callable[[StreamName], str] | None = None,
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
    ) -> None: ...

    @overload
    def __init__(
        self,
        schema: str | Mapping[str, Any] | bool | Schema | None = None,
        *,
        to_dict: Callable[[T], Any],
        validate: Callable[[Any], object] | None = None,
        registry: RegistryClient | PravegaRegistry | None = None,
        subject: str | Callable[[StreamName], str] | None = None,
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
    ) -> None: ...

    def __init__(
        self,
        schema: str | Mapping[str, Any] | bool | Schema | None = None,
        *,
        to_dict: Callable[[T], Any] | None = None,
        validate: Callable[[Any], object] | None = None,
        registry: RegistryClient | PravegaRegistry | None = None,
        subject: str | Callable[[StreamName], str] | None = None,
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
    ) -> None:
        self.schema = as_schema(schema, JSON)
        self.indexes = None
        self.registration = registration(
            registry, subject, auto_register=auto_register, use_latest=use_latest, normalize=normalize
        )
        self._to_dict = to_dict
        self._validate = validate
        self._encode = self.encoder(b"", None)

    def __repr__(self) -> str:
        return f"JsonSerializer({self.type_name})"

    @property
    def type_name(self) -> str:
        """The title of the schema, or "object"."""
        try:
            found = None if self.schema is None else parse_json(self.schema.text)
        except ValueError:
            found = None  # the registry says what is wrong with it
        title = found.get("title") if isinstance(found, dict) else None
        return title if isinstance(title, str) and title else _TYPE

    def own_schema(self, use: Registration | None) -> Schema | None:
        """Return the schema as it was given."""
        return self.schema

    def serialize(self, value: T) -> bytes:
        """Return the JSON of a value, without a header.  Raises Invalid for one that JSON, or `validate`, refuses."""
        return self._encode(value)

    def encoder(self, header: bytes, written: Written | None) -> Callable[[T], bytes]:
        """Return a function from values to events that begin with `header`."""
        to_dict, validate = self._to_dict, self._validate
        dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

        def encode(value: T) -> bytes:
            plain = value if to_dict is None else to_dict(value)
            try:
                if validate is not None:
                    validate(plain)
                return header + dumps(plain).encode()
            except Exception as error:  # the encoder raises several kinds, and `validate` its own
                raise Invalid(f"the value cannot be written as JSON: {_shown(error)}") from None

        return encode


class JsonDeserializer(Generic[T]):
    """Decodes JSON: what `json.loads` returns, or what `from_dict` makes of it.

    `registry`: checks that the registry knows the id of an event, as of JSON Schema.  `validate`: a function that
    raises an error for a value that does not fit.  `subject`: the group of a PravegaRegistry, as of `Registration`."""

    @overload
    def __init__(
        self: JsonDeserializer[Any],
        *,
        from_dict: None = None,
        validate: Callable[[Any], object] | None = None,
        registry: RegistryClient | PravegaRegistry | None = None,
        subject: str | Callable[[StreamName], str] | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        *,
        from_dict: Callable[[Any], T],
        validate: Callable[[Any], object] | None = None,
        registry: RegistryClient | PravegaRegistry | None = None,
        subject: str | Callable[[StreamName], str] | None = None,
    ) -> None: ...

    def __init__(
        self,
        *,
        from_dict: Callable[[Any], T] | None = None,
        validate: Callable[[Any], object] | None = None,
        registry: RegistryClient | PravegaRegistry | None = None,
        subject: str | Callable[[StreamName], str] | None = None,
    ) -> None:
        self.registration = registration(registry, subject)
        self._from_dict = from_dict
        self._validate = validate
        self._decode = self.decoder(None)

    def __repr__(self) -> str:
        return "JsonDeserializer()"

    def deserialize(self, payload: bytes) -> T:
        """Return the value of a JSON text without a header.  Raises Invalid for what is no JSON."""
        return self._decode(payload, 0)

    def decoder(self, written: Written | None) -> Callable[[bytes, int], T]:
        """Return a function from an event, and where its JSON begins, to a value."""
        if written is not None and written.schema.format != JSON:
            raise Invalid(f"its schema is of the format {written.schema.format}, not {JSON}")
        padded = written is not None and written.padded
        from_dict, validate = self._from_dict, self._validate

        def decode(event: bytes, at: int) -> T:
            try:
                found = parse_json(event[at:].rstrip(b"\0") if padded else event[at:])
                if validate is not None:
                    validate(found)
                return found if from_dict is None else from_dict(found)
            except Exception as error:  # functions of the user raise any kind
                raise Invalid(f"it is no JSON that fits: {_shown(error)}") from None

        return decode


def _shown(error: Exception) -> str:
    return cut_text(" ".join(f"{type(error).__name__}: {error}".split()), _SHOWN)
