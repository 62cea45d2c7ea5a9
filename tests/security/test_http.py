"""REST, console, metrics and health of a node with users and TLS: who may do what."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import httpx
import pytest

from sarit.process.observation.logs import current_logs
from tests.security.http_serving import serving
from tests.security.running import PASSWORD
from tests.unit.client.world import until

_ALICE, _BOB, _ROOT = (("alice", PASSWORD), ("bob", PASSWORD), ("root", PASSWORD))


@pytest.fixture(scope="module")
def runner():
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def http(runner, tmp_path_factory):
    made = serving(tmp_path_factory.mktemp("http"))
    yield runner.run(made.__aenter__())
    runner.run(made.__aexit__(None, None, None))


async def _get(http, path, auth=None, **options):
    async with http.as_user(auth) as client:
        return await client.get(path, **options)


def _refusals_of_alice(http) -> list[dict]:
    lines = map(json.loads, Path(http.node.security.config.audit).read_text().splitlines())
    return [line for line in lines if line["who"] == "alice" and not line["allowed"]]


def test_rest_acts_with_the_rights_of_its_caller(runner, http):
    async def main() -> None:
        scope, stream = {"scopeName": "app"}, {"streamName": "s"}
        async with http.as_user() as nobody, http.as_user(_ALICE) as alice, http.as_user(_BOB) as bob:
            found = await nobody.get("/v1/scopes")
            assert found.status_code == 401
            assert found.headers["www-authenticate"].startswith("Basic ")
            assert (await bob.post("/v1/scopes", json=scope)).status_code == 201
            assert (await bob.post("/v1/scopes/app/streams", json=stream)).status_code == 201
            connections = http.node.controller_role.listener.connections
            found = await alice.delete("/v1/scopes/app/streams/s")
            assert http.node.controller_role.listener.connections == connections  # it is called in process
            assert found.status_code == 403
            assert "alice may not change prn::/scope:app/stream:s" in found.json()["error"]
            assert "sarit acl grant user:alice" in found.json()["error"]
            await until(lambda: _refusals_of_alice(http))
            refused = _refusals_of_alice(http)[0]
            assert (refused["what"], refused["resource"]) == ("deleteStream", "prn::/scope:app/stream:s")
            assert refused["from"].startswith("127.0.0.1:")  # where the request over HTTP came from
            assert (await alice.get("/v1/scopes/app/streams/s")).status_code == 200
            assert (await bob.post("/v1/scopes", json={"scopeName": "theirs"})).status_code == 403
        async with http.as_user(_ROOT) as root:
            assert (await root.post("/v1/scopes", json={"scopeName": "other"})).status_code == 201
        assert (await _get(http, "/v1/scopes", _ALICE)).json() == {"scopes": [scope]}
        wrong = await _get(http, "/v1/scopes", ("alice", "something else"))
        assert (wrong.status_code, wrong.json()) == (401, {"error": "user or password is wrong"})

    runner.run(main())


def test_wrong_passwords_over_http_lock_as_those_over_grpc(runner, http):
    async def main() -> None:
        async with http.as_user() as client:
            for number in range(10):
                assert (await client.get("/v1/scopes", auth=("mallory", f"guess {number}"))).status_code == 401
            found = await client.get("/v1/scopes", auth=("mallory", "one more"))
        assert found.status_code == 401
        assert "too many wrong passwords" in found.json()["error"]

    runner.run(main())


def test_metrics_and_details_need_a_log_in_and_probes_do_not(runner, http):
    async def main() -> None:
        assert (await _get(http, "/livez")).status_code == 200
        assert (await _get(http, "/ping")).status_code == 200
        assert (await _get(http, "/readyz")).json() == {"status": "ready"}
        assert (await _get(http, "/readyz", _ALICE)).json() == {"status": "ready", "reasons": []}
        for path in ("/healthz", "/metrics", "/v1/health", "/admin/log-level"):
            assert (await _get(http, path)).status_code == 401, path
        assert (await _get(http, "/healthz", _ALICE)).json()["ready"] is True
        refused = await _get(http, "/metrics", _ALICE)
        assert refused.status_code == 403
        assert "needs the role metrics" in refused.json()["error"]
        for user in ("scrape", "root"):
            assert "sarit_build_info" in (await _get(http, "/metrics", (user, PASSWORD))).text

    runner.run(main())


def test_level_of_the_log_is_for_administrators(runner, http):
    async def main() -> None:
        level = current_logs().level
        async with http.as_user(_BOB) as bob, http.as_user(_ROOT) as root:
            assert (await bob.put("/admin/log-level", content="debug")).status_code == 403
            assert (await root.put("/admin/log-level", content=level)).json() == {"level": level}

    before = logging.getLogger().level
    runner.run(main())
    assert logging.getLogger().level == before


def test_console_shows_and_changes_what_its_user_may(runner, http):
    async def main() -> None:
        async with http.as_user() as nobody:
            assert (await nobody.get("/")).status_code == 200
            assert (await nobody.get("/console/api/session")).json() == {"log_in": True}
            for path in ("/overview", "/settings", "/streams", "/overview/live"):
                found = await nobody.get(f"/console/api{path}")
                assert (found.status_code, "www-authenticate" in found.headers) == (401, False), path
            assert (await nobody.post("/console/api/scopes", json={"scope": "x"})).status_code == 401
        async with http.as_user() as alice:
            session = await _log_in(alice, *_ALICE)
            assert (session["user"], session["writes"]) == ("alice", True)
            change = {"X-Sarit-Token": session["token"]}
            found = await alice.post("/console/api/scopes", json={"scope": "x"}, headers=change)
            assert found.status_code == 403
            assert "alice may not change" in found.json()["error"]
            assert "role admin" in (await alice.get("/console/api/settings")).json()["error"]
            assert (await alice.get("/console/api/overview")).json()["health"] == "ok"
            # Without the token of this session, as a page of another site would send it.
            assert (await alice.post("/console/api/log-out", json={})).status_code == 403
            cookie = {"Cookie": "; ".join(f"{name}={value}" for name, value in alice.cookies.items())}
            assert (await alice.post("/console/api/log-out", json={}, headers=change)).status_code == 200
            # The cookie is worth nothing any more, also to who has kept it.
            assert (await _get(http, "/console/api/overview", headers=cookie)).status_code == 401
        async with http.as_user() as root:
            session = await _log_in(root, *_ROOT)
            change = {"X-Sarit-Token": session["token"]}
            assert (await root.post("/console/api/scopes", json={"scope": "x"}, headers=change)).status_code == 200
            assert (await root.get("/console/api/settings")).status_code == 200

    runner.run(main())


async def _log_in(client, user, password):
    found = await client.post("/console/api/log-in", json={"user": user, "password": password})
    assert found.status_code == 200, found.text
    cookie = found.headers["set-cookie"]
    assert all(f"; {word}" in cookie for word in ("HttpOnly", "SameSite=Strict", "Secure", "Path=/console/api"))
    assert password not in found.text + cookie
    return (await client.get("/console/api/session")).json()


def test_console_refuses_log_ins_of_other_pages_and_wrong_passwords(runner, http):
    async def main() -> None:
        async with http.as_user() as client:
            right = {"user": "alice", "password": PASSWORD}
            found = await client.post(
                "/console/api/log-in", json=right, headers={"Origin": "https://elsewhere.example"}
            )
            assert found.status_code == 403
            found = await client.post("/console/api/log-in", json={**right, "password": "wrong one"})
            assert (found.status_code, found.json()["error"]) == (401, "user or password is wrong")
            assert (await client.post("/console/api/log-in", json={"user": "alice"})).status_code == 400
            assert not client.cookies

    runner.run(main())


def test_port_speaks_tls_alone_and_no_http_2(runner, http):
    async def main() -> str | None:
        with pytest.raises(httpx.HTTPError):
            async with httpx.AsyncClient() as client:
                await client.get(http.base.replace("https", "http") + "/livez")
        context = http.context
        context.set_alpn_protocols(["h2", "http/1.1"])
        _, writer = await asyncio.open_connection("127.0.0.1", http.admin.port, ssl=context)
        found = writer.get_extra_info("ssl_object").selected_alpn_protocol()
        writer.close()
        return found

    assert runner.run(main()) == "http/1.1"
