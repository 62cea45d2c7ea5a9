"""Levels and modes by Confluent's API, beside policies that it cannot express."""

from __future__ import annotations

import pytest

from sarit.registry.values import GroupName, Mode
from sarit.schemas.compatibility import Level, Policy, PolicyName, Span, Till
from tests.unit.registry.confluent.asking import INT, STRING, Asking, asking

NAME = GroupName("", "s")


@pytest.mark.parametrize("level", [level.value for level in Level])
@asking
async def test_levels(ask: Asking, level) -> None:
    assert await ask.ok("PUT", "/config/s", {"compatibility": level.lower()}) == {"compatibility": level}
    assert await ask.get("/config/s") == {"compatibilityLevel": level}
    assert await ask.ok("DELETE", "/config/s") == {"compatibilityLevel": level}
    assert await ask.error("GET", "/config/s") == 40408
    assert await ask.error("DELETE", "/config/s") == 40401
    assert await ask.get("/config/s?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}


@asking
async def test_levels_of_contexts_and_of_everything(ask: Asking) -> None:
    assert await ask.get("/config") == {"compatibilityLevel": "BACKWARD"}
    assert await ask.ok("DELETE", "/config") == {"compatibilityLevel": "BACKWARD"}
    await ask.ok("PUT", "/config", {"compatibilityLevel": "FULL"})
    assert await ask.get("/config") == {"compatibilityLevel": "FULL"}
    await ask.ok("PUT", "/contexts/.n/config", {"compatibility": "NONE"})
    assert await ask.get("/config/:.n:") == {"compatibilityLevel": "NONE"}
    assert await ask.get("/config/:.n:s?defaultToGlobal=true") == {"compatibilityLevel": "NONE"}
    assert await ask.get("/config/:.m:s?defaultToGlobal=true") == {"compatibilityLevel": "FULL"}
    assert await ask.get("/config/:.__GLOBAL:") == {"compatibilityLevel": "FULL"}
    assert await ask.ok("DELETE", "/config") == {"compatibilityLevel": "FULL"}
    assert await ask.get("/config") == {"compatibilityLevel": "BACKWARD"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ([], 42203),
        ({"compatibility": "BEST"}, 42203),
        ({"compatibility": 1}, 42203),
        ({"compatibility": "FULL", "alias": "t"}, 42205),
        ({"compatibilityGroup": "g"}, 42205),
    ],
)
@asking
async def test_bad_levels(ask: Asking, body, code) -> None:
    assert await ask.error("PUT", "/config/s", body) == code
    assert await ask.error("PUT", "/config", body) == code
    assert await ask.error("GET", "/config/s") == 40408


@asking
async def test_a_request_without_a_level_changes_nothing(ask: Asking) -> None:
    assert await ask.ok("PUT", "/config/s", {"compatibility": None, "normalize": True}) == {}
    assert await ask.error("GET", "/config/s") == 40408


@asking
async def test_modes(ask: Asking) -> None:
    await ask.register("s")
    assert await ask.get("/mode") == {"mode": "READWRITE"}
    assert await ask.error("GET", "/mode/s") == 40409
    assert await ask.get("/mode/s?defaultToGlobal=true") == {"mode": "READWRITE"}
    assert await ask.ok("PUT", "/mode/s", {"mode": "readonly"}) == {"mode": "READONLY"}
    assert await ask.get("/mode/s") == {"mode": "READONLY"}
    assert await ask.error("POST", "/subjects/s/versions", {"schema": '["null","string"]'}) == 42205
    assert ask.statistics.registrations["read_only"] == 1
    assert await ask.error("DELETE", "/subjects/s") == 42205
    assert await ask.ok("DELETE", "/mode/s") == {"mode": "READONLY"}
    assert await ask.error("DELETE", "/mode/s") == 40401
    assert await ask.ok("PUT", "/mode", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert await ask.error("POST", "/subjects/t/versions", {"schema": INT}) == 42205
    assert await ask.ok("DELETE", "/mode") == {"mode": "READONLY"}
    assert await ask.ok("DELETE", "/mode") == {"mode": "READWRITE"}
    for body in ([], {}, {"mode": None}, {"mode": "FORWARD"}, {"mode": 1}):
        assert await ask.error("PUT", "/mode/s", body) == 42204


@asking
async def test_schemas_are_imported_with_their_ids(ask: Asking) -> None:
    await ask.register("old")
    assert await ask.error("PUT", "/mode/old", {"mode": "IMPORT"}) == 42205
    assert await ask.ok("PUT", "/mode/old?force=true", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    assert await ask.ok("PUT", "/mode/s", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    assert await ask.error("POST", "/subjects/s/versions", {"schema": INT}) == 42205
    found = await ask.ok("POST", "/subjects/s/versions", {"schema": INT, "id": 77, "version": 5})
    assert (found["id"], found["version"]) == (77, 5)
    assert await ask.get("/subjects/s/versions") == [5]
    await ask.ok("PUT", "/mode/s", {"mode": "READWRITE"})
    assert await ask.register("t", '"long"') == 78


@asking
async def test_a_policy_that_is_no_level_is_shown_as_a_stricter_one_and_kept(ask: Asking) -> None:
    id = await ask.register("s")
    for policy, shown in (
        (Policy(PolicyName.ADVANCED, Till(1), None), "BACKWARD_TRANSITIVE"),
        (Policy(PolicyName.ADVANCED, Span.LATEST, Span.EVERY), "FULL_TRANSITIVE"),
    ):
        await ask.registry.set_policy(NAME, policy)
        assert await ask.get("/config/s") == {"compatibilityLevel": shown}
        assert await ask.error("PUT", "/config/s", {"compatibility": "FULL"}) == 409
        assert await ask.error("DELETE", "/config/s") == 409
        assert (await ask.registry.own_settings(NAME)).policy == policy
    assert id == 1


@asking
async def test_deny_all_is_shown_as_read_only(ask: Asking) -> None:
    await ask.register("s", STRING)
    await ask.registry.set_policy(NAME, Policy(PolicyName.DENY_ALL))
    assert await ask.get("/config/s") == {"compatibilityLevel": "FULL_TRANSITIVE"}
    assert await ask.get("/mode/s") == {"mode": "READONLY"}
    assert await ask.error("PUT", "/mode/s", {"mode": "READWRITE"}) == 409
    assert await ask.ok("PUT", "/mode/s", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert await ask.error("POST", "/subjects/s/versions", {"schema": '["null","string"]'}) == 42205
    assert (await ask.registry.own_settings(NAME)).mode is Mode.READONLY
