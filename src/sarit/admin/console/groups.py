"""Reader groups: who reads what, and how far behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sarit.admin.console.calls import call, page_of
from sarit.admin.console.documents import segment_text
from sarit.admin.console.names import GROUPS
from sarit.core.errors import NotFound, SaritError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from sarit.admin.console.names import NameLists
    from sarit.client.aio import Client


class GroupCalls:
    """Calls on reader groups."""

    def __init__(self, client: Client, lists: NameLists) -> None:
        self._client = client
        self._lists = lists

    def __repr__(self) -> str:
        return "<GroupCalls>"

    def routes(self) -> list[BaseRoute]:
        """Below /console/api."""
        return [call("/groups", self.groups), call("/groups/{scope}/{group}", self.details)]

    async def groups(self, request: Request) -> Any:
        """A page of groups with what a row of the list shows."""
        return await page_of(request, self._lists, GROUPS, self._row)

    async def _row(self, name: str) -> dict[str, Any]:
        row: dict[str, Any] = {"group": name}
        try:
            group = await self._client.reader_groups.open(name)
            info, progress = await group.info(), await group.progress()
        except NotFound:
            return row | {"gone": True}
        except SaritError as error:  # one that cannot be read does not hide the others
            return row | {"error": str(error)}
        return row | {
            "streams": sorted(map(str, info.config.starts)),
            "readers": len(info.readers),
            "unassigned": len(info.unassigned),
            "unread_bytes": sum(one.unread for one in progress),
        }

    async def details(self, request: Request) -> Any:
        """Readers, segments with their owners, and unread bytes."""
        name = f"{request.path_params['scope']}/{request.path_params['group']}"
        group = await self._client.reader_groups.open(name)
        info, progress = await group.info(), await group.progress()
        segments = [
            {
                "stream": str(one.stream), "segment": segment_text(one.segment), "state": one.state,
                "reader": one.reader, "position": one.position, "end": one.end, "unread_bytes": one.unread,
            }
            for one in progress
        ]  # fmt: skip
        unread = dict.fromkeys(info.readers, 0)
        for one in progress:
            if one.reader in unread:
                unread[one.reader] += one.unread
        return {
            "group": name,
            "generation": info.generation,
            "streams": sorted(map(str, info.config.starts)),
            "checkpoint_ms": info.config.checkpoint_ms,
            "checkpoints": list(info.checkpoints),
            "at_end": info.at_end,
            "readers": [
                {"reader": reader, "segments": len(owned), "unread_bytes": unread[reader]}
                for reader, owned in sorted(info.readers.items())
            ],
            "segments": segments,
            "unread_bytes": sum(one.unread for one in progress),
        }
