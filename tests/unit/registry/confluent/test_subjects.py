"""Subjects, versions and compatibility by Confluent's API, with their error codes."""

from __future__ import annotations

import base64
import json

import pytest

from sarit.registry.confluent import subject_calls
from sarit.registry.values import GroupName
from sarit.schemas.compatibility import Policy, PolicyName
from tests.unit.registry.confluent.asking import INT, STRING, Asking, asking

RECORD = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
WIDER = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0}],
    }
)
NARROW = json.dumps(
    {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "c", "type": "int"}]}
)
USER = json.dumps({"type": "record", "name": "User", "fields": [{"name": "r", "type": "R"}]})


@asking
async def test_the_root_is_empty_and_other_paths_have_an_error_of_this_api(ask: Asking) -> None:
    assert await ask.get("/") == {}
    for path in ("/nothing", "/subjects/s/other", "/contexts/.n/other", "/contexts/.n"):
        assert await ask.error("GET", path) == 404
    assert await ask.error("PUT", "/subjects") == 405
    assert await ask.error("POST", "/subjects/s", b"{") == 400


@asking
async def test_a_schema_is_registered_once(ask: Asking) -> None:
    first = await ask.ok("POST", "/subjects/s/versions", {"schema": RECORD})
    assert (first["id"], first["version"], set(first)) == (1, 1, {"id", "version", "guid"})
    shown = await ask.ok("POST", "/subjects/s/versions?format=default", {"schema": RECORD})
    assert json.loads(shown["schema"])["name"] == "R"
    assert "schemaType" not in shown
    assert await ask.ok("POST", "/subjects/s/versions?normalize=true", {"schema": f" {RECORD} "}) == first
    assert await ask.register("t", RECORD) == 1
    assert await ask.register("s", WIDER) == 2
    assert await ask.get("/subjects/s/versions") == [1, 2]
    assert ask.statistics.registrations == {"new": 3, "known": 2}


@asking
async def test_versions_are_shown(ask: Asking) -> None:
    await ask.register("s", RECORD)
    await ask.register("s", WIDER)
    latest = await ask.get("/subjects/s/versions/latest")
    assert {name: latest[name] for name in ("subject", "version", "id")} == {"subject": "s", "version": 2, "id": 2}
    assert latest == await ask.get("/subjects/s/versions/2") == await ask.get("/subjects/s/versions/-1")
    assert (await ask.http.get("/subjects/s/versions/2/schema")).text == latest["schema"]
    for path, code in (
        ("/subjects/none/versions/1", 40401),
        ("/subjects/none/versions/latest", 40401),
        ("/subjects/none/versions", 40401),
        ("/subjects/s/versions/3", 40402),
        ("/subjects/s/versions/0", 42202),
        ("/subjects/s/versions/-2", 42202),
        ("/subjects/s/versions/2147483648", 42202),
        ("/subjects/s/versions/first", 42202),
        ("/subjects/s/versions/%D9%A1", 42202),
        ("/subjects/s/versions/2?deleted=maybe", 400),
        ("/subjects/s/versions/2?format=other", 42201),
        ("/subjects/s/versions?offset=x", 400),
    ):
        assert await ask.error("GET", path) == code, path


