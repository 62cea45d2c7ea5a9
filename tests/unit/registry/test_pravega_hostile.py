"""Pravega's registry API against bodies and paths that nobody should send: an error each, never a failure."""

from __future__ import annotations

import base64

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sarit.registry.pravega.calls import CALLS
from tests.unit.registry.pravega_peer import Peer, info, record

SCHEMA = info("a.Person", record("a.Person", "name"))
WITH_BODY = [call for call in CALLS if call.body and "/namespace/" not in call.path]
NAMED = [call for call in CALLS if "{" in call.path]
FIELDS = st.sampled_from(
    ["type", "serializationFormat", "fullTypeName", "schemaData", "properties", "groupName", "groupProperties", "name",
     "compatibility", "previousCompatibility", "allowMultipleTypes", "policy", "advanced", "backwardPolicy",
     "forwardPolicy", "versionInfo", "id", "version", "codecType", "schemaInfo"]
)  # fmt: skip
KNOWN = st.sampled_from(
    ["Avro", "Protobuf", "Json", "Any", "Custom", "Advanced", "DenyAll", "BackwardTill", "Forward", ""]
)
LEAVES = (
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | KNOWN | st.text() | st.just(SCHEMA)
    | st.binary().map(lambda data: base64.b64encode(data).decode())
)  # fmt: skip
BODIES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=8))
EXAMPLES = settings(max_examples=150, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def peer():
    with Peer() as made:
        made.create("g", "Any", "AllowAny")
        made.add("g", SCHEMA)
        yield made


@EXAMPLES
@given(call=st.sampled_from(WITH_BODY), body=st.dictionaries(FIELDS, BODIES, max_size=8) | BODIES)
def test_any_body_is_answered(peer, call, body) -> None:
    path = call.path.format(group="g").removeprefix("/v1")
    answer = peer.ask(call.method, path, body) if body is not None else peer.ask(call.method, path, content=b"null")
    assert answer.status_code in (200, 201, 400, 404, 409, 412, 415, 417), answer.text
    if answer.status_code >= 400:
        assert len(answer.json()["error"]) < 1000
        assert answer.json()["error"].isascii()


@EXAMPLES
@given(call=st.sampled_from(NAMED), names=st.lists(st.binary(min_size=1, max_size=300), min_size=7, max_size=7))
def test_any_names_in_a_path_are_answered(peer, call, names) -> None:
    escaped = ["".join(f"%{byte:02x}" for byte in name) for name in names]
    keys = ("namespace", "group", "id", "format", "type", "version", "encoding")
    path = call.path.format(**dict(zip(keys, escaped, strict=True)))
    answer = peer._http.request(call.method, path, json=SCHEMA if call.body else None)
    assert answer.status_code in (200, 204, 400, 404), answer.text
    if answer.status_code >= 400:
        assert len(answer.json()["error"]) < 1000


def test_schema_of_the_largest_size_is_taken_and_a_larger_one_is_not(peer) -> None:
    def padded(size: int) -> dict:
        text = record("a.Large", "name")
        return info("a.Large", text[:-1] + ',"doc":"' + "x" * (size - len(text) - 9) + '"}')

    assert len(base64.b64decode(padded(1 << 20)["schemaData"])) == 1 << 20
    done = peer.add("g", padded((1 << 20) - 1000))
    shown = peer.get(f"/groups/g/schemas/schema/{done['id']}")
    assert len(shown["schemaData"]) > 1 << 20
    peer.add("g", padded((1 << 20) + 1), 400)
