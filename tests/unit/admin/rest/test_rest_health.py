"""Health in the form of Pravega's API."""

from __future__ import annotations

import asyncio

import httpx
from starlette.applications import Starlette

from sarit.admin.rest.routes import health_routes
from tests.unit.admin.rest.served import FakeHealth, error_of


def answers(*states: str, paths: tuple[str, ...]) -> list[httpx.Response]:
    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(Starlette(routes=health_routes(FakeHealth(*states))))
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            return [await client.get(f"/v1/health{path}") for path in paths]

    return asyncio.run(ask())


def values(*states: str, paths: tuple[str, ...]) -> list[object]:
    return [answer.json() for answer in answers(*states, paths=paths)]


def test_health_of_the_process_holds_that_of_its_containers() -> None:
    (whole,) = values(paths=("",))
    assert (whole["name"], whole["status"], whole["readiness"], whole["liveness"]) == ("node", "UP", True, True)
    assert whole["details"] == {"name": "node", "version": "1", "up_seconds": "1.5", "disk: slow": "it is slow"}
    assert list(whole["children"]) == ["container-0", "container-1"]
    paths = ("/readiness", "/liveness", "/status", "/details", "/node")
    assert values(paths=paths) == [True, True, "UP", whole["details"], whole]


def test_a_part_is_asked_by_its_id() -> None:
    states = ("ready", "failed", "opening")
    paths = ("/status", "/readiness", "/status/container-0", "/readiness/container-0", "/status/container-1",
             "/liveness/container-1")  # fmt: skip
    assert values(*states, paths=paths) == ["DOWN", False, "FAILED", False, "STARTING", True]
    (part,) = values(*states, paths=("/container-1",))
    assert (part["name"], part["details"]["state"], part["children"]) == ("container-1", "opening", {})
    unknown, odd = answers(*states, paths=("/status/container-9", "/details/a%20b"))
    assert "there are container-0, container-1" in error_of(unknown, 404)
    error_of(odd, 400)


def test_a_process_that_starts_or_stops_says_so_and_containers_of_others_are_left_out() -> None:
    assert values("starting", paths=("/status", "/readiness", "/liveness")) == ["STARTING", False, True]
    assert values("stopping", paths=("/status", "/readiness")) == ["DOWN", False]
    (whole,) = values("ready", "absent", "serving", paths=("",))
    assert list(whole["children"]) == ["container-1"]