@asking
async def test_a_schema_is_found_in_its_subject(ask: Asking) -> None:
    id = await ask.register("s", RECORD)
    await ask.register("t", INT)
    found = await ask.ok("POST", "/subjects/s", {"schema": RECORD})
    assert (found["subject"], found["version"], found["id"]) == ("s", 1, id)
    assert await ask.error("POST", "/subjects/none", {"schema": RECORD}) == 40401
    assert await ask.error("POST", "/subjects/s", {"schema": INT}) == 40403
    assert await ask.error("POST", "/subjects/s", {"schema": STRING}) == 40403
    assert await ask.error("POST", "/subjects/s", {"schema": "no schema"}) == 42201


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ([], 42201),
        ({}, 42201),
        ({"schema": 1}, 42201),
        ({"schema": ""}, 42201),
        ({"schema": "{"}, 42201),
        ({"schema": "[" * 10_000}, 42201),
        ({"schema": '"unknown"'}, 42201),
        ({"schema": STRING, "schemaType": "THRIFT"}, 42201),
        ({"schema": STRING, "schemaType": "OPAQUE"}, 42201),
        ({"schema": STRING, "schemaType": 1}, 42201),
        ({"schema": STRING, "id": "1"}, 42201),
        ({"schema": STRING, "version": 1 << 31}, 42201),
        ({"schema": STRING, "id": True}, 42201),
        ({"schema": STRING, "references": {}}, 42201),
        ({"schema": STRING, "references": [1]}, 42201),
        ({"schema": STRING, "references": [{"name": "R", "subject": "r"}]}, 42201),
        ({"schema": STRING, "references": [{"name": "R", "subject": "r", "version": 0}]}, 42201),
        ({"schema": STRING, "references": [{"name": "R", "subject": "r", "version": 1}]}, 42201),
        ({"schema": STRING, "references": [{"name": "R", "subject": "r", "version": -1}]}, 42201),
        ({"schema": STRING, "references": [{"name": "R", "subject": ":.n:r", "version": 1}]}, 42201),
        ({"schema": STRING, "references": [{"name": "R", "subject": "", "version": 1}]}, 42208),
        ({"schema": STRING, "ruleSet": {"domainRules": [{"name": "r"}]}}, 42210),
        ({"schema": STRING, "metadata": {"properties": {"a": "b"}}}, 42201),
        ({"schema": STRING, "id": 5}, 42205),
        ({"schema": "x" * 2_000_000}, 42201),
    ],
)
@asking
async def test_bodies_that_are_no_schema(ask: Asking, body, code) -> None:
    assert await ask.error("POST", "/subjects/s/versions", body) == code
    assert await ask.get("/subjects") == []


@asking
async def test_empty_fields_of_clients_are_ignored(ask: Asking) -> None:
    body = {
        "schema": STRING, "schemaType": None, "references": [], "metadata": None, "ruleSet": None, "id": -1,
        "version": 0,
    }  # fmt: skip
    assert (await ask.ok("POST", "/subjects/s/versions?normalize=False", body))["id"] == 1


@pytest.mark.parametrize("subject", ["%0A", "%00", "%E2%80%AE", "x" * 256, ":.a%2Fb:s", ":.ns:", ":.%20:s"])
@asking
async def test_names_that_no_subject_has(ask: Asking, subject) -> None:
    assert await ask.error("POST", f"/subjects/{subject}/versions", {"schema": STRING}) == 42208


@asking
async def test_each_byte_of_a_name_is_taken_or_refused_with_one_error(ask: Asking) -> None:
    taken = []
    for byte in range(256):
        status, value = await ask("POST", f"/subjects/a%{byte:02X}/versions", {"schema": STRING})
        if status == 200:
            taken.append(f"a{chr(byte)}")
            assert await ask.get(f"/subjects/a%{byte:02X}/versions") == [1]
        else:
            assert value["error_code"] == (42208 if byte < 128 else 400)
    assert await ask.get("/subjects") == taken == [f"a{chr(byte)}" for byte in range(32, 127)]


@asking
async def test_schemas_of_json(ask: Asking) -> None:
    schema = json.dumps({"type": "object", "properties": {"a": {"type": "string"}}})
    found = await ask.ok("POST", "/subjects/s/versions", {"schema": schema, "schemaType": "JSON"})
    assert (await ask.get(f"/schemas/ids/{found['id']}"))["schemaType"] == "JSON"


