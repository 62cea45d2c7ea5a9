"""Pravega's registry API: who may call what."""

from __future__ import annotations

import pytest

from sarit.core.errors import Unauthenticated, Unavailable
from sarit.registry.access import Guard
from sarit.registry.pravega.calls import CALLS
from sarit.security.permissions import Caller, Permission
from tests.unit.registry.pravega_peer import Peer, group_request, info, record

SCHEMA = info("a.Person", record("a.Person", "name"))
VERSION = {"type": "a.Person", "version": 0, "id": 0}
NAMES = {
    "group": "g",
    "id": "0",
    "format": "Avro",
    "type": "a.Person",
    "version": "0",
    "encoding": "0",
    "namespace": "ns",
}
BODIES = {
    "create_group": group_request("new"),
    "set_policy": {"compatibility": {"policy": "Full"}},
    "register": info("a.Person", record("a.Person", "name", city="")),
    "find_schema": SCHEMA,
    "check": {"schemaInfo": SCHEMA},
    "can_read": SCHEMA,
    "encode": {"versionInfo": VERSION, "codecType": ""},
    "add_codec": {"name": "mine"},
    "list_groups_of_schema": SCHEMA,
}
# The least permission on the group that a call needs; lists of all groups need none, and leave groups out.
NEEDS = {
    "ping": Permission.NONE,
    "list_groups": Permission.NONE,
    "list_groups_of_schema": Permission.NONE,
    **dict.fromkeys(
        ("show_group", "show_history", "list_latest", "list_versions", "find_schema", "check", "can_read",
         "show_schema", "show_version", "encode", "show_encoding", "list_codecs"), Permission.READ,
    ),
    **dict.fromkeys(
        ("create_group", "delete_group", "set_policy", "register", "delete_schema", "delete_version", "add_codec"),
        Permission.READ_UPDATE,
    ),
}  # fmt: skip


class Rules:
    """The permissions of one caller on all groups; what was asked."""

    def __init__(self) -> None:
        self.permission = Permission.READ_UPDATE
        self.asked: set[str] = set()

    def of(self, _: Caller, resource: str) -> Permission:
        self.asked.add(resource)
        return self.permission


async def somebody(_) -> Caller:
    return Caller("ann")


@pytest.fixture
def rules():
    return Rules()


@pytest.fixture
def peer(rules):
    with Peer(Guard(rules.of), somebody) as made:
        for path in ("/groups", "/namespace/ns/groups"):
            made.send("POST", path, group_request("g"), 201)
            made.send("POST", f"{path}/g/schemas", SCHEMA, 201)
            made.send("PUT", f"{path}/g/encodings", BODIES["encode"])
        rules.asked.clear()
        yield made


@pytest.mark.parametrize("permission", list(Permission))
@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_each_call_needs_its_permission(peer, rules, call, permission) -> None:
    rules.permission = permission
    path = call.path.format(**NAMES)
    answer = peer._http.request(call.method, path, json=BODIES.get(call.name))
    if permission < NEEDS[call.name]:
        assert answer.status_code == 403
        assert "ann may not" in answer.json()["error"]
        rules.permission = Permission.READ_UPDATE
        namespace = "/namespace/ns" if path.startswith("/v1/namespace") else ""
        assert list(peer.get(f"{namespace}/groups")["groups"]) == ["g"]
        assert len(peer.get(f"{namespace}/groups/g/schemas/versions")["schemas"]) == 1
        assert peer.get(f"{namespace}/groups/g")["compatibility"] == {"policy": "Backward"}
    elif call.name == "list_groups_of_schema" and permission is Permission.NONE:
        assert answer.status_code == 404
    else:
        assert answer.status_code < 300, answer.text
        if call.name == "list_groups":
            assert list(answer.json()["groups"]) == (["g"] if permission else [])
    if "/namespace/" in path and NEEDS[call.name] is not Permission.NONE:
        assert all(resource.startswith("prn::/namespace:ns") for resource in rules.asked)


def test_refusal_comes_before_the_body_is_judged_and_is_the_same_without_the_group(peer, rules) -> None:
    rules.permission = Permission.NONE
    for group in ("g", "absent"):
        for path, body in ((f"/groups/{group}/schemas", {}), (f"/groups/{group}/schemas/versions/validate", [])):
            assert peer.ask("POST", path, body).status_code == 403
        assert peer.ask("PUT", f"/groups/{group}/encodings", {}).status_code == 403
        assert peer.ask("GET", f"/groups/{group}").status_code == 403


def test_pages_are_filled_with_what_the_caller_may_see() -> None:
    def permission(_: Caller, resource: str) -> Permission:
        return Permission.READ if resource.endswith(("g3", "g7")) else Permission.NONE

    writer, reader = Caller("writer"), Caller("reader")
    callers = [writer]

    async def current(_) -> Caller:
        return callers[0]

    guard = Guard(lambda caller, resource: Permission.READ_UPDATE if caller is writer else permission(caller, resource))
    with Peer(guard, current) as peer:
        for number in range(9):
            peer.create(f"g{number}")
        callers[0] = reader
        first = peer.get("/groups?limit=1")
        assert list(first["groups"]) == ["g3"]
        second = peer.get(f"/groups?limit=1&continuationToken={first['continuationToken']}")
        assert list(second["groups"]) == ["g7"]
        assert peer.get(f"/groups?limit=1&continuationToken={second['continuationToken']}")["groups"] == {}


@pytest.mark.parametrize(("error", "status"), [(Unauthenticated("log in"), 401), (Unavailable("later"), 503)])
def test_caller_who_is_not_known_is_not_answered(error, status) -> None:
    async def refuse(_) -> Caller:
        raise error

    with Peer(Guard(), refuse) as peer:
        answer = peer.ask("GET", "/groups")
    assert answer.status_code == status
    assert ("WWW-Authenticate" in answer.headers) == (status == 401)


def test_audit_log_notes_who_did_what_from_where(rules) -> None:
    class Notes:
        def __init__(self) -> None:
            self.found: list[dict] = []

        def note(self, **what: object) -> None:
            self.found.append(what)

    notes = Notes()
    with Peer(Guard(rules.of, notes), somebody) as peer:
        peer.create("g")
        rules.permission = Permission.READ
        peer.send("DELETE", "/groups/g", status=403)
    created, refused = notes.found
    assert (created["who"], created["what"], created["allowed"]) == ("ann", "registry: create", True)
    assert (refused["what"], refused["allowed"]) == ("registry: delete", False)
    assert refused["resource"] == "prn::/namespace:/group:g"
    assert refused["peer"].startswith("testclient:")
