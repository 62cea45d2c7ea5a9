"""The routes of Pravega's API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.registry import web
from sarit.registry.pravega.calls import CALLS
from sarit.registry.pravega.face import PravegaFace
from sarit.registry.pravega.group_calls import GroupCalls
from sarit.registry.pravega.schema_calls import SchemaCalls

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from sarit.registry.access import Guard
    from sarit.registry.registry import Registry
    from sarit.registry.statistics import Statistics
    from sarit.registry.web import Identify


def routes(
    registry: Registry, guard: Guard, identify: Identify, statistics: Statistics, prefix: str = ""
) -> list[BaseRoute]:
    """Return the routes of Pravega's API under a path: `/v1/groups`, `/v1/namespace`, `/v1/schemas` and `/ping`.

    See `web.routes` for what is given.  They come before others under `/v1`, which answer what is not there."""
    handlers = {**GroupCalls(registry, guard).handlers(), **SchemaCalls(registry, guard, statistics).handlers()}
    return web.routes(PravegaFace(), CALLS, handlers, identify, statistics, prefix)