@asking
async def test_references(ask: Asking) -> None:
    id = await ask.register("r", RECORD)
    refers = {"name": "R", "subject": "r", "version": 1}
    user = await ask.register("u", USER, references=[refers])
    shown = await ask.get(f"/schemas/ids/{user}")
    assert shown["references"] == [refers]
    assert (await ask.get("/subjects/u/versions/1"))["references"] == [refers]
    assert await ask.register("u", USER, references=[{**refers, "version": -1}]) == user
    assert await ask.get("/subjects/r/versions/1/referencedby") == [user]
    assert await ask.get("/subjects/r/versions/latest/referencedby?offset=1") == []
    assert await ask.error("GET", "/subjects/r/versions/2/referencedby") == 40402
    assert await ask.error("DELETE", "/subjects/r/versions/1") == 42206
    assert await ask.error("DELETE", "/subjects/r") == 42206
    assert await ask.ok("DELETE", "/subjects/u") == [1]
    assert await ask.get("/subjects/r/versions/1/referencedby") == []
    assert await ask.get("/subjects/r/versions/1/referencedby?deleted=true") == [user]
    assert id != user


@asking
async def test_a_reference_does_not_leave_its_context(ask: Asking) -> None:
    for subject in ("r", ":.n:r"):
        await ask.register(subject, RECORD)
    body = {"schema": USER, "references": [{"name": "R", "subject": ":.n:r", "version": 1}]}
    assert await ask.error("POST", "/subjects/u/versions", body) == 42201
    assert (await ask.ok("POST", "/subjects/:.n:u/versions", body))["version"] == 1


@asking
async def test_formats(ask: Asking) -> None:
    await ask.register("r", RECORD)
    user = await ask.register("u", USER, references=[{"name": "R", "subject": "r", "version": 1}])
    for path in (f"/schemas/ids/{user}", "/subjects/u/versions/1"):
        assert json.loads((await ask.get(path))["schema"])["fields"][0]["type"] == "R"
        assert (await ask.get(f"{path}?format=default")) == await ask.get(path)
        resolved = json.loads((await ask.get(f"{path}?format=resolved"))["schema"])
        assert resolved["fields"][0]["type"]["fields"][0]["name"] == "a"
        assert await ask.error("GET", f"{path}?format=serialized") == 42201
    assert await ask.error("POST", "/subjects/new/versions?format=other", {"schema": STRING}) == 42201
    assert await ask.get("/subjects") == ["r", "u"]
    file = 'syntax = "proto3"; package n; message P { int32 a = 1; }'
    id = await ask.register("p", file, schemaType="PROTOBUF")
    encoded = (await ask.get(f"/schemas/ids/{id}?format=serialized"))["schema"]
    assert b"\x0a\x01P" in base64.b64decode(encoded)
    assert await ask.register("p2", encoded, schemaType="PROTOBUF") == id


@asking
async def test_an_incompatible_schema_is_refused(ask: Asking) -> None:
    await ask.register("s", RECORD)
    assert await ask.error("POST", "/subjects/s/versions", {"schema": NARROW}) == 409
    assert ask.statistics.registrations == {"new": 1, "incompatible": 1}
    path = "/compatibility/subjects/s/versions"
    for each in (path, f"{path}/1", f"{path}/latest"):
        assert await ask.ok("POST", each, {"schema": NARROW}) == {"is_compatible": False}
        assert await ask.ok("POST", f"{each}?verbose=true", {"schema": WIDER}) == {
            "is_compatible": True,
            "messages": [],
        }
        found = await ask.ok("POST", f"{each}?verbose=true", {"schema": NARROW})
        assert not found["is_compatible"]
        assert "version 1" in found["messages"][0]
    assert await ask.error("POST", f"{path}/2", {"schema": WIDER}) == 40402
    assert await ask.error("POST", f"{path}/x", {"schema": WIDER}) == 42202
    assert await ask.error("POST", path, {"schema": "{"}) == 42201
    found = await ask.ok("POST", f"{path}?verbose=true", {"schema": "{"})
    assert not found["is_compatible"]
    assert found["messages"]
    none = "/compatibility/subjects/none/versions"
    assert await ask.ok("POST", none, {"schema": INT}) == {"is_compatible": True}
    assert await ask.ok("POST", f"{none}/latest", {"schema": INT}) == {"is_compatible": True}
    assert await ask.error("POST", f"{none}/1", {"schema": INT}) == 40402


