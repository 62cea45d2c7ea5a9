"""Pravega's registry API: each call with its statuses."""

from __future__ import annotations

import base64
import json

import pytest

from sarit.registry.values import GroupName, Mode, NewSchema, Reference
from sarit.schemas.compatibility import Level, Policy, PolicyName, Span, Till, policy_of
from sarit.schemas.definitions import Kind
from tests.unit.registry.pravega_peer import Peer, group_request, info, record

PERSON = record("a.Person", "name")
PERSON_2 = record("a.Person", "name", city="")
OTHER = record("a.Person", "name", "height")
PET = record("a.Pet", "name")


@pytest.fixture
def peer():
    with Peer() as made:
        yield made


@pytest.fixture
def avro(peer):
    """A peer with a group `g` of Avro."""
    peer.create("g")
    return peer


def version(number: int, id: int, type_name: str = "a.Person") -> dict:
    return {"type": type_name, "serializationFormat": "Avro", "version": number, "id": id}


def text_of(schema_info: dict) -> dict:
    return json.loads(base64.b64decode(schema_info["schemaData"]))


# -- groups -----------------------------------------------------------------------------------------


def test_ping(peer) -> None:
    assert peer._http.get("/ping").status_code == 200


def test_group_is_created_once_and_shown(peer) -> None:
    peer.create("g", "Json", "AllowAny", many=False)
    assert peer.get("/groups/g") == {
        "serializationFormat": {"serializationFormat": "Json", "fullTypeName": "Json"},
        "compatibility": {"policy": "AllowAny"},
        "allowMultipleTypes": False,
        "properties": {"owner": "me"},
    }
    peer.send("POST", "/groups", group_request("g"), 409)
    assert peer.get("/groups/g")["allowMultipleTypes"] is False
    peer.get("/groups/absent", 404)


def test_custom_format_has_a_name(peer) -> None:
    request = group_request("g", policy="AllowAny")
    request["groupProperties"]["serializationFormat"] = {"serializationFormat": "Custom", "fullTypeName": "thrift"}
    peer.send("POST", "/groups", request, 201)
    shown = peer.get("/groups/g")["serializationFormat"]
    assert shown == {"serializationFormat": "Custom", "fullTypeName": "thrift"}
    schema = info("T", b"\0\xff", "Custom")
    schema["serializationFormat"]["fullTypeName"] = "thrift"
    assert peer.add("g", schema) == {"type": "T", "serializationFormat": "thrift", "version": 0, "id": 0}
    assert peer.get("/groups/g/schemas/schema/0") == schema
    assert peer.get("/groups/g/schemas/format/thrift/type/T/versions/0") == schema


@pytest.mark.parametrize("format_name", ["Json", "Protobuf", "Any"])
@pytest.mark.parametrize(("policy", "status"), [("AllowAny", 201), ("DenyAll", 201), ("Full", 400), ("nonsense", 400)])
def test_policies_that_compare_are_for_groups_of_avro(peer, format_name, policy, status) -> None:
    assert peer.ask("POST", "/groups", group_request("g", format_name, policy)).status_code == status
    peer.get("/groups/g", 200 if status == 201 else 404)


@pytest.mark.parametrize(
    "change",
    [
        {"groupName": ""},
        {"groupName": "\n"},
        {"groupName": "g" * 300},
        {"groupName": None},
        {"groupProperties": None},
        {"groupProperties": {}},
        {"groupProperties": group_request("g")["groupProperties"] | {"allowMultipleTypes": "yes"}},
        {"groupProperties": group_request("g")["groupProperties"] | {"properties": {"a": 1}}},
        {"groupProperties": group_request("g")["groupProperties"] | {"properties": {"a": "b" * 10_000}}},
    ],
)
def test_wrong_group_is_refused_and_not_created(peer, change) -> None:
    answer = peer.ask("POST", "/groups", group_request("g") | change)
    assert answer.status_code == 400
    assert len(answer.json()["error"]) < 400
    assert peer.get("/groups") == {"groups": {}, "continuationToken": ""}


