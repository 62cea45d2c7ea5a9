"""What an index answers, page by page, beside what all events of its stream answer, read in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sarit.search.batch_index import BatchIndex, places
from sarit.search.document_maker import DocumentMaker
from sarit.search.query_parser import parse_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.client import aio
    from sarit.core.names import StreamName
    from sarit.search.mapping import Mapping

PAGE_HITS: Final = 1000

Place = tuple[int, int]


async def expected(
    client: aio.Client, stream: StreamName, mapping: Mapping, texts: Sequence[str]
) -> tuple[int, list[set[Place]]]:
    """Return how many events the stream has, and the places of those that each query matches, by reading them all."""
    bound = [parse_query(text, mapping) for text in texts]
    found: list[set[Place]] = [set() for _ in texts]
    maker, count = DocumentMaker(mapping), 0
    batch = await client.stream(stream).batch("head", "tail")
    async for part in batch.arrow_batches():
        rows: list[dict[str, Any]] = part.to_pylist()
        count += len(rows)
        index = BatchIndex([maker.document(row["event"]) for row in rows])
        for places_of, query in zip(found, bound, strict=True):
            places_of.update((rows[at]["segment"], rows[at]["offset"]) for at in places(index.match(query)))
    return count, found


async def answered(
    client: aio.Client, stream: StreamName, text: str, most: int | None = None, page_hits: int = PAGE_HITS
) -> list[Place]:
    """Return the places that the index answers, page by page, until there are more than `most`."""
    found: list[Place] = []
    page = b""
    while True:
        result = await client.search(stream, text, limit=page_hits, page=page, events=False)
        found += [(hit.segment.packed, hit.offset) for hit in result.hits]
        page = result.page
        if not page or (most is not None and len(found) > most):
            return found
