"""Files that need no reference: the packages that bring them are the oracle."""

import importlib
import pkgutil
from pathlib import Path

import google.type
import pytest
from confluent_kafka import schema_registry
from google.protobuf import descriptor_pb2

from sarit.schemas.protobuf_definition import parse_protobuf
from sarit.schemas.protobuf_forms import normal_text
from tests.unit.schemas.protoc import in_base64

CONFLUENT = Path(schema_registry.__file__).parent
MODULES = (
    *(f"google.type.{one.name}" for one in pkgutil.iter_modules(google.type.__path__) if one.name.endswith("_pb2")),
    *(
        ".".join((schema_registry.__name__, *path.relative_to(CONFLUENT).with_suffix("").parts))
        for path in sorted(CONFLUENT.glob("confluent/**/*_pb2.py"))
    ),
)


def test_the_packages_have_files():
    assert len(MODULES) >= 19


@pytest.mark.parametrize("module", MODULES)
def test_file_has_the_types_that_its_package_has(module):
    theirs = importlib.import_module(module).DESCRIPTOR
    file = descriptor_pb2.FileDescriptorProto.FromString(theirs.serialized_pb)
    file.ClearField("options")
    ours = parse_protobuf(f'syntax = "proto3"; import "{theirs.name}";').files()[-2]
    assert ours.name == theirs.name
    assert normal_text(parse_protobuf(in_base64(ours))) == normal_text(parse_protobuf(in_base64(file)))


def test_reference_goes_before():
    name = "google/type/date.proto"
    given = 'syntax = "proto3"; package google.type; message Date { string day = 1; }'
    text = f'syntax = "proto3"; import "{name}"; message M {{ google.type.Date date = 1; }}'
    assert parse_protobuf(text).files()[0].message_type[0].field[0].name == "year"
    assert parse_protobuf(text, {name: given}).files()[0].message_type[0].field[0].name == "day"


def test_tags_of_confluent_are_options():
    head = 'syntax = "proto3"; import "confluent/meta.proto";'
    text = head + 'message M { string a = 1 [(confluent.field_meta).tags = "PII"]; }'
    assert '[(.confluent.field_meta) = { tags: "PII" }]' in normal_text(parse_protobuf(text))