def test_groups_are_listed_page_by_page_until_one_is_empty(peer) -> None:
    for number in range(5):
        peer.create(f"g{number}")
    seen, token, pages = [], "", 0
    while True:
        page = peer.get(f"/groups?limit=2&continuationToken={token}")
        pages += 1
        if not page["groups"]:
            break
        seen += page["groups"]
        token = page["continuationToken"]
    assert (seen, pages) == ([f"g{number}" for number in range(5)], 4)
    assert page["continuationToken"] == "g4"
    assert list(peer.get("/groups")["groups"]) == seen
    assert list(peer.get("/groups?limit=999999999")["groups"]) == seen
    for limit in ("0", "-1", "x", "1.5", "9" * 30):
        peer.get(f"/groups?limit={limit}", 400)


def test_deleted_group_is_gone_and_may_come_back(avro) -> None:
    avro.add("g", info("a.Person", PERSON))
    assert avro.send("PUT", "/groups/g/encodings", {"versionInfo": version(0, 0), "codecType": ""}) == {"encodingId": 0}
    for _ in range(2):
        assert avro.send("DELETE", "/groups/g", status=204) is None
    avro.send("DELETE", "/groups/absent", status=204)
    avro.get("/groups/g", 404)
    avro.get("/groups/g/schemas", 404)
    avro.get("/groups/g/history", 404)
    avro.add("g", info("a.Person", PERSON), 404)
    assert avro.get("/groups")["groups"] == {}
    avro.create("g", policy="Full")
    assert avro.get("/groups/g")["compatibility"] == {"policy": "Full"}
    assert avro.get("/groups/g/schemas") == {"schemas": []}
    # Numbers go on: events of before may be there.
    assert avro.add("g", info("a.Person", PERSON))["id"] == 1
    assert avro.get("/groups/g/encodings/0")["versionInfo"]["id"] == 0


def test_namespaces_keep_groups_apart(peer) -> None:
    peer.create("g")
    peer.send("POST", "/groups?namespace=ns", group_request("g", "Json", "AllowAny"), 201)
    peer.send("POST", "/namespace/other/groups", group_request("h"), 201)
    assert peer.get("/groups/g")["serializationFormat"]["fullTypeName"] == "Avro"
    for path in ("/groups/g?namespace=ns", "/namespace/ns/groups/g", "/namespace/ns/groups/g?namespace=other"):
        assert peer.get(path)["serializationFormat"]["fullTypeName"] == "Json"
    assert list(peer.get("/namespace/other/groups")["groups"]) == ["h"]
    assert list(peer.get("/groups?namespace=")["groups"]) == ["g"]
    peer.get("/groups?namespace=a/b", 400)
    peer.get("/groups/g?namespace=absent", 404)


def test_names_in_paths_may_be_escaped(peer) -> None:
    peer.create("a/b c")
    assert peer.get("/groups/a%2Fb%20c")["properties"] == {"owner": "me"}


# -- policies ---------------------------------------------------------------------------------------


def set_policy(peer, policy: dict, previous: dict | None = None, status: int = 200, group: str = "g") -> None:
    body = {"compatibility": policy} | ({} if previous is None else {"previousCompatibility": previous})
    peer.send("PUT", f"/groups/{group}/compatibility", body, status)


@pytest.mark.parametrize("name", [policy.value for policy in PolicyName if policy is not PolicyName.ADVANCED])
def test_policy_is_set_and_shown(avro, name) -> None:
    set_policy(avro, {"policy": name})
    assert avro.get("/groups/g")["compatibility"] == {"policy": name}


def test_policy_is_set_if_the_previous_one_is_in_force(avro) -> None:
    set_policy(avro, {"policy": "Full"}, {"policy": "Forward"}, 409)
    set_policy(avro, {"policy": "Full"}, {"policy": "Backward"})
    set_policy(avro, {"policy": "Forward"}, {"policy": "Backward"}, 409)
    assert avro.get("/groups/g")["compatibility"] == {"policy": "Full"}
    set_policy(avro, {"policy": "Full"}, status=404, group="absent")
    set_policy(avro, {"policy": "full"}, status=400)
    avro.send("PUT", "/groups/g/compatibility", {}, 400)
    avro.send("PUT", "/groups/g/compatibility", {"compatibility": {"policy": "Full"}, "previousCompatibility": 1}, 400)


