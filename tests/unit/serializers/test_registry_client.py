"""The clients of schema registries, on a registry in memory that is reached over HTTP."""

from __future__ import annotations

import base64
import json

import pytest

from sarit.core.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated, Unavailable, Unreachable
from sarit.serializers.pravega_registry import Encoding, PravegaRegistry
from sarit.serializers.registry_client import RegistryClient
from sarit.serializers.schema import Schema, SchemaReference
from tests.unit.serializers.fake_registry import FakeRegistry, served

TEXT = '{"type": "record", "name": "Order", "fields": []}'
ORDER = Schema(TEXT)


@pytest.fixture
def fake():
    with served() as fake:
        yield fake


@pytest.fixture
def registry(fake):
    return RegistryClient(fake.url)


def test_schema_is_registered_and_found(registry):
    number = registry.register("shop.orders", ORDER)
    assert registry.schema_by_id(number) == ORDER
    found = registry.latest("shop.orders")
    assert (found.subject, found.version, found.id, found.schema) == ("shop.orders", 1, number, ORDER)
    assert registry.lookup("shop.orders", ORDER) == found
    assert registry.version("shop.orders", 1) == found
    assert registry.versions("shop.orders") == [1]
    assert registry.subjects() == registry.subjects("shop.") == ["shop.orders"]
    assert registry.subjects("other") == []


def test_each_question_is_asked_once(registry, fake):
    number = registry.register("s", ORDER)
    assert registry.register("s", ORDER) == number
    registry.schema_by_id(number)
    registry.schema_by_id(number)
    assert [method for method, _ in fake.requests] == ["POST", "GET"]
    registry.delete("s")
    registry.register("s", ORDER)
    assert [method for method, _ in fake.requests] == ["POST", "GET", "DELETE", "POST"]


def test_formats_and_references_are_sent_and_come_back(registry, fake):
    registry.register("money", Schema("{}", "json"))
    schema = Schema("{}", "JSON", [SchemaReference("money.json", "money", 1)])
    assert registry.schema_by_id(registry.register("s", schema)) == schema
    assert registry.referenced(schema) == {"money.json": Schema("{}", "JSON")}


def test_circle_of_references_is_refused(registry, fake):
    circle = SchemaReference("a", "s", 1)
    fake.register("s", {"schema": "{}", "references": [{"name": "a", "subject": "s", "version": 1}]})
    with pytest.raises(Invalid, match="refer to each other in a circle, at a"):
        registry.referenced(Schema("{}", "AVRO", (circle,)))


def test_one_name_with_two_meanings_is_refused(registry, fake):
    fake.register("s", {"schema": "1"})
    fake.register("t", {"schema": "2"})
    schema = Schema("{}", "AVRO", (SchemaReference("a", "s", 1), SchemaReference("a", "t", 1)))
    with pytest.raises(Invalid, match="two versions of a"):
        registry.referenced(schema)


def test_names_of_subjects_may_have_any_character(registry, fake):
    name = ":.shop:a/b c?d#e%ü"
    registry.register(name, ORDER)
    assert registry.versions(name) == [1]
    assert list(fake.subjects) == [name]


def test_compatibility_is_checked_and_set(registry):
    registry.register("s", ORDER)
    assert registry.check("s", ORDER) == []
    assert registry.check("s", Schema("incompatible"), "all") == ["field a was removed"]
    assert registry.compatibility() == registry.compatibility("s") == "BACKWARD"
    registry.set_compatibility("FULL", "s")
    assert registry.compatibility("s") == "FULL"
    registry.set_compatibility(None, "s")
    assert registry.compatibility("s") == "BACKWARD"


def test_versions_and_subjects_are_deleted(registry):
    registry.register("s", ORDER)
    registry.register("s", Schema("{}"))
    assert registry.delete("s", 1) == [1]
    assert registry.delete("s", permanent=True) == [1, 2]
    with pytest.raises(NotFound, match=r"Subject 's' not found\. \(40401\)"):
        registry.versions("s")


