"""Serializers bound to one stream: which header its events have, and what the registry says.

What is here blocks when there is a registry: asyncio's side calls it on a thread, once when a writer is opened, and
once for each id that a reader meets.  Encoding and decoding themselves ask nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from sarit.core.errors import Invalid, NotFound
from sarit.core.properties import CONFLUENT, NO_HEADER, PRAVEGA, SCHEMA_HEADER
from sarit.serializers.codecs import check_codec, decompressed
from sarit.serializers.headers import confluent_header, confluent_id, default_subject, pravega_header, pravega_id
from sarit.serializers.known_readers import KnownReaders, NoReader
from sarit.serializers.limits import COMMON_SCHEMAS, HEADER_BYTES
from sarit.serializers.pravega_registry import PravegaRegistry
from sarit.serializers.protocols import SchemaNeeded
from sarit.serializers.registry_client import RegistryClient
from sarit.serializers.schema import PROTOBUF

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.core.names import StreamName
    from sarit.env.ports import Clock
    from sarit.serializers.protocols import Deserializer, Serializer
    from sarit.serializers.schema import Schema

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Registration:
    """How a serializer uses a registry.  `subject`: a name, or a function of the stream; None: SCOPE.STREAM.

    `auto_register`: add the schema when a writer is opened; otherwise it must be there.  `use_latest`: write with the
    subject's latest schema instead.  `normalize`: as of `RegistryClient.register`."""

    registry: RegistryClient | PravegaRegistry
    subject: str | Callable[[StreamName], str] | None = None
    auto_register: bool = True
    use_latest: bool = False
    normalize: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.registry, RegistryClient | PravegaRegistry):
            raise Invalid("registry is a RegistryClient or a PravegaRegistry")

    def subject_of(self, stream: StreamName) -> str:
        """Return the subject (or group) of a stream."""
        if self.subject is None:
            return default_subject(stream)
        return self.subject if isinstance(self.subject, str) else self.subject(stream)


def registration(
    registry: RegistryClient | PravegaRegistry | None,
    subject: str | Callable[[StreamName], str] | None,
    *,
    auto_register: bool = True,
    use_latest: bool = False,
    normalize: bool = False,
) -> Registration | None:
    """Return how a serializer uses a registry; None: it has none.  Raises Invalid for options without a registry."""
    if registry is None:
        if subject is not None or use_latest or normalize:
            raise Invalid("subject, use_latest and normalize are of a registry: give one, as registry=RegistryClient()")
        return None
    return Registration(registry, subject, auto_register and not use_latest, use_latest, normalize)


class Written(NamedTuple):
    """The schema that an event was, or is to be, written with.

    `references`: the schemas that it uses, a used one before its users.  `type`: the name of the record or message,
    where the registry gives it.  `header`: of the events.  `padded`: zeros may follow the payload."""

    schema: Schema
    references: Mapping[str, Schema]
    header: str
    type: str = ""
    padded: bool = False


@runtime_checkable
class SchemaSerializer(Protocol):
    """A serializer that knows its schema, and may register it.

    `indexes`: those of a Protobuf message, None for other formats.  `type_name`: of the record or message."""

    registration: Registration | None
    indexes: Sequence[int] | None

    @property
    def type_name(self) -> str:
        """The name of the record or message."""

    def own_schema(self, use: Registration | None) -> Schema | None:
        """Return its schema as the registry takes it, after those that it refers to; None: it has none."""

    def encoder(self, header: bytes, written: Written | None) -> Callable[[Any], bytes]:
        """Return a function from values to events that begin with `header`; `written`: None: its own schema."""


@runtime_checkable
class SchemaDeserializer(Protocol):
    """A deserializer that may get schemas from a registry."""

    registration: Registration | None

    def decoder(self, written: Written | None) -> Callable[[bytes, int], Any]:
        """Return a function from an event, and where its payload begins, to a value; `written`: None: its own schema.

        With Confluent's header a Protobuf payload begins with its message indexes."""


def asks_registry(serializer: object) -> bool:
    """Return whether binding a serializer, or a deserializer, may ask a registry, which blocks."""
    return getattr(serializer, "registration", None) is not None


def bound_encoder(serializer: Serializer[T], stream: StreamName, properties: Mapping[str, str]) -> Callable[[T], bytes]:
    """Return a function from values to events of a stream, whose properties say which header they have.

    Registers or looks up the schema.  Raises Invalid (the registry and the header do not go together), Conflict (the
    registry refuses the schema), and what its calls raise."""
    if not isinstance(serializer, SchemaSerializer):
        return serializer.serialize
    use = serializer.registration
    header = _header(use, stream, properties)
    if use is None:
        return serializer.encoder(b"", None)
    subject = use.subject_of(stream)
    if isinstance(use.registry, PravegaRegistry):
        group_schema = _pravega_schema(serializer, use, use.registry, subject)
        number = use.registry.register(subject, group_schema, serializer.type_name, add=use.auto_register)
        return serializer.encoder(pravega_header(number), Written(group_schema, {}, header, serializer.type_name))
    registry = use.registry
    if use.use_latest:
        latest = registry.latest(subject)
        number, schema = latest.id, latest.schema
    else:
        schema = _own(serializer, use)
        if use.auto_register:
            number = registry.register(subject, schema, normalize=use.normalize)
        else:
            number = registry.lookup(subject, schema, normalize=use.normalize).id
    written = Written(schema, registry.referenced(schema), header, serializer.type_name)
    return serializer.encoder(confluent_header(number, serializer.indexes), written)