def test_advanced_policy_names_versions(avro) -> None:
    avro.add("g", info("a.Person", PERSON))
    till = {"name": "BackwardTill", "versionInfo": version(0, 0)}
    policy = {
        "policy": "Advanced",
        "advanced": {
            "backwardPolicy": {"backwardPolicy": till},
            "forwardPolicy": {"forwardPolicy": {"name": "Forward"}},
        },
    }
    set_policy(avro, policy)
    assert avro.get("/groups/g")["compatibility"] == policy
    till["versionInfo"] = version(1, 1)
    set_policy(avro, policy, status=400)
    avro.send("POST", "/groups", group_request("new", policy=policy), 400)
    name = GroupName("", "g")
    assert avro.do(avro.registry.settings, name).policy == Policy(PolicyName.ADVANCED, Till(1), Span.LATEST)
    avro.send("DELETE", "/groups/g/schemas/schema/0", status=204)
    assert (
        avro.get("/groups/g")["compatibility"]["advanced"]["backwardPolicy"]["backwardPolicy"]["name"] == "BackwardTill"
    )
    avro.do(avro.registry.delete_version, name, 1, permanent=True)
    shown = avro.get("/groups/g")["compatibility"]["advanced"]["backwardPolicy"]["backwardPolicy"]
    assert shown == {"name": "BackwardTransitive"}


def test_group_of_another_format_keeps_its_policies(peer) -> None:
    peer.create("j", "Json", "AllowAny")
    set_policy(peer, {"policy": "Backward"}, status=400, group="j")
    set_policy(peer, {"policy": "DenyAll"}, group="j")


@pytest.mark.parametrize("mode", [Mode.READONLY, Mode.READONLY_OVERRIDE, Mode.IMPORT])
def test_modes_of_the_other_api_are_shown_as_deny_all_and_nothing_is_set(avro, mode) -> None:
    name = GroupName("", "g")
    avro.do(avro.registry.set_mode, name, mode)
    assert avro.get("/groups/g")["compatibility"] == {"policy": "DenyAll"}
    set_policy(avro, {"policy": "AllowAny"}, status=409)
    avro.add("g", info("a.Person", PERSON), 409)
    avro.do(avro.registry.set_mode, name, Mode.READWRITE)
    assert avro.get("/groups/g")["compatibility"] == {"policy": "Backward"}
    avro.add("g", info("a.Person", PERSON))


def test_deny_all_takes_the_first_schema_and_no_other(peer) -> None:
    peer.create("g", policy="DenyAll")
    first = peer.add("g", info("a.Person", PERSON))
    assert peer.add("g", info("a.Person", PERSON)) == first
    peer.add("g", info("a.Person", PERSON_2), 409)


# -- schemas ----------------------------------------------------------------------------------------


def test_schemas_are_numbered_from_0_in_the_group_and_in_their_type(avro) -> None:
    assert avro.add("g", info("a.Person", PERSON)) == version(0, 0)
    assert avro.add("g", info("a.Pet", PET)) == version(0, 1, "a.Pet")
    assert avro.add("g", info("Person", PERSON_2)) == version(1, 2)
    # Equal ones, however they are written, are there already.
    assert avro.add("g", info("", json.dumps(json.loads(PERSON), indent=4))) == version(0, 0)
    assert avro.statistics.registrations == {"new": 3, "known": 1}
    assert avro.get("/groups/g/schemas")["schemas"][0]["versionInfo"] == version(0, 1, "a.Pet")
    assert [one["versionInfo"]["id"] for one in avro.get("/groups/g/schemas/versions")["schemas"]] == [0, 1, 2]
    of_type = avro.get("/groups/g/schemas/versions?type=a.Person")["schemas"]
    assert [one["versionInfo"] for one in of_type] == [version(0, 0), version(1, 2)]
    assert avro.get("/groups/g/schemas/versions?type=absent") == {"schemas": []}
    (latest,) = avro.get("/groups/g/schemas?type=a.Person")["schemas"]
    assert latest["versionInfo"] == version(1, 2)
    assert text_of(latest["schemaInfo"])["fields"][1]["name"] == "city"
    avro.get("/groups/g/schemas?type=absent", 404)


