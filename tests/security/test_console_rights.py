"""What the console lets its users see and change, beside what the controller lets them."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

from sarit.security.permissions import Caller, stream_resource
from tests.security.http_serving import serving
from tests.security.running import PASSWORD
from tests.unit.client.world import until

API = "/console/api"
KEY = base64.b64encode(b"k1").decode()


class User:
    """A user of the console who has logged in."""

    def __init__(self, client, name: str) -> None:
        self._client = client
        self._name = name
        self._token = ""

    async def log_in(self) -> User:
        found = await self._client.post(f"{API}/log-in", json={"user": self._name, "password": PASSWORD})
        assert found.status_code == 200
        self._token = (await self._client.get(f"{API}/session")).json()["token"]
        return self

    async def get(self, path: str, **params):
        found = await self._client.get(API + path, params=params)
        assert found.status_code == 200, found.text
        return found.json()

    async def status(self, method: str, path: str, body=None, **params) -> int:
        headers = {"X-Sarit-Token": self._token}
        return (await self._client.request(method, API + path, json=body, params=params, headers=headers)).status_code


def audited(http) -> set[tuple[str, str, bool]]:
    """Who did what, and whether it was allowed."""
    lines = map(json.loads, Path(http.node.security.config.audit).read_text().splitlines())
    return {(line["who"], line["what"], line["allowed"]) for line in lines}


async def create_objects(http) -> None:
    async with http.secured.client("root") as root:
        await root.create_scope("app")
        await root.create_scope("other")
        await root.create_stream("app/events")
        await root.tables.create("app/table", primary_key_bytes=2)
        await root.table("app/table").put(b"k1", b"value")
        async with root.writer("app/events") as writer:
            writer.write(b"needle")
        group = await root.reader_groups.create("app/group", "app/events")
        await (await group.reader("one")).read_batch(1, timeout=5)


def test_who_may_only_read_sees_everything_and_is_offered_no_change(tmp_path) -> None:
    async def main() -> None:
        async with serving(tmp_path, tls=False) as http, http.as_user() as alices, http.as_user() as bobs:
            await create_objects(http)
            alice, bob = await User(alices, "alice").log_in(), await User(bobs, "bob").log_in()
            for user, may in ((alice, False), (bob, True)):
                assert (await user.get("/streams/app/events"))["may_change"] is may
                assert (await user.get("/tables/app/table"))["may_change"] is may
                assert (await user.get("/groups/app/group"))["may_delete"] is may
                scopes = await user.get("/scopes")
                assert (scopes["scopes"], scopes["may_create"]) == (["app"], ["app"] if may else [])
                assert scopes["may_create_scopes"] is False
                cluster = await user.get("/cluster")
                assert (cluster["cluster"], cluster["quotas"]) == (None, None)
                await user.get("/groups/app/group/lag")
            # Each of these has no button for her, and none of them would be done.
            stream, table, group = "/streams/app/events", "/tables/app/table", "/groups/app/group"
            entry = {"primary": KEY, "text": "x", "version": 0}
            changes = (
                ("POST", "/streams", {"scope": "app", "stream": "new", "scaling": {"type": "fixed"}}),
                ("POST", f"{stream}/events", {"text": "x", "headers": [{"name": "a", "value": "b"}]}),
                ("POST", f"{stream}/truncate", {"cut": "tail"}), ("POST", f"{stream}/seal", {}),
                ("POST", f"{stream}/scale", {"segments": 2}), ("DELETE", stream, {"confirm": "app/events"}),
                ("POST", f"{table}/entry", entry), ("DELETE", f"{table}/entry", entry),
                ("DELETE", table, {"confirm": "app/table"}), ("DELETE", group, {"confirm": "app/group"}),
            )  # fmt: skip
            for change in changes:
                assert await alice.status(*change) == 403, change
            # Who may not even read finds nothing.
            async with http.as_user() as daves:
                dave = await User(daves, "dave").log_in()
                for path in (f"{stream}/search/live", f"{group}/lag", f"{table}/entry", f"{stream}/event"):
                    given = {"primary": KEY, "segment": "0.0", "size": 6}
                    assert await dave.status("GET", path, **given) == 403, path
                assert await dave.status("POST", f"{group}/reset", {"to": "head"}) == 403
                assert await dave.status("POST", f"{group}/offline", {"reader": "one"}) == 403
            # The group is for its readers: they may reset it.
            assert await alice.status("POST", f"{group}/reset", {"to": "head"}) == 200
            assert await alice.status("POST", f"{group}/offline", {"reader": "one"}) == 200
            for change in changes[1:3] + changes[6:]:
                version = (await bob.get(f"{table}/entry", primary=KEY))["version"] if "entry" in change[1] else 0
                assert await bob.status(change[0], change[1], {**change[2], "version": version}) == 200, change
            wanted = ("alice", "truncateStream", False)
            await until(lambda: wanted in audited(http))
            seen = audited(http)
            assert not any(what == "listQuotas" for _, what, _ in seen)  # nobody has asked for them
            assert ("bob", "truncateStream", True) in seen
            assert ("alice", "deleteReaderGroup", True) in seen  # the controller asks who created it
            assert {allowed for who, _, allowed in seen if who == "dave"} == {False}

    asyncio.run(main())


def test_rights_are_those_of_the_rules(tmp_path) -> None:
    async def main() -> None:
        async with serving(tmp_path, tls=False) as http:
            controller = http.node.controller
            bob, root = Caller("bob"), Caller("root", frozenset({"admin"}))
            resource = stream_resource("app", "x")
            assert controller.may_change(bob, resource)
            assert controller.may_change(root, stream_resource("elsewhere", "x"))
            assert not controller.may_change(bob, stream_resource("elsewhere", "x"))
            assert controller.may_change(bob, stream_resource("elsewhere", "x"), resource)
            assert not controller.may_change(Caller("alice"), resource)

    asyncio.run(main())


def test_links_are_for_administrators(tmp_path) -> None:
    async def main() -> None:
        async with serving(tmp_path, tls=False) as http, http.as_user() as roots, http.as_user() as bobs:
            root, bob = await User(roots, "root").log_in(), await User(bobs, "bob").log_in()
            assert (await root.get("/session"))["links"] is True
            assert (await bob.get("/session"))["links"] is False
            for method, path in (("GET", "/links"), ("GET", "/links/a"), ("POST", "/links/a/pause"),
                                 ("POST", "/links/a/resume")):  # fmt: skip
                assert await bob.status(method, path, {}) == 403, path
                # The node of this test has no id, and so no links: an administrator gets that answer.
                assert await root.status(method, path, {}) in (400, 404), path

    asyncio.run(main())
