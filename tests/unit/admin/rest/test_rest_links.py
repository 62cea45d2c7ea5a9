"""Links by REST: bodies, and the life of a link."""

from __future__ import annotations

import asyncio

import pytest

from sarit import aio
from sarit.admin.rest.links import link_property, settings_of
from sarit.admin.rest.models import MODELS
from sarit.admin.rest.schema import check
from sarit.core.links import LinkInfo, LinkRole, LinkState, LinkStatus, StreamProblem
from sarit.env.real import real_env
from sarit.mirror.limits import MAX_LINK_GLOBS, MAX_LINK_NAME_CHARACTERS, MAX_LINK_TEXT_CHARACTERS
from sarit.process.ownership.claims import claim_directory
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from tests.limits import HANG_SECONDS
from tests.unit.admin.rest.served import error_of, rest_on
from tests.unit.mirror.test_links import FULL, SETTINGS

STATUS = LinkStatus(True, 5, 3, 7, 1.5, 9, 1, -2, True, 1, (StreamProblem("a/x", "no"),), "hi")


@pytest.mark.parametrize("settings", [SETTINGS, FULL])
def test_a_link_is_shown_as_the_document_says_and_its_settings_can_be_sent_back(settings) -> None:
    info = LinkInfo("a", bytes(16), 5, LinkRole.ACTIVE, LinkState.ACTIVE, settings, "there", 7, STATUS, "h:1", "why")
    shown = link_property(info)
    assert set(shown) == set(MODELS["LinkProperty"]["properties"]) - {"version"}
    assert set(shown["status"]) == set(MODELS["LinkStatus"]["properties"])
    check(MODELS["LinkSettings"], shown["settings"], MODELS)
    assert settings_of(shown["settings"]) == settings
    nothing = dict.fromkeys(MODELS["LinkSettings"]["properties"]) | {"direction": "push", "peer": "core:9090"}
    assert settings_of(nothing) == SETTINGS


def test_bounds_are_those_of_the_controller() -> None:
    settings, link = MODELS["LinkSettings"]["properties"], MODELS["CreateLinkRequest"]["properties"]["linkName"]
    assert link["maxLength"] == MAX_LINK_NAME_CHARACTERS
    assert settings["peer"]["maxLength"] == MAX_LINK_TEXT_CHARACTERS
    assert settings["include"]["anyOf"][0]["maxItems"] == MAX_LINK_GLOBS


def test_the_life_of_a_link(tmp_path) -> None:
    async def main() -> None:
        env = real_env()
        config = NodeConfig(str(tmp_path / "node"), controller_port=0, store_port=0, jobs=True).validated()
        claim = claim_directory(config, env)
        node = await open_node(config, env, claim)
        await node.start(claim)
        try:
            async with (
                asyncio.timeout(HANG_SECONDS),
                aio.connect(f"127.0.0.1:{node.controller_port}") as client,
                rest_on(client) as rest,
            ):
                await life(rest)
        finally:
            await node.stop()

    asyncio.run(main())


async def life(rest) -> None:
    settings = {"direction": "pull", "peer": "127.0.0.1:1", "include": ["s/*"]}
    created = await rest.post("/v1/links", json={"linkName": "a", "settings": settings, "paused": True})
    assert (created.status_code, created.json()["state"]) == (201, "paused")
    again = await rest.post("/v1/links", json={"linkName": "a", "settings": settings})
    assert "give another name" in error_of(again, 409)
    other = await rest.post("/v1/links", json={"linkName": "b", "settings": {**settings, "peer": "127.0.0.1:2"}})
    assert "the same stream" in error_of(other, 409)
    wrong = await rest.post("/v1/links", json={"linkName": "b", "settings": {**settings, "user": "u", "password": "x"}})
    assert "never the password" in error_of(wrong, 400)
    assert (await rest.post("/v1/links", json={"linkName": "A", "settings": settings})).status_code == 400
    assert [link["linkName"] for link in (await rest.get("/v1/links")).json()["links"]] == ["a"]
    changed = await rest.put("/v1/links/a", json={**settings, "bytesPerSecond": 1_000_000})
    assert changed.json()["settings"]["bytesPerSecond"] == 1_000_000
    for state in ("active", "paused"):
        assert (await rest.put("/v1/links/a/state", json={"state": state})).json()["state"] == state
    promoted = await rest.post("/v1/links/a/promotion", json={"planned": False})
    assert (promoted.json()["promoted"], promoted.json()["link"]["state"]) == (0, "promoted")
    assert (await rest.delete("/v1/links/a")).status_code == 204
    assert "there is no link a" in error_of(await rest.get("/v1/links/a"), 404)
