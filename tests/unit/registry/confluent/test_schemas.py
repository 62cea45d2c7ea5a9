"""Schemas by their ids and GUIDs, and what callers without rights learn of them."""

from __future__ import annotations

import json
import uuid

from sarit.security.permissions import Permission
from tests.unit.registry.confluent.asking import INT, STRING, Asking, asking

GROUP = "prn::/namespace:/group:"
VERSIONS = "/subjects/own/versions"


@asking
async def test_a_schema_is_found_by_its_id(ask: Asking) -> None:
    id = await ask.register("s")
    await ask.register(":.n:t")
    assert json.loads((await ask.get(f"/schemas/ids/{id}"))["schema"]) == "string"
    assert (await ask.http.get(f"/schemas/ids/{id}/schema")).json() == "string"
    shown = await ask.get(f"/schemas/ids/{id}?subject=:.n:t")
    assert (shown["subject"], shown["version"]) == (":.n:t", 1)
    assert "subject" not in await ask.get(f"/schemas/ids/{id}?subject=none&fetchMaxId=true")
    assert await ask.get(f"/schemas/ids/{id}/subjects") == [":.n:t", "s"]
    assert await ask.get(f"/schemas/ids/{id}/subjects?subject=s") == ["s"]
    assert await ask.get(f"/schemas/ids/{id}/versions") == [
        {"subject": "s", "version": 1}, {"subject": ":.n:t", "version": 1},
    ]  # fmt: skip
    assert await ask.get(f"/schemas/ids/{id}/versions?offset=1&limit=1") == [{"subject": ":.n:t", "version": 1}]
    await ask.ok("DELETE", "/subjects/s")
    assert await ask.get(f"/schemas/ids/{id}/subjects") == [":.n:t"]
    assert await ask.get(f"/schemas/ids/{id}/subjects?deleted=true") == [":.n:t", "s"]
    assert sorted(await ask.get("/schemas/types")) == ["AVRO", "JSON", "PROTOBUF"]


@asking
async def test_ids_that_no_schema_has(ask: Asking) -> None:
    await ask.register("s")
    for id in ("0", "2", "-1", "2147483648", "9" * 30, "x", "%D9%A1", "1.0"):
        for path in ("", "/schema", "/subjects", "/versions"):
            assert await ask.error("GET", f"/schemas/ids/{id}{path}") == 40403, id


@asking
async def test_guids(ask: Asking) -> None:
    id = await ask.register("s")
    await ask.register(":.n:t")
    guid = (await ask.get(f"/schemas/ids/{id}"))["guid"]
    assert (uuid.UUID(guid).version, uuid.UUID(guid).variant) == (8, uuid.RFC_4122)
    shown = await ask.get(f"/schemas/guids/{guid}")
    assert (shown["id"], json.loads(shown["schema"]), shown["guid"]) == (id, "string", guid)
    assert await ask.get(f"/schemas/guids/{guid.upper()}/ids") == [
        {"context": ".", "id": id}, {"context": ".n", "id": id},
    ]  # fmt: skip
    other = (await ask.ok("POST", "/subjects/u/versions", {"schema": INT}))["guid"]
    mixed = guid[:-8] + other[-8:]
    for wrong in (mixed, "x", "%00", str(uuid.UUID(int=0)), guid[:-1]):
        assert await ask.error("GET", f"/schemas/guids/{wrong}") == 40403
        assert await ask.error("GET", f"/schemas/guids/{wrong}/ids") == 40403


