"""The route of the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Route

from sarit.admin.exposition import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.routing import BaseRoute


def routes(scrape: Callable[[], Awaitable[bytes]]) -> list[BaseRoute]:
    """Return the route `/metrics`.  `scrape`: makes the text for Prometheus, for each request."""

    async def metrics(_: Request) -> Response:
        return Response(await scrape(), media_type=CONTENT_TYPE)

    return [Route("/metrics", metrics, methods=["GET"])]
