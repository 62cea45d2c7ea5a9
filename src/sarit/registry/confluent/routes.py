"""The routes of Confluent's API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.registry import web
from sarit.registry.confluent.calls import CALLS
from sarit.registry.confluent.errors import ConfluentFace
from sarit.registry.confluent.schema_calls import SchemaCalls
from sarit.registry.confluent.setting_calls import SettingCalls
from sarit.registry.confluent.subject_calls import SubjectCalls

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from sarit.registry.access import Guard
    from sarit.registry.registry import Registry
    from sarit.registry.statistics import Statistics
    from sarit.registry.web import Identify


def routes(
    registry: Registry, guard: Guard, identify: Identify, statistics: Statistics, prefix: str = ""
) -> list[BaseRoute]:
    """Return the routes of Confluent's API under a path; see `web.routes`.  They answer every path below it, so they
    come last."""
    handlers = {
        **SubjectCalls(registry, guard, statistics).handlers(),
        **SchemaCalls(registry, guard).handlers(),
        **SettingCalls(registry, guard).handlers(),
    }
    return web.routes(ConfluentFace(), CALLS, handlers, identify, statistics, prefix, whole=True)