@asking(rights={f"{GROUP}mine": Permission.READ, f"{GROUP}own": Permission.READ_UPDATE})
async def test_callers_learn_nothing_of_schemas_that_they_may_not_read(ask: Asking) -> None:
    ask.user[0] = "root"
    mine, other = await ask.register("mine", STRING), await ask.register("other", INT)
    await ask.register("other", INT)
    await ask.register("other2", STRING)
    guid = (await ask.get(f"/schemas/ids/{other}"))["guid"]
    ask.user[0] = "ann"
    assert (await ask.get(f"/schemas/ids/{mine}"))["schema"] == STRING
    assert await ask.get(f"/schemas/ids/{mine}/subjects") == ["mine"]
    for path in ("", "/schema", "/subjects", "/versions"):
        hidden, missing = await ask("GET", f"/schemas/ids/{other}{path}"), await ask("GET", f"/schemas/ids/99{path}")
        assert hidden == (404, {"error_code": 40403, "message": f"Schema {other} not found"})
        assert missing == (404, {"error_code": 40403, "message": "Schema 99 not found"})
    assert await ask.error("GET", f"/schemas/guids/{guid}") == 40403
    assert await ask.get("/subjects") == ["mine"]
    assert [each["subject"] for each in await ask.get("/schemas")] == ["mine"]
    assert await ask.get("/contexts") == ["."]


@asking(rights={f"{GROUP}mine": Permission.READ, f"{GROUP}own": Permission.READ_UPDATE})
async def test_a_schema_refers_only_to_what_its_caller_may_read(ask: Asking) -> None:
    ask.user[0] = "root"
    record = {"type": "record", "name": "R", "fields": [{"name": "secret", "type": "int"}]}
    for subject in ("mine", "other"):
        await ask.register(subject, json.dumps(record))
    ask.user[0] = "ann"

    def referring(subject: str, version: int) -> dict[str, object]:
        text = {"type": "record", "name": "Own", "fields": [{"name": "r", "type": "R"}]}
        return {"schema": json.dumps(text), "references": [{"name": "R", "subject": subject, "version": version}]}

    for subject in ("other", "missing"):
        for version in (1, 2, -1):
            body = referring(subject, version)
            for path in (f"{VERSIONS}?format=resolved", "/subjects/own", f"/compatibility{VERSIONS}"):
                assert await ask.error("POST", path, body) == 40301, (path, subject, version)
    shown = await ask.ok("POST", f"{VERSIONS}?format=resolved", referring("mine", 1))
    assert "secret" in shown["schema"]
    await ask.ok("POST", "/subjects/own", referring("mine", -1))


@asking(rights={f"{GROUP}mine": Permission.READ, f"{GROUP}own": Permission.READ_UPDATE})
async def test_each_call_needs_its_permission(ask: Asking) -> None:
    body = {"schema": STRING}
    assert await ask.register("own") == 1
    await ask.ok("PUT", "/config/own", {"compatibility": "NONE"})
    ask.user[0] = "root"
    await ask.register("mine")
    ask.user[0] = "ann"
    level, mode = {"compatibility": "FULL"}, {"mode": "READONLY"}
    for method, path, given in (
        ("POST", "/subjects/mine/versions", body), ("DELETE", "/subjects/mine", None),
        ("DELETE", "/subjects/mine/versions/1", None), ("PUT", "/config/mine", level), ("PUT", "/mode/mine", mode),
        ("DELETE", "/config/mine", None), ("DELETE", "/mode/mine", None), ("PUT", "/config", level),
        ("PUT", "/mode", mode), ("DELETE", "/config", None), ("DELETE", "/mode", None), ("GET", "/config", None),
        ("GET", "/mode", None), ("GET", "/subjects/other/versions", None), ("GET", "/subjects/other/versions/1", None),
        ("GET", "/subjects/other/versions/1/schema", None), ("GET", "/subjects/other/versions/1/referencedby", None),
        ("GET", "/subjects/other/metadata", None), ("POST", "/subjects/other", body), ("GET", "/config/other", None),
        ("GET", "/mode/other", None), ("POST", "/compatibility/subjects/other/versions", body),
        ("POST", "/compatibility/subjects/other/versions/1", body),
        ("GET", "/contexts/.n/subjects/mine/versions", None),
    ):  # fmt: skip
        assert await ask.error(method, path, given) == 40301, (method, path)
    for method, path, given in (
        ("GET", "/subjects/mine/versions", None), ("POST", "/subjects/mine", body),
        ("POST", "/compatibility/subjects/mine/versions", body), ("GET", "/mode/mine?defaultToGlobal=true", None),
    ):  # fmt: skip
        await ask.ok(method, path, given)
