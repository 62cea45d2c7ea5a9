"""The values of searches as messages of search.proto, and back.  All readers raise Invalid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.rpc.generated import search_pb2 as pb
from sarit.rpc.search_cuts import cut_message
from sarit.search.answers import NEWEST, Ask, Page
from sarit.search.documents import Place
from sarit.search.field_values import LEAST_KEY, MOST_KEY, first_key, time_of_key
from sarit.search.limits import MAX_QUERY_CHARACTERS
from sarit.search.ports import ShardAnswer, ShardHit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.search.answers import PageOfHits


def text_of(query: bytes) -> str:
    """Return the text of a query."""
    if len(query) <= MAX_QUERY_CHARACTERS * 4:  # bytes of a character in UTF-8, at most
        try:
            text = query.decode()
        except UnicodeDecodeError:
            raise Invalid("a query is text in UTF-8") from None
        if len(text) <= MAX_QUERY_CHARACTERS:
            return text
    raise Invalid(f"a query has at most {MAX_QUERY_CHARACTERS} characters")


def ask_of(request: pb.SearchRequest, stream: StreamName) -> Ask:
    """Return the search that a caller wants."""
    return Ask(
        text_of(request.query),
        first_key(request.fromMs) if request.HasField("fromMs") else LEAST_KEY,
        first_key(request.untilMs) if request.HasField("untilMs") else MOST_KEY,
        request.sort or NEWEST,
        request.limit,
        request.bucketMs,
        tuple(request.facets),
        request.facetLimit or 10,
        Page.decode(request.page, stream) if request.page else None,
    ).check()


def answer_message(answer: ShardAnswer) -> pb.SearchShardsResponse:
    """Return the answer of some shards as a message."""
    return pb.SearchShardsResponse(
        hits=_hits(answer.hits), total=answer.total, buckets=_buckets(answer.buckets),
        facets=_facets(answer.facets or {}),
    )  # fmt: skip


def answer_of(message: pb.SearchShardsResponse) -> ShardAnswer:
    """Return the answer of some shards."""
    return ShardAnswer(
        tuple(ShardHit(Place(hit.segment, hit.offset), hit.orderKey, hit.score) for hit in message.hits),
        message.total,
        tuple((bucket.beginMs, bucket.events) for bucket in message.buckets),
        {facet.field: tuple((one.value, one.events) for one in facet.values) for facet in message.facets},
    )


def response_of(page: PageOfHits, cut: StreamCut | None, committed_ms: int, shards: int) -> pb.SearchResponse:
    """Return a page of hits as the reply to its search."""
    return pb.SearchResponse(
        hits=_hits(page.hits), total=page.total, buckets=_buckets(page.buckets), facets=_facets(page.facets),
        cut=None if cut is None else cut_message(cut), committedMs=committed_ms, shards=shards,
        page=b"" if page.next_page is None else page.next_page.encode(),
    )  # fmt: skip


def _hits(hits: Sequence[ShardHit]) -> list[pb.SearchHit]:
    return [
        pb.SearchHit(
            segment=hit.place.segment, offset=hit.place.offset, timeMs=time_of_key(hit.order_key), score=hit.score,
            orderKey=hit.order_key,
        )
        for hit in hits
    ]  # fmt: skip


def _buckets(buckets: Sequence[tuple[int, int]]) -> list[pb.SearchBucket]:
    return [pb.SearchBucket(beginMs=begin, events=events) for begin, events in buckets]


def _facets(facets: Mapping[str, Sequence[tuple[str, int]]]) -> list[pb.SearchFacet]:
    return [
        pb.SearchFacet(field=field, values=[pb.SearchValue(value=value, events=events) for value, events in values])
        for field, values in facets.items()
    ]
