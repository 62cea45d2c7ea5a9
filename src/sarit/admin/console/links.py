"""Links to other installations: how far they are, what fails; pause and resume.

They are created, changed, promoted and deleted on the command line, which the page shows.  Who may not administrate the
installation is refused by the controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sarit.admin.console.calls import call
from sarit.core.links import LinkRole

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from sarit.client.aio import Client
    from sarit.core.links import LinkInfo, LinkSettings


class LinkCalls:
    """Calls on links."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __repr__(self) -> str:
        return "<LinkCalls>"

    def routes(self) -> list[BaseRoute]:
        """Below /console/api."""
        one = "/links/{link}"
        return [
            call("/links", self.links),
            call(one, self.details),
            call(f"{one}/pause", self.pause, "POST"),
            call(f"{one}/resume", self.resume, "POST"),
        ]

    async def links(self, request: Request) -> Any:
        """Return all links, with what a row of the list shows."""
        return {"links": [_row(link) for link in await self._client.links.list()]}

    async def details(self, request: Request) -> Any:
        """Return a link with its settings, and with the streams that fail."""
        return _details(await self._client.links.get(request.path_params["link"]))

    async def pause(self, request: Request) -> Any:
        """Let a link copy nothing until it is resumed."""
        return _details(await self._client.links.pause(request.path_params["link"]))

    async def resume(self, request: Request) -> Any:
        """Let a paused link copy again."""
        return _details(await self._client.links.resume(request.path_params["link"]))


def _row(link: LinkInfo) -> dict[str, Any]:
    status = link.status
    return {
        "link": link.name, "direction": link.settings.direction.value, "runs_here": link.role is LinkRole.ACTIVE,
        "peer": link.settings.peer, "peer_installation": link.peer_installation, "state": link.state.value,
        "up": status.up, "streams": status.streams, "failing": status.failing,
        "lag_bytes": status.lag_bytes, "lag_ms": round(1000 * status.lag_seconds),
        "copied_bytes": status.copied_bytes, "lost_bytes": status.lost_bytes, "problem": link.problem or status.note,
    }  # fmt: skip


def _details(link: LinkInfo) -> dict[str, Any]:
    status = link.status
    return _row(link) | {
        "created_ms": link.created_ms, "contact_ms": status.contact_ms, "clock_skew_ms": status.clock_skew_ms,
        "compressed": status.compressed, "holder": link.holder, "settings": _settings(link.settings),
        "problems": [{"stream": one.stream, "text": one.text} for one in status.problems],
    }  # fmt: skip


def _settings(settings: LinkSettings) -> dict[str, Any]:
    """Return the settings without the place of the password: only whether it comes from a file or the environment."""
    return {
        "user": settings.user, "password_from": settings.password.partition(":")[0], "ca": settings.ca,
        "include": settings.include, "exclude": settings.exclude,
        "priorities": [{"glob": glob, "level": level} for glob, level in settings.priorities],
        "bytes_per_second": settings.bytes_per_second, "window": settings.window, "start_ms": settings.start_ms,
        "retention": settings.retention is not None, "follow_truncation": settings.follow_truncation,
        "hold_bytes": settings.hold_bytes, "overflow": settings.overflow.value, "tables": settings.tables,
        "registry": settings.registry, "groups": settings.groups, "restart": settings.restart,
        "discard_divergent": settings.discard_divergent,
    }  # fmt: skip
