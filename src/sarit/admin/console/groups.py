"""Reader groups: who reads what, how far behind; resets, lost readers, deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sarit.admin.console.calls import body_of, call, check_confirmed, page_of
from sarit.admin.console.documents import segment_text, text_of
from sarit.admin.console.names import GROUPS
from sarit.admin.console.positions import cut_of, is_time
from sarit.client.groups.lag import lag_ms
from sarit.core.cuts import from_text
from sarit.core.errors import Conflict, Invalid, NotFound, SaritError
from sarit.core.names import StreamName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from sarit.admin.console.names import NameLists
    from sarit.admin.console.permissions import Rights
    from sarit.client.aio import Client
    from sarit.core.cuts import StreamCut


class GroupCalls:
    """Calls on reader groups."""

    def __init__(self, client: Client, lists: NameLists, rights: Rights) -> None:
        self._client = client
        self._rights = rights
        self._lists = lists

    def __repr__(self) -> str:
        return "<GroupCalls>"

    def routes(self) -> list[BaseRoute]:
        """Below /console/api."""
        one = "/groups/{scope}/{group}"
        return [
            call("/groups", self.groups),
            call(one, self.details),
            call(one, self.delete, "DELETE"),
            call(f"{one}/lag", self.lag),
            call(f"{one}/reset", self.reset, "POST"),
            call(f"{one}/offline", self.offline, "POST"),
        ]

    async def groups(self, request: Request) -> Any:
        """Return a page of groups with what a row of the list shows."""
        return await page_of(request, self._lists, GROUPS, self._row)

    async def _row(self, name: str) -> dict[str, Any]:
        row: dict[str, Any] = {"group": name}
        try:
            group = await self._client.reader_groups.open(name)
            info, progress = await group.info(), await group.progress()
        except NotFound:
            return row | {"gone": True}
        except SaritError as error:  # a group that cannot be read does not hide the others
            return row | {"error": str(error)}
        return row | {
            "streams": sorted(map(str, info.config.starts)),
            "readers": len(info.readers),
            "unassigned": len(info.unassigned),
            "unread_bytes": sum(one.unread for one in progress),
        }

    async def details(self, request: Request) -> Any:
        """Readers, segments with their owners, and unread bytes."""
        name = _name(request)
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
            "may_delete": self._rights.deletes_group(StreamName.parse(name)),
        }

    async def lag(self, request: Request) -> Any:
        """Return how far the group is behind in time, by stream; null: further than records of the controller reach."""
        group = await self._client.reader_groups.open(_name(request))
        session = self._client.session
        found = await lag_ms(session, await group.progress(), session.env.clock.wall_ms())
        streams = [{"stream": str(stream), "behind_ms": behind} for stream, behind in found.items()]
        return {"streams": streams}

    async def reset(self, request: Request) -> Any:
        """Body: {"to"}: checkpoint, head, tail, a time, or the texts of cuts, separated by spaces."""
        to = text_of(await body_of(request), "to").strip()
        group = await self._client.reader_groups.open(_name(request))
        if to == "checkpoint":
            if await group.last_checkpoint() is None:
                raise Conflict("the group has no completed checkpoint: choose another place")
            return {"generation": await group.reset()}
        streams = (await group.info()).config.starts
        return {"generation": await group.reset(await self._cuts(to, streams))}

    async def _cuts(self, to: str, streams: Iterable[StreamName]) -> dict[StreamName, StreamCut]:
        if to in ("head", "tail") or is_time(to):
            now = self._client.session.env.clock.wall_ms()
            return {stream: await cut_of(self._client, stream, to, now) for stream in streams}
        found = [from_text(text) for text in to.split()]
        if not found or None in found:
            raise Invalid("to: give checkpoint, head, tail, a time or the text of a cut")
        return {cut.stream: cut for cut in found if cut is not None}

    async def offline(self, request: Request) -> Any:
        """Body: {"reader"}.  Others go on at its last checkpoint."""
        reader = text_of(await body_of(request), "reader")
        group = await self._client.reader_groups.open(_name(request))
        return {"reader": reader, "was_online": await group.reader_offline(reader)}

    async def delete(self, request: Request) -> Any:
        """Delete a reader group.  The body names the group again: {"confirm": "scope/group"}."""
        name = _name(request)
        check_confirmed(await body_of(request), name)
        await self._client.reader_groups.delete(name)
        self._lists.changed()
        return {"deleted": True}


def _name(request: Request) -> str:
    return f"{request.path_params['scope']}/{request.path_params['group']}"
