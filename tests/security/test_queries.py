"""Queries of the console with users: each reads what its caller may read, and is in the audit log."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.security.http_serving import serving
from tests.security.running import PASSWORD

API = "/console/api"
COUNT = "SELECT count(*) FROM {}"


class User:
    """A user of the console who has logged in."""

    def __init__(self, client, name: str) -> None:
        self._client = client
        self._name = name
        self.token = ""

    async def log_in(self) -> User:
        found = await self._client.post(f"{API}/log-in", json={"user": self._name, "password": PASSWORD})
        assert found.status_code == 200
        self.token = (await self._client.get(f"{API}/session")).json()["token"]
        return self

    async def query(self, sql: str, status: int = 200, **headers: str):
        """The last line of the answer, or an error."""
        given = {"X-Sarit-Token": self.token} | headers
        found = await self._client.post(f"{API}/query", json={"sql": sql}, headers=given, timeout=60)
        assert found.status_code == status, found.text
        return [json.loads(line) for line in found.text.splitlines()]

    async def count(self, stream: str) -> int:
        """How many events of a stream a query counts."""
        lines = await self.query(COUNT.format(stream))
        (rows,) = [line["rows"] for line in lines if "rows" in line]
        return int(rows[0][0])

    async def refusal(self, stream: str) -> str:
        """Why a query of a stream fails."""
        return (await self.query(COUNT.format(stream)))[-1]["failed"]["error"]


async def create_streams(http) -> None:
    async with http.secured.client("root") as root:
        for scope in ("app", "other"):
            await root.create_scope(scope)
            await root.create_stream(f"{scope}/events")
            async with root.writer(f"{scope}/events") as writer:
                writer.write(b"one")
                writer.write(b"two")


def audited(http) -> list[dict]:
    lines = map(json.loads, Path(http.node.security.config.audit).read_text().splitlines())
    return [line for line in lines if line["what"] == "query"]


def test_a_query_reads_what_its_caller_may_read(tmp_path):
    async def main() -> None:
        # Who may only look may query, too: a query changes nothing.
        async with serving(tmp_path, tls=False, console="read-only") as http, http.as_user() as alices:
            await create_streams(http)
            async with http.as_user() as nobody:
                assert (await nobody.post(f"{API}/query", json={"sql": "SELECT 1"})).status_code in (401, 403)
            alice = await User(alices, "alice").log_in()
            assert await alice.count("app.events") == 2
            refused = await alice.refusal("other.events")
            assert "alice" in refused
            assert "other" in refused
            async with http.as_user() as roots:
                assert await (await User(roots, "root").log_in()).count("other.events") == 2
            # Pages of other sites, and requests without the page's token, start no query.
            assert (await alice.query("SELECT 1", 403, **{"X-Sarit-Token": "wrong"}))[0]["error"]
            assert (await alice.query("SELECT 1", 403, **{"Sec-Fetch-Site": "cross-site"}))[0]["error"]
            # The tables of the engine show nothing of the node.
            lines = await alice.query("SELECT value FROM duckdb_settings() WHERE name = 'secret_directory'")
            assert "root" not in json.dumps([line for line in lines if "rows" in line])
        found = audited(http)
        assert [line["who"] for line in found] == ["alice", "alice", "root", "alice"]
        assert {(line["who"], line["allowed"]) for line in found} == {("alice", True), ("root", True)}
        assert any(line["why"] == f"sql: {COUNT.format('other.events')}" for line in found)

    asyncio.run(main())


def test_the_console_can_be_off(tmp_path):
    async def main() -> None:
        async with serving(tmp_path, tls=False, console="off") as http, http.as_user() as somebody:
            assert (await somebody.post(f"{API}/query", json={"sql": "SELECT 1"})).status_code == 404

    asyncio.run(main())