def test_schema_comes_back_with_its_properties(avro) -> None:
    given = info("a.Person", json.dumps(json.loads(PERSON), indent=2), owner="x", note="é")
    avro.add("g", given)
    shown = avro.get("/groups/g/schemas/schema/0")
    assert text_of(shown) == json.loads(PERSON)
    assert shown["serializationFormat"] == {"serializationFormat": "Avro", "fullTypeName": "Avro"}
    assert {key: shown[key] for key in ("type", "properties")} == {key: given[key] for key in ("type", "properties")}
    assert avro.get("/groups/g/schemas/format/Avro/type/a.Person/versions/0") == shown


@pytest.mark.parametrize(
    "path",
    [
        "/groups/g/schemas/schema/1",
        "/groups/g/schemas/schema/2147483647",
        "/groups/g/schemas/format/Avro/type/a.Person/versions/1",
        "/groups/g/schemas/format/Json/type/a.Person/versions/0",
        "/groups/g/schemas/format/Avro/type/Person/versions/0",
        "/groups/absent/schemas/schema/0",
    ],
)
def test_what_is_not_there_is_not_found_nor_deleted(avro, path) -> None:
    avro.add("g", info("a.Person", PERSON))
    avro.get(path, 404)
    avro.send("DELETE", path, status=404)
    assert len(avro.get("/groups/g/schemas/versions")["schemas"]) == 1


@pytest.mark.parametrize("number", ["x", "-1", "1.0", "%20", "9" * 30, "\u0661"])
def test_number_in_a_path_is_one(avro, number) -> None:
    for path in (f"schemas/schema/{number}", f"schemas/format/Avro/type/t/versions/{number}", f"encodings/{number}"):
        avro.get(f"/groups/g/{path}", 400)


@pytest.mark.parametrize("by", ["schema/0", "format/Avro/type/a.Person/versions/0"])
def test_deleted_schema_is_still_shown_by_its_id_and_is_added_again(avro, by) -> None:
    avro.add("g", info("a.Person", PERSON))
    for _ in range(2):
        avro.send("DELETE", f"/groups/g/schemas/{by}", status=204)
    assert avro.get("/groups/g/schemas") == {"schemas": []}
    avro.send("POST", "/groups/g/schemas/versions/find", info("a.Person", PERSON), 404)
    assert text_of(avro.get(f"/groups/g/schemas/{by}")) == json.loads(PERSON)
    assert avro.add("g", info("a.Person", PERSON)) == version(1, 1)


def test_incompatible_schema_is_refused(avro) -> None:
    avro.add("g", info("a.Person", PERSON))
    avro.add("g", info("a.Person", OTHER), 409)
    avro.add("g", info("a.Pet", record("a.Pet", "name", "age")))  # another type has a history of its own
    assert len(avro.get("/groups/g/schemas/versions")["schemas"]) == 2
    assert avro.statistics.registrations["incompatible"] == 1


def test_group_of_one_type_takes_no_other(peer) -> None:
    peer.create("g", many=False)
    peer.add("g", info("a.Person", PERSON))
    peer.add("g", info("a.Pet", PET), 409)
    assert peer.send("POST", "/groups/g/schemas/versions/validate", {"schemaInfo": info("a.Pet", PET)}) == {
        "valid": False
    }


def test_group_takes_its_format_alone(avro) -> None:
    json_schema = info("Person", "{}", "Json")
    avro.add("g", json_schema, 417)
    avro.send("POST", "/groups/g/schemas/versions/validate", {"schemaInfo": json_schema}, 417)
    assert avro.send("POST", "/groups/g/schemas/versions/canRead", json_schema) == {"compatible": False}
    avro.create("any", "Any", "AllowAny")
    avro.add("any", json_schema)
    avro.add("any", info("a.Person", PERSON))
    shown = avro.get("/groups/any/schemas/versions")["schemas"]
    assert [one["versionInfo"]["serializationFormat"] for one in shown] == ["Json", "Avro"]


