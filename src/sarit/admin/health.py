"""Probes: whether the process lives, whether all of it serves, and why not.

| path | answers |
|---|---|
| `/livez` | 200 while the event loop turns; `/ping`, the path of Pravega, too |
| `/readyz` | 200 when all parts serve, else 503; the reasons as JSON.  `?exclude=CODE,CODE` leaves out some |
| `/healthz` | 200 with everything that is known, as JSON |
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from sarit.core.errors import Unauthenticated, Unavailable

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from sarit.admin.callers import Gate
    from sarit.admin.reasons import HealthPort


def routes(health: HealthPort, gate: Gate) -> list[BaseRoute]:
    """Return the routes of the probes.  Callers that have not logged in learn only whether the process is ready."""

    async def live(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        excluded = request.query_params.get("exclude", "").split(",")
        reasons = [reason for reason in health.reasons() if reason.code not in excluded]
        serves = all(reason.ready for reason in reasons)
        answer: dict[str, Any] = {"status": "ready" if serves else "not ready"}
        with suppress(Unauthenticated, Unavailable):
            await gate.sees_health(request)
            answer["reasons"] = [asdict(reason) for reason in reasons]
            cluster = health.details().get("cluster")
            if cluster is not None:
                answer["cluster"] = cluster["state"]
        return JSONResponse(answer, 200 if serves else 503, _FRESH)

    async def everything(_: Request) -> Response:
        return JSONResponse(report(health), headers=_FRESH)

    details = gate.behind([Route("/healthz", everything)], gate.sees_health)
    return [Route("/livez", live), Route("/ping", live), Route("/readyz", ready), *details]


_FRESH = {"Cache-Control": "no-store"}


def report(health: HealthPort) -> dict[str, Any]:
    """Return the whole report of health, which `/healthz` answers."""
    reasons = health.reasons()
    ready = all(reason.ready for reason in reasons)
    found = [asdict(reason) for reason in reasons]
    return {"state": health.state(), "ready": ready, "reasons": found, **health.details()}
