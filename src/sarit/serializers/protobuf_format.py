"""Serializers of Protobuf: one message an event, of a class that protoc has generated."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError, EncodeError, Message

from sarit.core.errors import Invalid
from sarit.core.properties import CONFLUENT
from sarit.serializers.headers import parse_message_indexes
from sarit.serializers.pravega_registry import PravegaRegistry
from sarit.serializers.registration import Registration, registration
from sarit.serializers.schema import PROTOBUF, Schema, SchemaReference

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import FileDescriptor

    from sarit.core.names import StreamName
    from sarit.serializers.registration import Written
    from sarit.serializers.registry_client import RegistryClient

M = TypeVar("M", bound=Message)

# Files that each registry knows by itself.
_BUILT_IN: Final = ("google/protobuf/", "google/type/", "confluent/")


class ProtobufSerializer(Generic[M]):
    """Encodes messages of one class.

    Its schema is the .proto file of the class; files that it imports are registered under their own names.
    `registry`, `subject` and the options: see `Registration`."""

    def __init__(
        self,
        message_class: type[M],
        *,
        registry: RegistryClient | PravegaRegistry | None = None,
        subject: str | Callable[[StreamName], str] | None = None,
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
    ) -> None:
        self._class = _checked(message_class)
        self._descriptor: Any = message_class.DESCRIPTOR
        self.indexes = _indexes_of(self._descriptor)
        self.registration = registration(
            registry, subject, auto_register=auto_register, use_latest=use_latest, normalize=normalize
        )
        self._encode = self.encoder(b"", None)

    def __repr__(self) -> str:
        return f"ProtobufSerializer({self.type_name})"

    @property
    def type_name(self) -> str:
        """The full name of the message."""
        return str(self._descriptor.full_name)

    def own_schema(self, use: Registration | None) -> Schema | None:
        """Return the schema of the message's file, after those of the files that it imports."""
        file = self._descriptor.file
        if use is not None and isinstance(use.registry, PravegaRegistry):
            files = FileDescriptorSet()
            _add_files(file, files, set())
            return Schema(base64.b64encode(files.SerializeToString()).decode(), PROTOBUF)
        return _file_schema(file, () if use is None else _registered_imports(file, use))

    def serialize(self, value: M) -> bytes:
        """Return a message's bytes, without a header.  Raises Invalid for one of another class, or not complete."""
        return self._encode(value)

    def encoder(self, header: bytes, written: Written | None) -> Callable[[M], bytes]:
        """Return a function from messages to events that begin with `header`."""
        expected, name = self._class, self.type_name

        def encode(value: M) -> bytes:
            if not isinstance(value, expected):
                raise Invalid(f"the value is a {type(value).__name__}, not a message {name}")
            try:
                return header + value.SerializeToString()
            except EncodeError as error:
                raise Invalid(f"the message {name} is not complete: {error}") from None

        return encode


class ProtobufDeserializer(Generic[M]):
    """Decodes messages of one class.

    `registry`: the header of an event names its message, which must be the one of the class.  `subject`: the group of
    a PravegaRegistry, as of `Registration`."""

    def __init__(
        self,
        message_class: type[M],
        *,
        registry: RegistryClient | PravegaRegistry | None = None,
        subject: str | Callable[[StreamName], str] | None = None,
    ) -> None:
        self._class = _checked(message_class)
        self._name = str(message_class.DESCRIPTOR.full_name)
        self.registration = registration(registry, subject)
        self._decode = self.decoder(None)

    def __repr__(self) -> str:
        return f"ProtobufDeserializer({self._name})"

    def deserialize(self, payload: bytes) -> M:
        """Return the message of bytes without a header.  Raises Invalid for what is no message of the class."""
        return self._decode(payload, 0)

    def decoder(self, written: Written | None) -> Callable[[bytes, int], M]:
        """Return a function from an event, and where its message indexes or its message begins, to the message."""
        message_class, name = self._class, self._name
        if written is not None and written.schema.format != PROTOBUF:
            raise Invalid(f"its schema is of the format {written.schema.format}, not {PROTOBUF}")
        if written is not None and written.type and written.type != name:
            raise Invalid(f"it is a message {written.type}, not {name}")

        def decode(event: bytes, at: int) -> M:
            try:
                return message_class.FromString(event[at:])
            except DecodeError as error:
                raise Invalid(f"it is no message {name}: {error}") from None

        if written is None or written.header != CONFLUENT:
            return decode
        file = _parsed_file(written.schema.text)
        names: dict[tuple[int, ...], str] = {}

        def decode_by_indexes(event: bytes, at: int) -> M:
            indexes, at = parse_message_indexes(event, at)
            if file is not None:
                if (found := names.get(indexes)) is None:
                    found = names[indexes] = _name_at(file, indexes)
                if found != name:
                    raise Invalid(f"it is a message {found}, not {name}")
            return decode(event, at)

        return decode_by_indexes


def _checked(message_class: type[M]) -> type[M]:
    if not isinstance(message_class, type) or not issubclass(message_class, Message):
        raise Invalid("give the class of a Protobuf message, as protoc generates it")
    return message_class


def _indexes_of(descriptor: Any) -> tuple[int, ...]:
    """Return the place of a message in its file: among those of the file or of the message around it, outermost
    first."""
    found: list[int] = []
    one = descriptor
    while one is not None:
        outer = one.containing_type
        siblings = outer.nested_types if outer is not None else list(one.file.message_types_by_name.values())
        found.append(next(at for at, sibling in enumerate(siblings) if sibling.full_name == one.full_name))
        one = outer
    return tuple(reversed(found))


def _name_at(file: FileDescriptorProto, indexes: tuple[int, ...]) -> str:
    """Return the full name of the message at a place.  Raises Invalid: there is none."""
    messages: Any = file.message_type
    names = [file.package] if file.package else []
    for index in indexes:
        if index >= len(messages):
            raise Invalid(f"its schema has no message at {list(indexes)}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def _parsed_file(text: str) -> FileDescriptorProto | None:
    """Return the descriptor in a schema's text; None: the text is a .proto file, whose messages are not resolved."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (DecodeError, binascii.Error, ValueError):
        return None
    return file if file.message_type else None


def _is_built_in(file: FileDescriptor) -> bool:
    return str(file.name).startswith(_BUILT_IN)


def _file_schema(file: FileDescriptor, references: tuple[SchemaReference, ...]) -> Schema:
    return Schema(base64.b64encode(file.serialized_pb).decode(), PROTOBUF, references)


def _registered_imports(file: FileDescriptor, use: Registration) -> tuple[SchemaReference, ...]:
    """Register the files that a file imports, each under its name, or look them up.  Blocks."""
    assert not isinstance(use.registry, PravegaRegistry)
    found = []
    for one in file.dependencies:
        if not _is_built_in(one):
            schema = _file_schema(one, _registered_imports(one, use))
            if use.auto_register:
                use.registry.register(one.name, schema, normalize=use.normalize)
            version = use.registry.lookup(one.name, schema, normalize=use.normalize).version
            found.append(SchemaReference(one.name, one.name, version))
    return tuple(found)


def _add_files(file: FileDescriptor, files: FileDescriptorSet, names: set[str]) -> None:
    """Add a file after those that it imports."""
    if file.name not in names:
        names.add(file.name)
        for one in file.dependencies:
            _add_files(one, files, names)
        file.CopyToProto(files.file.add())