def test_find_gives_the_version_of_an_equal_schema(avro) -> None:
    avro.add("g", info("a.Person", PERSON))
    find = "/groups/g/schemas/versions/find"
    assert avro.send("POST", find, info("a.Person", PERSON, owner="other")) == version(0, 0)
    avro.send("POST", find, info("a.Person", OTHER), 404)
    avro.send("POST", find, info("a.Pet", PERSON), 400)
    avro.send("POST", "/groups/absent/schemas/versions/find", info("a.Person", PERSON), 404)


def test_validate_compares_by_the_policy_of_the_group_or_by_another(avro) -> None:
    avro.add("g", info("a.Person", PERSON))
    path = "/groups/g/schemas/versions/validate"
    for text, policy, valid in (
        (PERSON_2, None, True),
        (OTHER, None, False),
        (OTHER, "Forward", True),
        (OTHER, "AllowAny", True),
        (OTHER, "Full", False),
        (PERSON_2, "DenyAll", False),
    ):
        body = {"schemaInfo": info("a.Person", text)} | (
            {} if policy is None else {"compatibility": {"policy": policy}}
        )
        assert avro.send("POST", path, body) == {"valid": valid}, (text, policy)
    avro.send("POST", path, {}, 400)
    avro.send("POST", path, {"schemaInfo": info("a.Person", "{}")}, 400)
    avro.send("POST", path, {"schemaInfo": info("a.Person", PERSON), "compatibility": {"policy": "x"}}, 400)
    avro.send("POST", "/groups/absent/schemas/versions/validate", {"schemaInfo": info("a.Person", PERSON)}, 404)
    assert len(avro.get("/groups/g/schemas/versions")["schemas"]) == 1


def test_can_read_is_whether_a_reader_reads_what_writers_write(avro) -> None:
    path = "/groups/g/schemas/versions/canRead"
    avro.add("g", info("a.Person", PERSON))
    assert avro.send("POST", path, info("a.Person", PERSON_2)) == {"compatible": True}
    assert avro.send("POST", path, info("a.Person", OTHER)) == {"compatible": False}
    set_policy(avro, {"policy": "AllowAny"})
    assert avro.send("POST", path, info("a.Person", OTHER)) == {"compatible": True}
    avro.send("POST", "/groups/absent/schemas/versions/canRead", info("a.Person", PERSON), 404)


def test_history_has_each_schema_with_its_time_and_text(avro) -> None:
    avro.add("g", info("a.Person", PERSON))
    avro.add("g", info("a.Person", PERSON_2))
    avro.add("g", info("a.Pet", PET))
    avro.send("DELETE", "/groups/g/schemas/schema/2", status=204)
    first, second = avro.get("/groups/g/history")["history"]
    assert [one["versionInfo"] for one in (first, second)] == [version(0, 0), version(1, 1)]
    assert json.loads(first["schemaString"]) == text_of(first["schemaInfo"]) == json.loads(PERSON)
    assert first["compatibility"] == {"policy": "Backward"}
    assert isinstance(first["timestamp"], int)
    avro.get("/groups/absent/history", 404)


