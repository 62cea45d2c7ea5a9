"""Scopes and streams: lists, details, changes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sarit.admin.console.calls import body_of, call, check_confirmed, page_of, stream_of
from sarit.admin.console.documents import (
    config_document,
    number_of,
    retention_of,
    scaling_of,
    segment_of,
    segment_text,
    tags_of,
    text_of,
)
from sarit.admin.console.limits import CONSOLE_MAX_RATED_SEGMENTS, CONSOLE_MAX_TRANSACTIONS
from sarit.admin.console.names import SCOPES, STREAMS, Wanted
from sarit.admin.console.positions import cut_of
from sarit.admin.console.view import SegmentRate
from sarit.client.streams import history
from sarit.client.streams.iceberg import table_of
from sarit.core.cuts import to_text
from sarit.core.errors import Invalid, NotFound, SaritError
from sarit.core.names import StreamName

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from sarit.admin.console.names import NameLists
    from sarit.admin.console.permissions import Rights
    from sarit.admin.console.view import NodeView
    from sarit.client.aio import Client
    from sarit.core.cuts import StreamCut


class StreamCalls:
    """Calls on scopes and streams."""

    def __init__(self, client: Client, node: NodeView, lists: NameLists, rights: Rights) -> None:
        self._client = client
        self._rights = rights
        self._node = node
        self._lists = lists

    def __repr__(self) -> str:
        return "<StreamCalls>"

    def routes(self) -> list[BaseRoute]:
        """Below /console/api."""
        one = "/streams/{scope}/{stream}"
        return [
            call("/scopes", self.scopes),
            call("/scopes", self.create_scope, "POST"),
            call("/scopes/{scope}", self.delete_scope, "DELETE"),
            call("/streams", self.streams),
            call("/streams", self.create, "POST"),
            call(one, self.details),
            call(one, self.update, "PATCH"),
            call(one, self.delete, "DELETE"),
            call(f"{one}/seal", self.seal, "POST"),
            call(f"{one}/truncate", self.truncate, "POST"),
            call(f"{one}/scale", self.scale, "POST"),
            call(f"{one}/transactions", self.transactions),
        ]

    # -- scopes -------------------------------------------------------------------------------

    async def scopes(self, request: Request) -> Any:
        """Return the names of the scopes, and those of them in which the caller may create streams."""
        found = await self._lists.page(SCOPES, Wanted(counted=True))
        may_create = [scope for scope in found.names if self._rights.creates_in(scope)]
        return {
            "scopes": list(found.names), "complete": found.complete, "may_create": may_create,
            "may_create_scopes": self._rights.changes_everything(),
        }  # fmt: skip

    async def create_scope(self, request: Request) -> Any:
        """Body: {"scope"}."""
        scope = text_of(await body_of(request), "scope")
        created = await self._client.create_scope(scope)
        self._lists.changed()
        return {"scope": scope, "created": created}

    async def delete_scope(self, request: Request) -> Any:
        """Delete an empty scope."""
        await self._client.delete_scope(request.path_params["scope"])
        self._lists.changed()
        return {"deleted": True}

    # -- streams ------------------------------------------------------------------------------

    async def streams(self, request: Request) -> Any:
        """Return a page of streams with what a row of the list shows."""
        page = await page_of(request, self._lists, STREAMS, self._row)
        rows = page["rows"]
        rates = await self._rates([name for row in rows for name in row.get("ids", ())])
        for row in rows:
            names = row.pop("ids", ())
            known = bool(names) and all(name in rates for name in names)
            row |= _summed(rates[name] for name in names) if known else {"event_rate": None, "byte_rate": None}
        return page

    async def _rates(self, segments: Sequence[str]) -> dict[str, SegmentRate]:
        """Return the rates of the first CONSOLE_MAX_RATED_SEGMENTS segments by name; none if a store is silent."""
        asked = segments[:CONSOLE_MAX_RATED_SEGMENTS]
        try:
            found = await self._node.rates(asked) if asked else []
        except SaritError:
            return {}
        return dict(zip(asked, found, strict=True))

    async def _row(self, name: str) -> dict[str, Any]:
        stream = StreamName.parse(name)
        row: dict[str, Any] = {"scope": stream.scope, "stream": stream.stream}
        session = self._client.session
        try:
            config = await session.with_retry(lambda: session.controller.stream_config(stream))
            active = await session.with_retry(lambda: session.controller.current_segments(stream))
        except NotFound:  # deleted since the list was fetched
            return row | {"gone": True}
        ids = [stream.segment(found.segment) for found in active]
        return row | {"ids": ids, "segments": len(active), "sealed": not active} | config_document(config)

    async def create(self, request: Request) -> Any:
        """Body: {"scope", "stream", "scaling", "retention", "tags", "create_scope"}."""
        body = await body_of(request)
        scope, stream = text_of(body, "scope"), text_of(body, "stream")
        scaling, retention = scaling_of(body.get("scaling")), retention_of(body.get("retention", {"type": "none"}))
        tags = tags_of(body.get("tags", []))
        if body.get("create_scope") is True:
            await self._client.create_scope(scope)
        created = await self._client.create_stream(scope, stream, scaling=scaling, retention=retention, tags=tags)
        self._lists.changed()
        return {"scope": scope, "stream": stream, "created": created}

    async def details(self, request: Request) -> Any:
        """Configuration, segments with their sizes and stores, head, tail."""
        stream = stream_of(request)
        info = await self._client.stream_info(stream)
        wanted = await history.between(self._client.session, info.head, info.tail)
        infos = await self._client.segment_infos(stream, wanted)
        ids = [found.segment for found in info.segments]
        stores = await self._client.stream(stream).nodes(ids)
        rates = await self._rates([stream.segment(segment) for segment in ids])
        none = SegmentRate(None, None)
        segments = [
            {
                "segment": segment_text(found.segment), "low": found.low, "high": found.high,
                "start": infos[found.segment].start_offset, "end": infos[found.segment].end_offset,
                "modified_ms": infos[found.segment].modified_ms, "store": stores.get(found.segment, ""),
                **asdict(rates.get(stream.segment(found.segment), none)),
            }
            for found in info.segments if found.segment in infos
        ]  # fmt: skip
        positions = info.head.positions
        size = sum(
            max(0, found.end_offset - max(found.start_offset, positions.get(segment, 0)))
            for segment, found in infos.items()
        )
        return {
            "scope": stream.scope, "stream": stream.stream, "sealed": info.sealed, "bytes": size,
            "epoch": max((found.epoch for found in info.tail.positions), default=0),
            "all_segments": len(infos), "segments": segments,
            "head": to_text(info.head), "tail": to_text(info.tail),
            "properties": await self._client.stream(stream).properties(),
            **await self._made_of(stream, info.tail),
            "may_change": self._rights.changes_stream(stream), **_summed(rates.values()),
        } | config_document(info.config)  # fmt: skip

    async def _made_of(self, stream: StreamName, tail: StreamCut) -> dict[str, object]:
        """Return the Iceberg table and the search index that a stream has, and how far each is behind a cut."""
        jobs = await self._client.stream(stream).jobs()
        found: dict[str, object] = {"iceberg": None, "search": None}
        table = table_of(jobs)
        if table is not None:
            found["iceberg"] = table.document(await self._behind(stream, table.job.begin, tail))
        if any(job.kind == "search" for job in jobs):
            # Of a stream that has no index, the page loads nothing of search.
            from sarit.client.streams.search_index import index_of

            index = index_of(jobs)
            assert index is not None, "the job is there"
            found["search"] = index.document(await self._behind(stream, index.job.begin, tail))
        return found

    async def _behind(self, stream: StreamName, begin: StreamCut | str | None, tail: StreamCut) -> int | None:
        """Return how many bytes a cut is behind another one; None: that is not known."""
        if begin is None:
            return None
        with suppress(SaritError):  # `begin` may be ahead of `tail` by now, or of an earlier stream
            reader = await self._client.stream(stream).batch(begin, tail, skip_truncated=True)
            return sum(part.length for part in reader.slices)
        return None

    async def update(self, request: Request) -> Any:
        """Body: those of "scaling", "retention" and "tags" that change."""
        body = await body_of(request)
        if not body.keys() & {"scaling", "retention", "tags"}:
            raise Invalid("nothing to change: give scaling, retention or tags")
        await self._client.update_stream(
            stream_of(request),
            scaling=scaling_of(body["scaling"]) if "scaling" in body else None,
            retention=retention_of(body["retention"]) if "retention" in body else None,
            tags=tags_of(body["tags"]) if "tags" in body else None,
        )
        return {"updated": True}

    async def seal(self, request: Request) -> Any:
        """Refuse further events, for ever."""
        await self._client.seal_stream(stream_of(request))
        return {"sealed": True}

    async def truncate(self, request: Request) -> Any:
        """Body: {"cut"}: tail, a time, or the text of a cut.  Deletes all events before it, none of a later time."""
        place, stream = text_of(await body_of(request), "cut"), stream_of(request)
        cut = await cut_of(self._client, stream, place, self._client.session.env.clock.wall_ms())
        await self._client.truncate_stream(stream, cut=cut)
        return {"truncated": True}

    async def scale(self, request: Request) -> Any:
        """Body: {"segments"}: how many of equal width; or {"split": segment}; or {"merge": [segment, segment]}."""
        body, stream = await body_of(request), self._client.stream(stream_of(request))
        if "split" in body:
            return {"scaled": await stream.split(segment_of(text_of(body, "split")))}
        if isinstance(merge := body.get("merge"), list):
            return {"scaled": await stream.merge([segment_of(str(one)) for one in merge])}
        return {"scaled": await stream.scale(number_of(body, "segments"))}

    async def delete(self, request: Request) -> Any:
        """Seal and delete.  The body names the stream again: {"confirm": "scope/stream"}."""
        stream = stream_of(request)
        check_confirmed(await body_of(request), str(stream))
        await self._client.delete_stream(stream, seal=True)
        self._lists.changed()
        return {"deleted": True}

    async def transactions(self, request: Request) -> Any:
        """Return the open transactions, and those that ended last."""
        stream = stream_of(request)
        ended = []
        async for transaction, status in self._client.transactional_writer(stream).completed():
            ended.append({"id": str(transaction), "state": status.name.lower()})
        # Ask the node after the controller, which checks whether the caller may see the stream.
        found = await self._node.open_transactions(stream, CONSOLE_MAX_TRANSACTIONS)
        rows = [
            {"id": one.id, "state": one.state, "began_ms": one.began_ms, "lease_ms": one.lease_ms,
             "left_ms": one.left_ms}
            for one in found
        ]  # fmt: skip
        return {"open": rows, "most": CONSOLE_MAX_TRANSACTIONS, "ended": ended[:CONSOLE_MAX_TRANSACTIONS]}


def _summed(rates: Iterable[SegmentRate]) -> dict[str, float | None]:
    """Return the sums of the rates of several segments, None without segments."""
    found = list(rates)
    if not found:
        return {"event_rate": None, "byte_rate": None}
    return {
        "event_rate": sum(rate.event_rate or 0.0 for rate in found),
        "byte_rate": sum(rate.byte_rate or 0.0 for rate in found),
    }