@asking
async def test_versions_are_deleted_softly_and_then_for_good(ask: Asking) -> None:
    await ask.register("s", RECORD)
    await ask.register("s", WIDER)
    assert await ask.error("DELETE", "/subjects/s/versions/1?permanent=true") == 40407
    assert await ask.ok("DELETE", "/subjects/s/versions/1") == 1
    assert await ask.error("DELETE", "/subjects/s/versions/1") == 40406
    assert await ask.error("GET", "/subjects/s/versions/1") == 40402
    assert (await ask.get("/subjects/s/versions/1?deleted=true"))["deleted"] is True
    assert (await ask.get("/schemas/ids/1"))["schema"]
    for query, versions in (
        ("", [2]), ("?deleted=true", [1, 2]), ("?deletedOnly=true", [1]), ("?deletedAsNegative=true", [-1, 2]),
        ("?deleted=true&offset=1", [2]), ("?deleted=true&limit=1", [1]), ("?deleted=true&offset=1&limit=0", []),
    ):  # fmt: skip
        assert await ask.get(f"/subjects/s/versions{query}") == versions, query
    assert await ask.ok("DELETE", "/subjects/s/versions/1?permanent=true") == 1
    assert await ask.get("/subjects/s/versions?deleted=true") == [2]
    assert await ask.ok("DELETE", "/subjects/s/versions/latest") == 2
    assert await ask.error("GET", "/subjects/s/versions") == 40401
    assert await ask.error("DELETE", "/subjects/none/versions/1") == 40401
    assert await ask.error("DELETE", "/subjects/s/versions/9") in (40401, 40402)


@asking
async def test_subjects_are_deleted_softly_and_then_for_good(ask: Asking) -> None:
    await ask.register("s", RECORD)
    assert await ask.error("DELETE", "/subjects/none") == 40401
    assert await ask.error("DELETE", "/subjects/s?permanent=true") == 40405
    assert await ask.ok("DELETE", "/subjects/s") == [1]
    assert await ask.error("DELETE", "/subjects/s") == 40404
    assert await ask.get("/subjects") == []
    assert await ask.get("/subjects?deleted=true") == await ask.get("/subjects?deletedOnly=true") == ["s"]
    assert await ask.error("POST", "/subjects/s", {"schema": RECORD}) == 40401
    assert (await ask.ok("POST", "/subjects/s?deleted=true", {"schema": RECORD}))["version"] == 1
    assert (await ask.ok("POST", "/subjects/s/versions", {"schema": RECORD}))["version"] == 2
    assert await ask.ok("DELETE", "/subjects/s") == [2]
    assert await ask.ok("DELETE", "/subjects/s?permanent=true") == [1, 2]
    assert await ask.get("/subjects?deleted=true") == []


@asking
async def test_subjects_and_contexts_are_listed(ask: Asking) -> None:
    for subject in ("a", "ab", "b", ":.n:a", ":.m:c"):
        await ask.register(subject)
    everything = ["a", "ab", "b", ":.m:c", ":.n:a"]
    for path, names in (
        ("/subjects", everything),
        ("/subjects?subjectPrefix=:*:", everything),
        ("/subjects?subjectPrefix=:*:a", ["a", "ab", ":.n:a"]),
        ("/subjects?subjectPrefix=", ["a", "ab", "b"]),
        ("/subjects?subjectPrefix=a", ["a", "ab"]),
        ("/subjects?subjectPrefix=:.n:", [":.n:a"]),
        ("/subjects?subjectPrefix=:.n:x", []),
        ("/subjects?offset=1&limit=2", ["ab", "b"]),
        ("/contexts/.n/subjects", [":.n:a"]),
        ("/contexts/.n/subjects?subjectPrefix=:.m:", [":.m:c"]),
        ("/contexts", [".", ".m", ".n"]),
        ("/contexts?offset=1&limit=1", [".m"]),
        ("/contexts?contextPrefix=.n", [".n"]),
    ):
        assert await ask.get(path) == names, path