@pytest.mark.parametrize(
    "schema",
    [
        info("a.Person", "{}"),
        info("a.Person", ""),
        info("a.Person", b"\xff\xfe"),
        info("a.Person", "[" * 10_000),
        info("a.Person", PERSON + " " * (1 << 20)),
        info("other.Person", PERSON),
        info("a.Person", PERSON) | {"schemaData": "?"},
        info("a.Person", PERSON) | {"serializationFormat": {"serializationFormat": "avro"}},
        info("a.Person", PERSON) | {"type": 7},
        info("a\nPerson", PERSON),
        info("a.Person", PERSON, a="b" * 10_000),
        {},
        [],
        "x",
    ],
)
def test_malformed_schema_is_refused_everywhere_and_nothing_is_done(avro, schema) -> None:
    for path in ("/groups/g/schemas", "/groups/g/schemas/versions/find", "/groups/g/schemas/versions/canRead"):
        answer = avro.ask("POST", path, schema)
        if answer.status_code != 400:
            # The bounds of properties are those of what is stored.
            assert path != "/groups/g/schemas"
            assert len(schema["properties"]) == 1
            continue
        assert len(answer.json()["error"]) < 500
    assert avro.get("/groups/g/schemas/versions") == {"schemas": []}


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"groupName": "g", "groupName": "h"}', "application/json", 400),
        (b"{}", "text/plain", 415),
        (b"{}", None, 415),
        (b" " * (8 << 20), "application/json", 413),
    ],
)
def test_body_that_is_no_json_is_refused(peer, content, kind, status) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = peer._http.post("/v1/groups", content=content, headers=headers)
    assert answer.status_code == status
    assert len(answer.json()["error"]) < 400


def test_methods_and_paths_that_are_not_there(peer) -> None:
    assert peer.ask("PATCH", "/groups").status_code == 405
    assert peer.ask("DELETE", "/groups").status_code == 405
    assert peer.ask("GET", "/groups/g/nothing").status_code == 404


# -- encodings --------------------------------------------------------------------------------------


def test_encodings_number_versions_with_codecs(avro) -> None:
    avro.add("g", info("a.Person", PERSON, owner="x"))
    path = "/groups/g/encodings"
    plain = {"versionInfo": version(0, 0), "codecType": ""}
    gzip = plain | {"codecType": "application/x-gzip"}
    assert avro.send("PUT", path, plain) == {"encodingId": 0}
    avro.send("PUT", path, gzip, 412)
    avro.send("POST", "/groups/g/codecTypes", {"name": "application/x-gzip", "properties": {"level": "9"}}, 201)
    assert avro.send("PUT", path, gzip) == {"encodingId": 1}
    assert avro.send("PUT", path, plain) == {"encodingId": 0}
    shown = avro.get(f"{path}/1")
    assert shown["versionInfo"] == version(0, 0)
    assert shown["codecType"] == {"name": "application/x-gzip", "properties": {"level": "9"}}
    assert shown["schemaInfo"] == avro.get("/groups/g/schemas/schema/0")
    assert avro.get(f"{path}/0")["codecType"] == {"name": "", "properties": {}}
    avro.get(f"{path}/2", 404)
    avro.get("/groups/absent/encodings/0", 404)


def test_encoding_needs_a_version_that_is_there(avro) -> None:
    avro.add("g", info("a.Person", PERSON))
    path, body = "/groups/g/encodings", {"versionInfo": version(0, 0), "codecType": ""}
    avro.send("PUT", path, body | {"versionInfo": version(1, 1)}, 404)
    for wrong in ({}, {"versionInfo": version(0, 0)}, body | {"versionInfo": {"id": "0"}}, body | {"codecType": 1}):
        avro.send("PUT", path, wrong, 400)
    avro.send("PUT", "/groups/absent/encodings", body, 404)
    avro.send("PUT", path, body)
    avro.send("DELETE", "/groups/g/schemas/schema/0", status=204)
    # Events that it wrote stay readable, and no more are written.
    assert text_of(avro.get(f"{path}/0")["schemaInfo"]) == json.loads(PERSON)
    avro.send("PUT", path, body, 404)


def test_codecs_are_those_that_were_added(avro) -> None:
    path = "/groups/g/codecTypes"
    assert avro.get(path) == {"codecTypes": []}
    for _ in range(2):
        avro.send("POST", path, {"name": "mine"}, 201)
    avro.send("POST", path, {"name": "application/x-snappy-framed", "properties": None}, 201)
    assert [one["name"] for one in avro.get(path)["codecTypes"]] == ["application/x-snappy-framed", "mine"]
    for wrong in ({}, {"name": 1}, {"name": "x" * 300}, {"name": "x", "properties": {"a": None}}):
        avro.send("POST", path, wrong, 400)
    avro.send("POST", "/groups/absent/codecTypes", {"name": "mine"}, 404)
    avro.get("/groups/absent/codecTypes", 404)
    assert len(avro.get(path)["codecTypes"]) == 2


