"""Serializers of Avro: values by fastavro, one datum an event."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, overload

from sarit.core.errors import Invalid
from sarit.core.extras import require
from sarit.core.texts import cut_text
from sarit.schemas.avro_definition import parse_avro
from sarit.schemas.avro_forms import whole_text
from sarit.schemas.avro_shapes import shape_of
from sarit.serializers.limits import MAX_AVRO_LEVELS
from sarit.serializers.registration import Registration, registration
from sarit.serializers.registry_client import RegistryClient
from sarit.serializers.schema import AVRO, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.core.names import StreamName
    from sarit.schemas.avro_types import AvroType
    from sarit.serializers.pravega_registry import PravegaRegistry
    from sarit.serializers.registration import Written

T = TypeVar("T")

_SHOWN: Final = 300
_RANGES: Final = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}


class _Parsed(NamedTuple):
    """A schema as fastavro takes it, with its reader and writer.  Internal.

    `integers`: (name, least, most) of the record's fields that are plain integers, which fastavro writes unchecked;
    None: others inside are, too."""

    schema: Any
    name: str
    read: Any
    write: Any
    integers: tuple[tuple[str, int, int], ...] | None


class AvroSerializer(Generic[T]):
    """Encodes values as data of an Avro schema: dicts, or what `to_dict` makes dicts of.

    `schema`: JSON, as a text or parsed, or a Schema, which may have references; None: the subject's latest one, with
    `use_latest`.  `registry`, `subject` and the options: see `Registration`; without a registry an event is the datum
    alone.  A record's dict has each field without a default, and no other names.  Needs the extra `registry`.
    Raises Invalid for a text that is no schema."""

    @overload
    def __init__(
        self: AvroSerializer[dict[str, Any]],
        schema: str | Mapping[str, Any] | Schema | None,
        *,
        to_dict: None = None,
        registry: RegistryClient | PravegaRegistry | None = None,
        subject: str | Callable[[StreamName], str] | None = None,
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
    ) -> None: ...

    @overload
    def __init__(
        self,
        schema: str | Mapping[str, Any] | Schema | None,
        *,
        to_dict: Callable[[T], Any],
        registry: RegistryClient | PravegaRegistry | None = None,
        subject: str | Callable[[StreamName], str] | None = None,
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
    ) -> None: ...

    def __init__(
        self,
        schema: str | Mapping[str, Any] | Schema | None,
        *,
        to_dict: Callable[[T], Any] | None = None,
        registry: RegistryClient | PravegaRegistry | None = None,
        subject: str | Callable[[StreamName], str] | None = None,
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
    ) -> None:
        self.schema = as_schema(schema, AVRO)
        self.indexes = None
        self.registration = registration(
            registry, subject, auto_register=auto_register, use_latest=use_latest, normalize=normalize
        )
        self._to_dict = to_dict
        self._parsed = _parsed_unless_referring(self.schema)
        self._encode = None if self._parsed is None else self.encoder(b"", None)

    def __repr__(self) -> str:
        return f"AvroSerializer({self.type_name or 'the latest schema'})"

    @property
    def type_name(self) -> str:
        """The full name of the record."""
        return "" if self._parsed is None else self._parsed.name

    def own_schema(self, use: Registration | None) -> Schema | None:
        """Return the schema as it was given."""
        return self.schema

    def serialize(self, value: T) -> bytes:
        """Return the datum of a value, without a header.  Raises Invalid for one that does not fit the schema."""
        if self._encode is None:
            raise Invalid("the schema is the registry's, or refers to schemas there: give the serializer to a writer")
        return self._encode(value)

    def encoder(self, header: bytes, written: Written | None) -> Callable[[T], bytes]:
        """Return a function from values to events that begin with `header`; `written`: None: its own schema."""
        parsed = self._parsed if written is None else _parsed(written.schema, written.references)
        assert parsed is not None
        schema, write, to_dict = parsed.schema, parsed.write, self._to_dict
        fits = _integer_check(parsed)

        def encode(value: T) -> bytes:
            datum = value if to_dict is None else to_dict(value)
            buffer = io.BytesIO()
            buffer.write(header)
            try:
                suspect = not fits(datum)
                write(buffer, schema, datum, strict_allow_default=True)
            except Exception as error:  # fastavro raises several kinds
                why = _misfit(datum, schema) or _shown(error)
                raise Invalid(f"the value does not fit the Avro schema {parsed.name}: {why}") from None
            if suspect and (why := _misfit(datum, schema)):
                raise Invalid(f"the value does not fit the Avro schema {parsed.name}: {why}")
            return buffer.getvalue()

        return encode


class AvroDeserializer(Generic[T]):
    """Decodes data of Avro as dicts, or as what `from_dict` makes of them.

    `registry`: the schema that an event was written with is that of its id; without one it is `schema`.  `schema`: to
    read as, by Avro's resolution (renamed by aliases, defaults, promotions); None: as written.  `subject`: the group of
    a PravegaRegistry, as of `Registration`.  Needs the extra `registry`.
    Raises Invalid for a text that is no schema."""

    @overload
    def __init__(
        self: AvroDeserializer[dict[str, Any]],
        schema: str | Mapping[str, Any] | Schema | None = None,
        *,
        from_dict: None = None,
        registry: RegistryClient | PravegaRegistry | None = None,
        subject: str | Callable[[StreamName], str] | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        schema: str | Mapping[str, Any] | Schema | None = None,
        *,
        from_dict: Callable[[Any], T],
        registry: RegistryClient | PravegaRegistry | None = None,
        subject: str | Callable[[StreamName], str] | None = None,
    ) -> None: ...

    def __init__(
        self,
        schema: str | Mapping[str, Any] | Schema | None = None,
        *,
        from_dict: Callable[[Any], T] | None = None,
        registry: RegistryClient | PravegaRegistry | None = None,
        subject: str | Callable[[StreamName], str] | None = None,
    ) -> None:
        if schema is None and registry is None:
            raise Invalid("an AvroDeserializer has a schema, or a registry that knows those of the events")
        self.registration = registration(registry, subject)
        self._from_dict = from_dict
        self._given = as_schema(schema, AVRO)
        if self._given is not None and self._given.references and not isinstance(registry, RegistryClient):
            raise Invalid("the schema refers to others: give a RegistryClient, which has them")
        self._schema = _parsed_unless_referring(self._given)
        self._decode = None if registry is not None else self.decoder(None)

    def __repr__(self) -> str:
        return f"AvroDeserializer({'as written' if self._schema is None else self._schema.name})"

    def deserialize(self, payload: bytes) -> T:
        """Return the value of a datum without a header.  Raises Invalid for one that is not of the schema."""
        if self._decode is None:
            raise Invalid("the schemas are the registry's: give the deserializer to a reader")
        return self._decode(payload, 0)

    def decoder(self, written: Written | None) -> Callable[[bytes, int], T]:
        """Return a function from an event, and where its datum begins, to a value; `written`: None: its own schema."""
        if written is None:
            assert self._schema is not None
            parsed, wanted, padded = self._schema, None, False
        else:
            if written.schema.format != AVRO:
                raise Invalid(f"its schema is of the format {written.schema.format}, not {AVRO}")
            parsed, padded = _parsed(written.schema, written.references), written.padded
            wanted = self._wanted()
        schema, read, from_dict = parsed.schema, parsed.read, self._from_dict

        def decode(event: bytes, at: int) -> T:
            # A byte more shows a datum that is too short: fastavro does not notice that it skips beyond the end.
            data = io.BytesIO(event + b"\0")
            data.seek(at)
            try:
                found = read(data, schema, wanted)
            except Exception as error:  # fastavro raises several kinds, for damaged lengths even MemoryError
                raise Invalid(f"it is no datum of the Avro schema {parsed.name}: {_shown(error)}") from None
            end = data.tell()
            if end != len(event) and (end > len(event) or not (padded and not event[end:].strip(b"\0"))):
                left = len(event) - end
                what = "it ends within the datum" if left < 0 else f"{left} bytes are left over after the datum"
                raise Invalid(f"{what} of the Avro schema {parsed.name}")
            return found if from_dict is None else _converted(from_dict, found)

        return decode

    def _wanted(self) -> Any:
        """Return the schema to read as; None: as written.  Asks the registry for what it refers to."""
        if self._schema is None and self._given is not None:
            assert self.registration is not None
            assert isinstance(self.registration.registry, RegistryClient)
            self._schema = _parsed(self._given, self.registration.registry.referenced(self._given))
        return None if self._schema is None else self._schema.schema


def as_schema(given: str | Mapping[str, Any] | bool | Schema | None, format: str) -> Schema | None:
    """Return a schema that was given as a text, as parsed JSON or as a Schema.  Raises Invalid."""
    if given is None or isinstance(given, Schema):
        if given is not None and given.format != format:
            raise Invalid(f"the schema is of the format {given.format}, not {format}")
        return given
    try:
        return Schema(given if isinstance(given, str) else json.dumps(given), format)
    except (TypeError, ValueError):
        raise Invalid("a schema is a text of JSON, parsed JSON, or a Schema") from None


def _converted(convert: Callable[[Any], T], value: Any) -> T:
    try:
        return convert(value)
    except Exception as error:  # a function of the user
        raise Invalid(f"from_dict fails: {_shown(error)}") from error


def _parsed_unless_referring(schema: Schema | None) -> _Parsed | None:
    return None if schema is None or schema.references else _parsed(schema, {})


def _parsed(schema: Schema, references: Mapping[str, Schema]) -> _Parsed:
    """Parse a schema, which may come from outside.  Raises Invalid, MissingExtra."""
    require("registry", "Avro")
    import fastavro

    found = parse_avro(schema.text, {name: one.text for name, one in references.items()})
    shape = shape_of(found.root)
    name = found.root.name or found.root.kind
    if shape.levels > MAX_AVRO_LEVELS:
        raise Invalid(f"the Avro schema {name} has more than {MAX_AVRO_LEVELS} types within each other")
    if shape.array_of_nothing:
        raise Invalid(
            f"the Avro schema {name} has an array whose items take no bytes, so that no data bound its length"
        )
    read, write = fastavro.schemaless_reader, fastavro.schemaless_writer
    if shape.recursive:
        # In Python: too many levels raise an error there, and end the process in C.
        from fastavro._read_py import schemaless_reader as read
        from fastavro._write_py import schemaless_writer as write
    try:
        parsed = fastavro.parse_schema(json.loads(whole_text(found)))
    except Exception as error:  # fastavro raises several kinds
        raise Invalid(f"fastavro cannot use the Avro schema {name}: {_shown(error)}") from None
    return _Parsed(parsed, name, read, write, _integers(found.root))


def _integers(root: AvroType) -> tuple[tuple[str, int, int], ...] | None:
    """Return the integers among a record's fields with their ranges; None when there are any deeper inside.

    fastavro writes 1.5 as 1, and integers beyond the range of their type.  Branches of unions are checked by it."""
    if root.kind != "record":
        return () if root.kind not in _RANGES else None
    found = []
    for one, kind in zip(root.fields, root.children, strict=True):
        if kind.kind in _RANGES and "logicalType" not in kind.properties:
            found.append((one.name, *_RANGES[kind.kind]))
        elif kind.kind in ("record", "array", "map"):
            return None
    return tuple(found)


def _integer_check(parsed: _Parsed) -> Callable[[Any], bool]:
    """Return a quick test of a datum's integers; False: `_misfit` must look closer."""
    integers = parsed.integers
    if integers is None:
        from fastavro.validation import validate

        return lambda datum: bool(validate(datum, parsed.schema, raise_errors=False))

    def fits(datum: Any) -> bool:
        for name, least, most in integers:
            value = datum.get(name)
            if value.__class__ is not int or not least <= value <= most:
                return False
        return True

    return fits


def _misfit(datum: Any, schema: Any) -> str:
    """Return which fields of a datum do not fit a schema; "" when fastavro finds none."""
    from fastavro.validation import ValidationError, validate

    try:
        validate(datum, schema)
    except ValidationError as error:
        return cut_text("; ".join(" ".join(str(one).split()) for one in error.errors), _SHOWN)
    except Exception:  # a datum of a strange shape, whose own error says more
        return ""
    return ""


def _shown(error: Exception) -> str:
    return cut_text(" ".join(f"{type(error).__name__}: {error}".split()), _SHOWN)
