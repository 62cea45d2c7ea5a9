"""The texts of a Protobuf schema, its bytes, and the places of its messages."""

import base64

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from hypothesis import given

from sarit.core.errors import Invalid
from sarit.schemas.protobuf_definition import parse_protobuf
from sarit.schemas.protobuf_forms import (
    descriptor_set,
    message_at,
    message_indexes,
    message_names,
    normal_text,
    serialized,
)
from sarit.schemas.protobuf_schema import pool_of
from tests.unit.schemas.protobuf_drawings import schemas

TEXT = """// Orders.
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import public "shop/money.proto";
option java_package = "com.shop";
message Order {
  string id = 1 [json_name = "orderId"];
  map<string, Line> lines = 2;
  message Line { Money price = 1; repeated string notes = 2; reserved 5 to 7, 9; reserved "old"; }
  optional google.protobuf.Timestamp at = 3;
  oneof payer { string user = 4; string card = 5 [deprecated = true]; }
}
enum State { UNKNOWN = 0; PAID = 1; }
service Orders { rpc Put(stream Order) returns (Order.Line); }
"""
MONEY = 'syntax = "proto3"; package shop.v1; message Money { int64 units = 1; }'
NORMAL = """syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import public "shop/money.proto";
option java_package = "com.shop";
message Order {
  string id = 1 [json_name = "orderId"];
  map<string, .shop.v1.Order.Line> lines = 2;
  message Line {
    reserved 5 to 7;
    reserved 9;
    reserved "old";
    .shop.v1.Money price = 1;
    repeated string notes = 2;
  }
  optional .google.protobuf.Timestamp at = 3;
  oneof payer {
    string user = 4;
    string card = 5 [deprecated = true];
  }
}
enum State {
  UNKNOWN = 0;
  PAID = 1;
}
service Orders {
  rpc Put (stream .shop.v1.Order) returns (.shop.v1.Order.Line);
}
"""


def shop():
    return parse_protobuf(TEXT, {"shop/money.proto": MONEY})


def test_normal_text_is_the_schema_without_comments_and_short_names():
    assert normal_text(shop()) == NORMAL


def test_serialized_form_is_a_descriptor_in_base64():
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized(shop())))
    assert file.name == "default"
    assert list(file.dependency) == ["google/protobuf/timestamp.proto", "shop/money.proto"]
    assert [one.name for one in file.message_type] == ["Order"]


def test_descriptor_set_has_each_file_after_its_imports():
    found = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set(shop()))
    names = [one.name for one in found.file]
    assert sorted(names) == ["default", "google/protobuf/timestamp.proto", "shop/money.proto"]
    assert names[-1] == "default"
    pool = descriptor_pool.DescriptorPool()
    for one in found.file:
        pool.Add(one)
    assert pool.FindMessageTypeByName("shop.v1.Order").fields_by_name["lines"].number == 2


def test_messages_have_names_and_places():
    schema = shop()
    assert message_names(schema) == ["shop.v1.Order", "shop.v1.Order.Line"]
    # The entry of the map is declared before the line.
    assert message_indexes(schema, "shop.v1.Order.Line") == [0, 1]
    assert message_at(schema, [0, 1]) == "shop.v1.Order.Line"
    assert message_at(schema, [0]) == "shop.v1.Order"


@pytest.mark.parametrize(
    "name", ["", "Order", "shop.v1", "shop.v1.", "shop.v1.Order.", "shop.v1.State", "shop.v1.Money"]
)
def test_names_of_no_message_have_no_place(name):
    with pytest.raises(Invalid, match="has no message"):
        message_indexes(shop(), name)


@pytest.mark.parametrize("indexes", [[], [1], [-1], [0, 2], [0, -1], [0, 1, 0], [1 << 40]])
def test_places_of_no_message_are_refused(indexes):
    with pytest.raises(Invalid):
        message_at(shop(), indexes)


@given(schemas())
def test_drawn_messages_have_the_places_that_the_library_gives_them(text):
    schema = parse_protobuf(text)
    pool = pool_of(schema)
    for name in message_names(schema):
        indexes = message_indexes(schema, name)
        assert message_at(schema, indexes) == name
        inner = pool.FindMessageTypeByName(name)
        expected = []
        while inner is not None:
            outer = inner.containing_type
            around = outer.nested_types if outer else list(inner.file.message_types_by_name.values())
            expected.insert(0, [one.full_name for one in around].index(inner.full_name))
            inner = outer
        assert indexes == expected


def test_nothing_of_a_schema_is_in_the_default_pool():
    shop()
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("shop.v1.Order")