# -- schemas of all groups, and of the other API ----------------------------------------------------


def test_groups_of_a_schema(avro) -> None:
    avro.create("h")
    avro.send("POST", "/groups?namespace=ns", group_request("i"), 201)
    avro.add("h", info("a.Pet", PET))
    for group in ("g", "h"):
        avro.add(group, info("a.Person", PERSON))
    avro.send("POST", "/groups/i/schemas?namespace=ns", info("a.Person", PERSON), 201)
    found = avro.send("POST", "/schemas/addedTo", info("a.Person", PERSON))
    assert found == {"groups": {"g": version(0, 0), "h": version(0, 1)}}
    found = avro.send("POST", "/schemas/addedTo?namespace=ns", info("a.Person", PERSON))
    assert found == {"groups": {"i": version(0, 0)}}
    avro.send("POST", "/schemas/addedTo", info("a.Person", OTHER), 404)
    avro.send("POST", "/schemas/addedTo?namespace=ns", info("a.Pet", PET), 404)
    avro.send("POST", "/schemas/addedTo", info("a.Person", "{}"), 400)


def test_subject_of_the_other_api_is_a_group_of_any_format(peer) -> None:
    name = GroupName("", "s-value")
    peer.do(peer.registry.register, name, NewSchema(Kind.AVRO, PERSON))
    assert peer.get("/groups/s-value") == {
        "serializationFormat": {"serializationFormat": "Any", "fullTypeName": "Any"},
        "compatibility": {"policy": "Backward"},
        "allowMultipleTypes": False,
        "properties": {},
    }
    assert list(peer.get("/groups")["groups"]) == ["s-value"]
    assert peer.add("s-value", info("a.Person", PERSON)) == version(0, 0)
    assert peer.add("s-value", info("a.Person", PERSON_2)) == version(1, 1)
    peer.add("s-value", info("a.Person", OTHER), 409)
    peer.send("POST", "/groups", group_request("s-value"), 409)
    set_policy(peer, {"policy": "Full"}, {"policy": "Backward"}, group="s-value")
    assert peer.do(peer.registry.settings, name).policy == policy_of(Level.FULL)


def test_schema_with_references_is_given_back_whole(peer) -> None:
    peer.do(peer.registry.register, GroupName("", "person"), NewSchema(Kind.AVRO, PERSON))
    text = '{"type": "record", "name": "a.Club", "fields": [{"name": "lead", "type": "a.Person"}]}'
    club = NewSchema(Kind.AVRO, text, (Reference("a.Person", "person", 1),))
    peer.do(peer.registry.register, GroupName("", "club"), club)
    shown = text_of(peer.get("/groups/club/schemas/schema/0"))
    assert shown["fields"][0]["type"] == json.loads(PERSON) | {"name": "a.Person"}


def test_json_schema_of_the_other_api_is_the_one_of_any_type(peer) -> None:
    peer.do(peer.registry.register, GroupName("", "s"), NewSchema(Kind.JSON, '{"type": "object"}'))
    done = peer.add("s", info("my.Class", '{ "type" : "object" }', "Json"))
    assert done == {"type": "", "serializationFormat": "Json", "version": 0, "id": 0}


# -- many and large ---------------------------------------------------------------------------------


def test_list_that_would_be_too_large_is_refused(peer, monkeypatch) -> None:
    monkeypatch.setattr("sarit.registry.pravega.schema_calls.MAX_PRAVEGA_ANSWER_BYTES", 300)
    peer.create("g", "Any", "AllowAny")
    for number in range(3):
        peer.add("g", info("t", bytes([number]) * 90, "Any"))
    for path in ("/groups/g/schemas/versions", "/groups/g/history"):
        assert "ask for one type" in peer.get(path, 400)["error"]
    assert len(peer.get("/groups/g/schemas?type=t")["schemas"]) == 1
