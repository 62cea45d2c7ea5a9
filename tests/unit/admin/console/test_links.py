"""The page of links: what it shows, and that it pauses and resumes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sarit.admin.console.links import LinkCalls
from sarit.core.errors import Forbidden, NotFound
from sarit.core.links import LinkDirection, LinkInfo, LinkRole, LinkSettings, LinkState, LinkStatus, StreamProblem
from tests.console.serving import serving
from tests.unit.admin.console.pages import Page

PLACE = "/etc/sarit/secret-place.password"
SETTINGS = LinkSettings(
    LinkDirection.PUSH, "core.example:9090", user="edge7", password=f"file:{PLACE}", include=("plant/*",),
    priorities=(("plant/alarms", 9),), bytes_per_second=1000, hold_bytes=1 << 30,
)  # fmt: skip
STATUS = LinkStatus(
    up=True, contact_ms=5, streams=7, lag_bytes=1024, lag_seconds=2.5, copied_bytes=99, lost_bytes=3, failing=2,
    problems=(StreamProblem("plant/<script>", "a user's stream has this name"),), note="it waits",
)  # fmt: skip
LINK = LinkInfo(
    "to-core", b"1" * 16, 1, LinkRole.ACTIVE, LinkState.ACTIVE, SETTINGS, "core", 4, STATUS, "127.0.0.1:9090", ""
)


class Links:
    """The links of an installation."""

    def __init__(self) -> None:
        self.found = {LINK.name: LINK}
        self.refused: Exception | None = None

    async def list(self) -> tuple[LinkInfo, ...]:
        if self.refused is not None:
            raise self.refused
        return tuple(self.found.values())

    async def get(self, name: str) -> LinkInfo:
        if name not in self.found:
            raise NotFound(f"there is no link {name}")
        return self.found[name]

    async def pause(self, name: str) -> LinkInfo:
        return self._set(name, LinkState.PAUSED)

    async def resume(self, name: str) -> LinkInfo:
        return self._set(name, LinkState.ACTIVE)

    def _set(self, name: str, state: LinkState) -> LinkInfo:
        self.found[name] = replace(self.found[name], state=state)
        return self.found[name]


class Client:
    """A client whose links are given."""

    def __init__(self) -> None:
        self.links = Links()


class Path:
    """A request with the parts of its path."""

    def __init__(self, link: str) -> None:
        self.path_params = {"link": link}


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def calls(client) -> LinkCalls:
    return LinkCalls(client)


def test_links_are_listed_with_lag_and_problems(calls, client) -> None:
    client.links.found["to-core"] = replace(LINK, problem="its run failed")
    (row,) = asyncio.run(calls.links(None))["links"]
    assert row == {
        "link": "to-core", "direction": "push", "runs_here": True, "peer": "core.example:9090",
        "peer_installation": "core", "state": "active", "up": True, "streams": 7, "failing": 2, "lag_bytes": 1024,
        "lag_ms": 2500, "copied_bytes": 99, "lost_bytes": 3, "problem": "its run failed",
    }  # fmt: skip


def test_a_link_shows_its_settings_and_what_fails_and_not_where_its_password_is(calls) -> None:
    found = asyncio.run(calls.details(Path("to-core")))
    assert found["problems"] == [{"stream": "plant/<script>", "text": "a user's stream has this name"}]
    assert (found["problem"], found["holder"], found["contact_ms"]) == ("it waits", "127.0.0.1:9090", 5)
    settings = found["settings"]
    assert (settings["user"], settings["password_from"]) == ("edge7", "file")
    assert (settings["include"], settings["priorities"]) == (("plant/*",), [{"glob": "plant/alarms", "level": 9}])
    assert PLACE not in str(found)


def test_a_link_is_paused_and_resumed(calls, client) -> None:
    assert asyncio.run(calls.pause(Path("to-core")))["state"] == "paused"
    assert client.links.found["to-core"].state is LinkState.PAUSED
    assert asyncio.run(calls.resume(Path("to-core")))["state"] == "active"
    with pytest.raises(NotFound):
        asyncio.run(calls.details(Path("none")))


def test_the_node_answers_by_its_controller(tmp_path) -> None:
    async def main() -> None:
        async with serving(tmp_path / "node") as made:
            page = Page(made)
            assert (await page.get("/session"))["links"] is True
            assert (await page.get("/links"))["links"] == []
            client = next(iter(made.console._calls.values()))._asker.client
            client._links = Links()
            assert [one["link"] for one in (await page.get("/links"))["links"]] == ["to-core"]
            assert (await page.get("/links/to-core"))["settings"]["user"] == "edge7"
            await page.get("/links/none", 404)
            assert (await page.send("POST", "/links/to-core/pause", {}))["state"] == "paused"
            assert (await page.send("POST", "/links/to-core/resume", {}))["state"] == "active"
            client._links.refused = Forbidden("that needs READ_UPDATE of prn::/")
            await page.get("/links", 403)

    asyncio.run(main())


def test_a_console_that_only_reads_pauses_nothing(tmp_path) -> None:
    async def main() -> None:
        async with serving(tmp_path / "node", writes=False) as made:
            page = Page(made)
            await page.get("/session")
            client = next(iter(made.console._calls.values()))._asker.client
            client._links = Links()
            await page.get("/links/to-core")
            await page.send("POST", "/links/to-core/pause", {}, 403)
            assert client._links.found["to-core"].state is LinkState.ACTIVE

    asyncio.run(main())