@asking
async def test_paths_of_a_context_are_those_of_its_subjects(ask: Asking) -> None:
    found = await ask.ok("POST", "/contexts/.n/subjects/s/versions", {"schema": STRING})
    shown = await ask.get("/contexts/.n/subjects/s/versions/1")
    assert shown == await ask.get("/subjects/:.n:s/versions/1")
    assert shown["subject"] == ":.n:s"
    assert await ask.error("GET", "/subjects/s/versions/1") == 40401
    assert (await ask.get(f"/contexts/.n/schemas/ids/{found['id']}?subject=s"))["subject"] == ":.n:s"
    assert await ask.ok("PUT", "/contexts/.n/config/s", {"compatibility": "NONE"}) == {"compatibility": "NONE"}
    assert await ask.get("/config/:.n:s") == {"compatibilityLevel": "NONE"}
    await ask.register(":.n:r", RECORD)
    refers = [{"name": "R", "subject": ":.n:r", "version": 1}]
    id = await ask.register(":.n:t", USER, references=[{**refers[0], "subject": "r"}])
    assert await ask.register(":.n:t", USER, references=refers) == id
    assert (await ask.get(f"/schemas/ids/{id}"))["references"] == refers


@asking
async def test_schemas_are_listed(ask: Asking) -> None:
    await ask.register("s", RECORD)
    await ask.register("s", WIDER)
    await ask.register(":.n:t", INT)
    everything = await ask.get("/schemas")
    assert [(each["subject"], each["version"]) for each in everything] == [("s", 1), ("s", 2), (":.n:t", 1)]
    assert [each["version"] for each in await ask.get("/schemas?latestOnly=true")] == [2, 1]
    assert await ask.get("/schemas?subjectPrefix=:.n:") == everything[2:] == await ask.get("/contexts/.n/schemas")
    assert await ask.get("/schemas?offset=1&limit=1") == everything[1:2]
    await ask.ok("DELETE", "/subjects/s/versions/1")
    assert len(await ask.get("/schemas")) == 2
    assert [each.get("deleted") for each in await ask.get("/schemas?deleted=true")] == [True, None, None]


@asking
async def test_a_list_of_schemas_is_bounded(ask: Asking, monkeypatch) -> None:
    for subject in ("a", "b"):
        await ask.register(subject, RECORD)
    size = len((await ask.get("/subjects/a/versions/1"))["schema"])
    monkeypatch.setattr(subject_calls, "MAX_LISTED_SCHEMA_CHARS", 2 * size - 1)
    assert await ask.error("GET", "/schemas") == 42205
    assert len(await ask.get("/schemas?limit=1")) == 1


@asking
async def test_a_search_by_metadata_finds_what_has_none(ask: Asking) -> None:
    await ask.register("s", RECORD)
    assert (await ask.get("/subjects/s/metadata"))["version"] == 1
    assert await ask.error("GET", "/subjects/s/metadata?key=a&value=b") == 40403
    assert await ask.error("GET", "/subjects/none/metadata") == 40401


@asking
async def test_schemas_of_kinds_that_this_api_does_not_know_are_shown(ask: Asking) -> None:
    from sarit.registry.values import Group, NewSchema
    from sarit.schemas.definitions import Kind

    name = GroupName("", "g")
    await ask.registry.create_group(Group(name, kind=Kind.OPAQUE))
    assert await ask.error("GET", "/subjects/g/versions") == 40401
    await ask.registry.set_policy(name, Policy(PolicyName.ALLOW_ANY))
    text = base64.b64encode(b"\x00\xff").decode()
    await ask.registry.register(name, NewSchema(Kind.OPAQUE, text, type="t"))
    shown = await ask.get("/subjects/g/versions/latest")
    assert (shown["schemaType"], shown["schema"]) == ("OPAQUE", text)
    assert await ask.error("POST", "/subjects/g/versions", {"schema": INT}) == 409
