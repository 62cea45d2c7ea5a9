"""Serializers of events: values to payloads and back, with a schema registry or without.

    from sarit.serializers import AvroSerializer, RegistryClient

    registry = RegistryClient("http://127.0.0.1:8081")
    with client.writer("shop/orders", serializer=AvroSerializer(SCHEMA, registry=registry)) as writer:
        writer.write({"id": 1})

Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from sarit.serializers.arrow_format import ArrowDeserializer, ArrowSerializer
    from sarit.serializers.avro_format import AvroDeserializer, AvroSerializer
    from sarit.serializers.bytes_format import BytesDeserializer, BytesSerializer
    from sarit.serializers.headers import default_subject
    from sarit.serializers.json_format import JsonDeserializer, JsonSerializer
    from sarit.serializers.pravega_registry import PravegaRegistry
    from sarit.serializers.protobuf_format import ProtobufDeserializer, ProtobufSerializer
    from sarit.serializers.protocols import Deserializer, Serializer, Undecodable
    from sarit.serializers.registration import Registration
    from sarit.serializers.registry_client import RegistryClient
    from sarit.serializers.schema import Schema, SchemaReference, SchemaVersion

_HOMES = {
    "arrow_format": ("ArrowDeserializer", "ArrowSerializer"),
    "avro_format": ("AvroDeserializer", "AvroSerializer"),
    "bytes_format": ("BytesDeserializer", "BytesSerializer"),
    "headers": ("default_subject",),
    "json_format": ("JsonDeserializer", "JsonSerializer"),
    "pravega_registry": ("PravegaRegistry",),
    "protobuf_format": ("ProtobufDeserializer", "ProtobufSerializer"),
    "protocols": ("Deserializer", "Serializer", "Undecodable"),
    "registration": ("Registration",),
    "registry_client": ("RegistryClient",),
    "schema": ("Schema", "SchemaReference", "SchemaVersion"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ArrowDeserializer",
    "ArrowSerializer",
    "AvroDeserializer",
    "AvroSerializer",
    "BytesDeserializer",
    "BytesSerializer",
    "Deserializer",
    "JsonDeserializer",
    "JsonSerializer",
    "PravegaRegistry",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Registration",
    "RegistryClient",
    "Schema",
    "SchemaReference",
    "SchemaVersion",
    "Serializer",
    "Undecodable",
    "default_subject",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOME_OF:
        raise AttributeError(f"module 'sarit.serializers' has no attribute {name}")
    found = getattr(import_module(f"sarit.serializers.{_HOME_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
