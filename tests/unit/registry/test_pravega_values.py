"""Bodies of Pravega's registry API: what is read of them, and what is refused."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.errors import Conflict, Corrupt, Exists, Forbidden, Invalid, NotFound, Unauthenticated, Unavailable
from sarit.registry.errors import BadSchema, Full, Incompatible, Missing, NotThere, PolicyChanged, ReadOnly, WrongKind
from sarit.registry.pravega.calls import CALLS
from sarit.registry.pravega.face import status_of
from sarit.registry.pravega.fields import Fields
from sarit.registry.pravega.formats import (
    format_body,
    full_name,
    new_schema,
    read_format,
    read_schema,
    schema_data,
)
from sarit.registry.pravega.policies import (
    check_format,
    check_versions,
    policy_body,
    read_policy,
    shown_policy,
    versions_of,
)
from sarit.registry.values import Mode, NewSchema, Schema, Settings
from sarit.schemas.compatibility import Level, Policy, PolicyName, Span, Till, policy_of
from sarit.schemas.definitions import Kind

PERSON = {"type": "record", "name": "Person", "namespace": "a.b", "fields": [{"name": "age", "type": "int"}]}
PERSON_TEXT = json.dumps(PERSON)


def info(type_name: str, format_name: str, data: bytes, **more) -> dict:
    return {
        "type": type_name,
        "serializationFormat": {"serializationFormat": format_name},
        "schemaData": base64.b64encode(data).decode(),
        **more,
    }


def new(type_name: str, format_name: str, data: bytes) -> NewSchema:
    return new_schema(read_schema(Fields(info(type_name, format_name, data))))


# -- fields -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "the body is a list: give an object"),
        (None, "the body is null: give an object"),
        ("x", "the body is 'x': give an object"),
        ({}, "serializationFormat is missing"),
        ({"serializationFormat": "Avro"}, "serializationFormat is 'Avro': give an object"),
        ({"serializationFormat": {}}, "serializationFormat.serializationFormat is missing"),
        ({"serializationFormat": {"serializationFormat": "avro"}}, "is 'avro': give one of Avro, Protobuf, Json, Any,"),
        ({"serializationFormat": {"serializationFormat": 7}}, "serializationFormat is 7: give a text"),
        ({"serializationFormat": {"serializationFormat": "Custom"}}, "serializationFormat.fullTypeName is missing"),
        ({"serializationFormat": {"serializationFormat": "Custom", "fullTypeName": ""}}, "fullTypeName is ''"),
        ({"serializationFormat": {"serializationFormat": "Custom", "fullTypeName": "Protobuf"}}, "a name of its own"),
        (info("t", "Avro", b"") | {"type": None}, "type is missing"),
        (info("t", "Avro", b"") | {"type": {}}, "type is an object: give a text"),
        (info("t", "Avro", b"") | {"schemaData": "a"}, "schemaData is 'a': give base64"),
        (info("t", "Avro", b"") | {"schemaData": "a b="}, "give base64"),
        (info("t", "Avro", b"") | {"schemaData": "\u00e9"}, "schemaData is '\\xe9': give base64"),
        (info("t", "Avro", b"", properties=[]), "properties is a list: give an object"),
        (info("t", "Avro", b"", properties={"a\n": 1}), "properties.a\\n is 1: give a text"),
    ],
)  # fmt: skip
def test_wrong_schema_info_is_refused_with_its_place(body, message) -> None:
    with pytest.raises(Invalid) as error:
        read_schema(Fields(body))
    assert message in str(error.value)


def test_fields_that_nobody_knows_are_ignored_and_null_is_absent() -> None:
    given_schema = read_schema(Fields(info("t", "Json", b"{}", properties=None, more=[1])))
    assert (given_schema.type, given_schema.properties) == ("t", {})


def test_errors_stay_short() -> None:
    with pytest.raises(Invalid) as error:
        read_schema(Fields(info("t", "x" * 100_000, b"")))
    assert len(str(error.value)) < 300


NAMES = st.sampled_from(["type", "schemaData", "serializationFormat", "properties", "policy", "advanced", "x"])
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["Avro", "Advanced"])


@given(st.recursive(VALUES, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner)))
def test_any_body_is_read_or_refused(body) -> None:
    messages = []
    for read in (read_schema, read_policy, read_format):
        try:
            read(Fields(body))
        except Invalid as error:
            messages.append(str(error))
    assert all(message.isascii() and len(message) < 300 for message in messages)


@pytest.mark.parametrize("value", [-1, True, 1.5, "1", 1 << 31, None])
def test_number_is_a_java_int_from_0_on(value) -> None:
    with pytest.raises(Invalid):
        Fields({"id": value}).number("id")
    assert Fields({"id": (1 << 31) - 1}).number("id") == (1 << 31) - 1


# -- formats ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind", "name", "full"),
    [
        ({"serializationFormat": "Avro"}, Kind.AVRO, "", "Avro"),
        ({"serializationFormat": "Avro", "fullTypeName": "whatever"}, Kind.AVRO, "", "Avro"),
        ({"serializationFormat": "Json"}, Kind.JSON, "", "Json"),
        ({"serializationFormat": "Protobuf"}, Kind.PROTOBUF, "", "Protobuf"),
        ({"serializationFormat": "Any"}, None, "", "Any"),
        ({"serializationFormat": "Custom", "fullTypeName": "thrift"}, Kind.OPAQUE, "thrift", "thrift"),
    ],
)
def test_formats_come_back(body, kind, name, full) -> None:
    assert read_format(Fields(body)) == (kind, name)
    assert full_name(kind, name) == full
    shown = format_body(kind, name)
    assert shown == {"serializationFormat": body["serializationFormat"], "fullTypeName": full}
    assert read_format(Fields(shown)) == (kind, name)


@pytest.mark.parametrize("given_type", ["a.b.Person", "Person", ""])
def test_type_of_avro_is_the_name_of_its_record(given_type) -> None:
    assert new(given_type, "Avro", PERSON_TEXT.encode()) == NewSchema(Kind.AVRO, PERSON_TEXT, type="a.b.Person")


@pytest.mark.parametrize("given_type", ["a.c.Person", "b.Person", "Human", "a.b"])
def test_another_type_than_the_one_of_the_record_is_refused(given_type) -> None:
    with pytest.raises(BadSchema, match=r"the schema defines 'a\.b\.Person'"):
        new(given_type, "Avro", PERSON_TEXT.encode())


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ('"string"', {"string": "string", "": "string"}),
        ('{"type": "array", "items": "int"}', {"array": "array"}),
        (f'["null", {PERSON_TEXT}]', {"union": "union", "a.b.Person": "a.b.Person", "Person": "a.b.Person"}),
    ],
)  # fmt: skip
def test_types_without_a_name_are_called_as_in_java(text, types) -> None:
    for given_type, found in types.items():
        assert new(given_type, "Avro", text.encode()).type == found


@pytest.mark.parametrize("data", [b"", b"{}", b"{", b"\xff", b'{"type": "record"}', b"[" * 1000])
def test_malformed_avro_is_refused(data) -> None:
    with pytest.raises(BadSchema):
        new("", "Avro", data)


def test_json_keeps_the_type_that_it_is_given() -> None:
    assert new("any.Class$Inner", "Json", b'{"b": 1}') == NewSchema(Kind.JSON, '{"b": 1}', type="any.Class$Inner")
    with pytest.raises(BadSchema, match="byte 0"):
        new("t", "Json", b"\xff")


@given(st.binary())
def test_opaque_data_come_back_as_they_were(data) -> None:
    made = new("t", "Any", data)
    assert schema_data(Schema(1, made.kind, made.text), {}) == data


def test_whole_text_of_avro_is_shown_where_it_has_references() -> None:
    text = '{"type": "record", "name": "a.b.Team", "fields": [{"name": "lead", "type": "a.b.Person"}]}'
    shown = json.loads(schema_data(Schema(1, Kind.AVRO, text), {"a.b.Person": PERSON_TEXT}))
    assert shown["fields"][0]["type"]["fields"] == [{"name": "age", "type": "int"}]
    plain = schema_data(Schema(1, Kind.AVRO, PERSON_TEXT), {})
    assert plain.decode() == PERSON_TEXT


# -- policies ---------------------------------------------------------------------------------------

VERSION = {"type": "a.b.Person", "serializationFormat": "Avro", "version": 3, "id": 4}
SPANS = st.sampled_from([None, Span.LATEST, Span.EVERY, Till(5)])


def advanced(direction: str, span) -> dict:
    field = f"{direction.lower()}Policy"
    return {"policy": "Advanced", "advanced": {field: {field: span}}}


@given(backward=SPANS, forward=SPANS, name=st.sampled_from(list(PolicyName)))
def test_policies_come_back(backward, forward, name) -> None:
    try:
        policy = Policy(name, backward, forward)
    except Invalid:
        return
    body = json.loads(json.dumps(policy_body(policy, {5: VERSION})))
    assert read_policy(Fields(body)) == policy
    assert versions_of(policy) == ({5} if Till(5) in (backward, forward) else set())


def test_body_of_an_advanced_policy_is_the_one_of_pravega() -> None:
    policy = Policy(PolicyName.ADVANCED, Till(5), Span.EVERY)
    assert policy_body(policy, {5: VERSION}) == {
        "policy": "Advanced",
        "advanced": {
            "backwardPolicy": {"backwardPolicy": {"name": "BackwardTill", "versionInfo": VERSION}},
            "forwardPolicy": {"forwardPolicy": {"name": "ForwardTransitive"}},
        },
    }


def test_version_that_is_gone_is_shown_as_the_stricter_policy() -> None:
    body = policy_body(Policy(PolicyName.ADVANCED, Till(5)), {})
    assert read_policy(Fields(body)) == Policy(PolicyName.ADVANCED, Span.EVERY)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "policy is missing"),
        ({"policy": "backward"}, "policy is 'backward': give one of AllowAny"),
        ({"policy": "Advanced"}, "advanced is missing"),
        ({"policy": "Advanced", "advanced": {}}, "needs a backward or a forward policy"),
        (advanced("Backward", {"name": "Forward"}), "give one of Backward, BackwardTransitive, BackwardTill"),
        (advanced("Forward", {"name": "ForwardTill"}), "advanced.forwardPolicy.forwardPolicy.versionInfo is missing"),
        (advanced("Forward", {"name": "ForwardTill", "versionInfo": {"id": -1}}), "versionInfo.id is -1"),
        (advanced("Forward", None), "advanced.forwardPolicy.forwardPolicy is missing"),
    ],
)
def test_wrong_policy_is_refused(body, message) -> None:
    with pytest.raises(Invalid) as error:
        read_policy(Fields(body))
    assert message in str(error.value)


def test_policy_must_not_name_a_version_that_is_not_there() -> None:
    check_versions(Policy(PolicyName.ADVANCED, Till(2)), {1, 2})
    with pytest.raises(Invalid, match="the schema id 1,"):
        check_versions(Policy(PolicyName.ADVANCED, None, Till(2)), {1})


@pytest.mark.parametrize("kind", [None, *Kind])
@pytest.mark.parametrize("name", [PolicyName.ALLOW_ANY, PolicyName.DENY_ALL, PolicyName.FULL])
@pytest.mark.parametrize("is_new", [True, False])
def test_policies_that_compare_are_for_avro_alone(kind, name, is_new) -> None:
    allowed = name is not PolicyName.FULL or kind is Kind.AVRO or (kind is None and not is_new)
    try:
        check_format(Policy(name), kind, new=is_new)
    except Invalid:
        assert not allowed
    else:
        assert allowed


@pytest.mark.parametrize("mode", list(Mode))
def test_modes_other_than_readwrite_are_shown_as_deny_all(mode) -> None:
    shown = shown_policy(Settings(policy_of(Level.FULL), mode))
    assert shown.name is (PolicyName.FULL if mode is Mode.READWRITE else PolicyName.DENY_ALL)


# -- statuses and calls -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Invalid("x"), 400),
        (BadSchema("x"), 400),
        (Full("x"), 400),
        (Unauthenticated("x"), 401),
        (Forbidden("x"), 403),
        (NotFound("x"), 404),
        (NotThere(Missing.GROUP, "x"), 404),
        (NotThere(Missing.ENCODING, "x"), 404),
        (Exists("x"), 409),
        (Conflict("x"), 409),
        (Incompatible("x", ["why"]), 409),
        (ReadOnly("x"), 409),
        (PolicyChanged("x"), 409),
        (WrongKind("x", "type"), 409),
        (NotThere(Missing.CODEC, "x"), 412),
        (WrongKind("x", "kind"), 417),
        (Corrupt("x"), 500),
        (Unavailable("x"), 503),
    ],
)
def test_status_of_each_refusal(error, status) -> None:
    assert status_of(error) == status


def test_calls_of_groups_are_there_under_a_namespace_too() -> None:
    found = {(call.method, call.path): call.name for call in CALLS}
    assert len(found) == len(CALLS) == 42
    for (method, path), name in found.items():
        if path.startswith("/v1/groups"):
            assert found[method, f"/v1/namespace/{{namespace}}{path.removeprefix('/v1')}"] == name