def _pravega_schema(serializer: SchemaSerializer, use: Registration, registry: PravegaRegistry, group: str) -> Schema:
    return registry.latest(group, serializer.type_name) if use.use_latest else _own(serializer, use)


def _own(serializer: SchemaSerializer, use: Registration) -> Schema:
    schema = serializer.own_schema(use)
    if schema is None:
        raise Invalid("the serializer has no schema to register: give it one, or use_latest=True")
    return schema


def _header(use: Registration | None, stream: StreamName, properties: Mapping[str, str]) -> str:
    """Return the header of a stream's events.  Raises Invalid when the registry is of another one."""
    stated = properties.get(SCHEMA_HEADER)
    wanted = NO_HEADER if use is None else use.registry.header
    if stated in (None, wanted):
        return wanted
    said = f"the property {SCHEMA_HEADER} of {stream} is {stated}"
    if use is None:
        raise Invalid(f"{said}: its events begin with an id of a schema, so give the (de)serializer a registry")
    if stated == NO_HEADER:
        raise Invalid(
            f"{said}: leave the registry out, or change the property with --property {SCHEMA_HEADER}={wanted}"
        )
    kind = "a PravegaRegistry" if stated == PRAVEGA else "a RegistryClient"
    raise Invalid(f"{said}: give the (de)serializer {kind}, which knows the ids of that header")


class StreamDecoder(Generic[T]):
    """Decodes the events of one stream.

    `decode` asks nobody: it raises SchemaNeeded for an id that it does not know, whose schema `fetch` gets."""

    def __init__(
        self, deserializer: Deserializer[T], stream: StreamName, properties: Mapping[str, str], clock: Clock
    ) -> None:
        self._known = KnownReaders[Callable[[bytes, int], T]](clock)
        # The readers of the few schemas that most events have, each found at the cost of a dictionary.
        self._common: dict[int, Callable[[bytes, int], T]] = {}
        self._deserializer = deserializer
        self._group = ""
        self._id_of: Callable[[bytes], int] | None = None
        if not isinstance(deserializer, SchemaDeserializer):
            self.decode: Callable[[bytes], T] = deserializer.deserialize
            return
        self._use = deserializer.registration
        header = _header(self._use, stream, properties)
        if self._use is None:
            decode = deserializer.decoder(None)
            self.decode = lambda event: decode(event, 0)
            return
        self._group = self._use.subject_of(stream)
        self._id_of = confluent_id if header == CONFLUENT else pravega_id
        self.decode = self._decode_by_id

    def __repr__(self) -> str:
        return f"StreamDecoder({type(self._deserializer).__name__}, {self._known!r})"

    def schema_id(self, event: bytes) -> int | None:
        """Return the id that an event's header names; None: it has no header, or another one."""
        try:
            return None if self._id_of is None else self._id_of(event)
        except Invalid:
            return None

    def _decode_by_id(self, event: bytes) -> T:
        assert self._id_of is not None
        number = self._id_of(event)
        decode = self._common.get(number) or self._decode_of(number)
        return decode(event, HEADER_BYTES)

    def _decode_of(self, number: int) -> Callable[[bytes, int], T]:
        found = self._known.get(number)
        if found is None:
            raise SchemaNeeded(number)
        if isinstance(found, NoReader):
            raise Invalid(found.why)
        if len(self._common) >= COMMON_SCHEMAS:
            self._common.clear()
        self._common[number] = found
        return found

    def fetch(self, number: int) -> None:
        """Get the schema of an id from the registry.  Blocks.

        An id that the registry does not know, or whose schema cannot be used, is remembered for a while: `decode`
        raises Invalid for its events.  Raises what the registry's calls raise, but for NotFound."""
        try:
            written, codec = self._written(number)
        except NotFound as error:
            self._known.add_missing(number, str(error))
            return
        try:
            self._known.add(number, self._decoder(written, codec))
        except Invalid as error:
            self._known.add_missing(number, str(error))

    def _written(self, number: int) -> tuple[Written, str]:
        """Return what the registry says of an id, and the codec."""
        assert self._use is not None
        registry = self._use.registry
        if isinstance(registry, RegistryClient):
            schema = registry.schema_by_id(number)
            if schema.format == PROTOBUF:
                # Registries show .proto files, in which the place of a message is not to be found without a parser.
                with suppress(Invalid):  # an older one has no other format
                    schema = registry.schema_by_id(number, format="serialized")
            return Written(schema, registry.referenced(schema), CONFLUENT), ""
        found = registry.encoding(self._group, number)
        return Written(found.schema, {}, PRAVEGA, found.type, padded=bool(found.codec)), found.codec

    def _decoder(self, written: Written, codec: str) -> Callable[[bytes, int], T]:
        assert isinstance(self._deserializer, SchemaDeserializer)
        check_codec(codec)
        decode = self._deserializer.decoder(written)
        return _decompressed(decode) if codec else decode


def _decompressed(decode: Callable[[bytes, int], T]) -> Callable[[bytes, int], T]:
    return lambda event, at: decode(decompressed(event[at:]), 0)


__all__ = [
    "Registration",
    "SchemaDeserializer",
    "SchemaSerializer",
    "StreamDecoder",
    "Written",
    "asks_registry",
    "bound_encoder",
    "registration",
]
