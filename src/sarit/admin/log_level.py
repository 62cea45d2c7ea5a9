"""The level of the log, while the process runs: `GET` and `PUT /admin/log-level`.

`PUT` takes a level as text or as `{"level": "debug"}`, from this machine alone: the client's address is a loopback
address, and so is the name under which it asks, so that no page of another site asks for it (`Host`, `Origin`).
The level holds for the process that answers, until its next start or reload.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.routing import Route

from sarit.core.bounded_json import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

PATH = "/admin/log-level"


def routes(
    levels: Sequence[str], current: Callable[[], str], change: Callable[[str], None], *, anywhere: bool = False
) -> list[BaseRoute]:
    """`levels`: those that there are.  `change`: has one of them.  `anywhere`: an administrator asks."""

    async def get(_: Request) -> Response:
        return JSONResponse({"level": current()}, headers={"Cache-Control": "no-store"})

    async def put(request: Request) -> Response:
        if not anywhere and not is_local(request):
            return JSONResponse({"error": "the level of the log is changed from this machine alone"}, 403)
        level = _level(await request.body())
        if level not in levels:
            return JSONResponse({"error": f"{level!r} is no level: give {', '.join(levels)}"}, 400)
        change(level)
        return JSONResponse({"level": current()})

    return [Route(PATH, get, methods=["GET"]), Route(PATH, put, methods=["PUT"])]


def is_local(request: Request) -> bool:
    """Return whether a request comes from this machine, and from no page of another site."""
    if request.client is None or not _is_loopback(request.client.host):
        return False
    if not _is_loopback(_name(f"//{request.headers.get('host', '')}")):
        return False
    origin = request.headers.get("origin")
    return origin is None or _is_loopback(_name(origin))


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _level(body: bytes) -> str:
    text = body.decode(errors="replace").strip()
    if not text.startswith("{"):
        return text.strip('"').lower()
    try:
        return str(parse_json(text).get("level", "")).lower()
    except ValueError:
        return text[:40]