def test_errors_say_what_to_do(registry):
    with pytest.raises(Conflict, match="incompatible with earlier ones: .*; field a was removed; field b"):
        registry.register("s", Schema("incompatible"))
    with pytest.raises(Invalid, match=r"Invalid schema \(42201\)"):
        registry.register("s", Schema("broken"))
    with pytest.raises(NotFound, match=r"\(40403\)"):
        registry.schema_by_id(99)


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (401, b"", Unauthenticated, "log in: give the registry's client"),
        (403, b'{"error_code": 40301, "message": "no"}', Forbidden, r"no \(40301\); ask its administrator"),
        (404, b"<html>", Invalid, "is it the URL of a schema registry"),
        (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}', Invalid, "is it the URL of a schema registry"),
        (400, b'{"error": "no Avro"}', Invalid, "refuses the request: no Avro"),
        (404, b'{"error_code": 40403, "message": "gone"}', NotFound, r"gone \(40403\)"),
        (429, b"", Unavailable, "busy"),
        (500, b'{"error_code": 50001, "message": "store"}', Unavailable, r"fails: store \(50001\); try again later"),
        (302, b"", Invalid, "refuses the request"),
        (418, b'{"error_code": "x", "message": 7}', Invalid, r"\(418\)"),
        (200, b"<html>", Unavailable, "no JSON.*is it a registry"),
        (200, b"[" * 100_000, Unavailable, "no JSON"),
        (200, b'{"id": true}', Unavailable, "has no id: is it a schema registry"),
        (200, b"[]", Unavailable, "has no id"),
        (200, b"x" * (8 * 1024 * 1024 + 1), Unreachable, "more than 8388608 bytes"),
        (500, b'{"message": "' + b"\\u001b" * 10_000 + b'"}', Unavailable, r"characters more\) \(500\)"),
    ],
)
def test_any_answer_is_one_clear_error(registry, fake, status, body, kind, message):
    fake.raw = status, body
    with pytest.raises(kind, match=message) as found:
        registry.register("s", ORDER)
    assert len(str(found.value)) < 1500
    assert str(found.value).isprintable()


@pytest.mark.parametrize(
    "body", [{"schema": 1}, {"schema": "", "schemaType": 2}, {"schema": "", "references": {"a": 1}}]
)
def test_answers_that_are_no_schemas_are_refused(registry, fake, body):
    fake.raw = 200, json.dumps(body).encode()
    with pytest.raises(Unavailable, match="is it a schema registry"):
        registry.schema_by_id(1)


def test_registry_that_is_away_is_named():
    with served() as fake:
        url = fake.url
    with pytest.raises(Unreachable, match=f"the schema registry at {url} does not answer"):
        RegistryClient(url).subjects()


def test_credentials_are_sent_to_this_machine_or_over_tls(fake):
    RegistryClient(fake.url, user="ann", password="x").subjects()
    assert fake.seen_authorization == "Basic " + base64.b64encode(b"ann:x").decode()
    RegistryClient(fake.url, token=lambda: "abc").subjects()
    assert fake.seen_authorization == "Bearer abc"
    RegistryClient("http://registry.example:8081")
    RegistryClient("https://registry.example:8081", user="ann", password="x")
    for given in ({"user": "ann", "password": "x"}, {"token": "abc"}):
        with pytest.raises(Invalid, match="not protected on its way"):
            RegistryClient("http://registry.example:8081", **given)


@pytest.mark.parametrize(
    "given",
    [
        {"url": "registry:8081"},
        {"url": "http://ann:x@h"},
        {"url": "http://h", "user": "ann"},
        {"url": "https://h", "user": "ann", "password": "x", "token": "t"},
    ],
)
def test_wrong_settings_are_refused(given):
    with pytest.raises(Invalid):
        RegistryClient(**given)


# -- Pravega's API --------------------------------------------------------------------------------


def test_encoding_ids_are_of_a_group(fake):
    registry = PravegaRegistry(fake.url, namespace="ns")
    assert registry.register("g", ORDER, "Order") == 0
    assert registry.register("g", Schema(TEXT + " "), "Order") == 1
    assert registry.register("h", ORDER, "Order") == 0
    assert registry.encoding("g", 1) == Encoding(Schema(TEXT + " "), "Order", "")
    assert registry.latest("g", "Order") == Schema(TEXT + " ")
    assert set(fake.groups) == {("ns", "g"), ("ns", "h")}
    count = len(fake.requests)
    registry.register("g", ORDER, "Order")
    registry.encoding("g", 1)
    assert len(fake.requests) == count
    assert not registry.create_group("g", "AVRO")


def test_group_that_must_have_the_schema(fake):
    registry = PravegaRegistry(fake.url)
    with pytest.raises(NotFound):
        registry.register("g", ORDER, "Order", add=False)
    registry.create_group("g", "AVRO")
    with pytest.raises(NotFound):
        registry.register("g", ORDER, "Order", add=False)
    with pytest.raises(NotFound):
        registry.latest("g", "Order")
    with pytest.raises(NotFound):
        registry.encoding("g", 0)
    with pytest.raises(Conflict):
        registry.register("g", Schema("incompatible"), "Order")


def test_schema_data_of_protobuf_stays_bytes():
    fake = FakeRegistry()
    descriptor = base64.b64encode(b"\x0a\x01\xff").decode()
    with served(fake):
        registry = PravegaRegistry(fake.url)
        registry.register("g", Schema(descriptor, "PROTOBUF"), "Order")
        assert registry.encoding("g", 0).schema == Schema(descriptor, "PROTOBUF")
