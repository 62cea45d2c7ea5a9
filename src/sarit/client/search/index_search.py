"""Searches in the index of a stream: `client.search`.

A controller answers with the places of events; the client reads the events itself, with its own rights.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.client.limits import SEARCH_FETCHES, SEARCH_HIT_BYTES
from sarit.client.search.event_at import event_at
from sarit.client.search.index_calls import ask, index_info
from sarit.client.search.results import SearchHit, SearchInfo, SearchResult
from sarit.client.session.guard import guarded
from sarit.core.errors import Invalid
from sarit.core.names import SegmentId, StreamName
from sarit.env.background import gather
from sarit.rpc.generated import search_pb2 as pb
from sarit.rpc.search_cuts import cut_of
from sarit.rpc.search_methods import SEARCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.client.session.session import Session


@guarded("_session")
class Searches:
    """Searches in streams that are searchable: `client.search`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"Searches({self._session.controller.address}, {self._session.state()})"

    async def __call__(
        self,
        stream: str | StreamName,
        query: str,
        *,
        start_ms: int | None = None,
        end_ms: int | None = None,
        limit: int = 20,
        sort: str = "newest",
        page: bytes = b"",
        bucket_ms: int = 0,
        facets: Sequence[str] = (),
        facet_limit: int = 10,
        events: bool = True,
        scan: bool = False,
    ) -> SearchResult:
        """Return a page of the events of a stream that match a query, as far as they are indexed.

        `query`: words that an event has to have; also `OR`, `NOT`, `-`, parentheses, "a phrase", `begin*`,
        `field:value`, `field:[1 TO 5]`, `field:>=5`.  `start_ms`, `end_ms`: from the first to before the second, since
        1970.  `limit`: of hits.  `sort`: "newest", "oldest" or "score".  `page`: of the result before, of the same
        search.  `bucket_ms`: the width of the intervals of a histogram over time.  `facets`: fields of keywords whose
        values are counted, the `facet_limit` most frequent of each.  `events`: read the events, too.
        `scan`: read the stream, which needs no index, all of the range before the first hit; it knows neither pages nor
        facets nor scores.

        Raises NotFound, Invalid (the query, with the place; the stream is not searchable), Forbidden, Unavailable."""
        name = stream if isinstance(stream, StreamName) else StreamName.parse(stream)
        if scan:
            if page or facets:
                raise Invalid("a scan has no pages and counts no facets: leave them out, or make the stream searchable")
            # Searches of an index need none of what a scan needs.
            from sarit.client.search.query_scan import ScanQuestion, result_of_scan

            question = ScanQuestion(query, None, None, start_ms, end_ms, sort, limit, bucket_ms)
            return await result_of_scan(self._session, name, question, events=events)
        request = pb.SearchRequest(
            scope=name.scope, stream=name.stream, query=query.encode(errors="replace"), sort=sort, limit=limit,
            page=page, bucketMs=bucket_ms, facets=facets, facetLimit=facet_limit,
        )  # fmt: skip
        if start_ms is not None:
            request.fromMs = start_ms
        if end_ms is not None:
            request.untilMs = end_ms
        reply = await ask(self._session, name, SEARCH.search, request)
        hits = [SearchHit(SegmentId.unpack(hit.segment), hit.offset, hit.timeMs, hit.score) for hit in reply.hits]
        return SearchResult(
            tuple(await self._with_events(name, hits) if events else hits),
            reply.total,
            tuple((bucket.beginMs, bucket.events) for bucket in reply.buckets),
            {facet.field: tuple((one.value, one.events) for one in facet.values) for facet in reply.facets},
            cut_of(reply.cut, name) if reply.HasField("cut") else None,
            reply.committedMs,
            reply.page,
        )

    async def info(self, stream: str | StreamName) -> SearchInfo:
        """Return how far the index of a stream is.  Raises NotFound, Invalid (the server has no searches)."""
        name = stream if isinstance(stream, StreamName) else StreamName.parse(stream)
        return await index_info(self._session, name)

    async def _with_events(self, stream: StreamName, hits: Sequence[SearchHit]) -> list[SearchHit]:
        turn, held = asyncio.Semaphore(SEARCH_FETCHES), 0

        async def one(hit: SearchHit) -> SearchHit:
            nonlocal held
            async with turn:
                if held >= SEARCH_HIT_BYTES:
                    return hit
                found = await event_at(self._session, stream, hit.segment, hit.offset)
                held += 0 if found is None else len(found[1])
            if found is None:
                return hit
            return SearchHit(hit.segment, hit.offset, hit.time_ms, hit.score, found[1], found[0])

        return await gather(*map(one, hits))
