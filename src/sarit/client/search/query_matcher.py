"""A matcher of the query language, and the times of the events that it finds.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.search.matchers import Matched
from sarit.search.batch_index import BatchIndex, places, wanted_tokens
from sarit.search.document_maker import DocumentMaker
from sarit.search.prefilter import Prefilter
from sarit.search.query import Everything

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.search.document_maker import Decode
    from sarit.search.mapping import Mapping
    from sarit.search.query import Query


class QueryMatcher:
    """Events that match a query, as an index with the same mapping finds them."""

    def __init__(self, query: Query, mapping: Mapping, decode: Decode | None = None) -> None:
        """`decode`: as of `DocumentMaker`."""
        self._query = query
        self._maker = DocumentMaker(mapping, decode)
        self._wanted = wanted_tokens([query])
        # What a decoder makes of bytes has other words than the bytes.
        self._prefilter = Prefilter(query if decode is None else Everything())

    def __repr__(self) -> str:
        return f"<QueryMatcher, {self._maker!r}>"

    def match(self, events: Sequence[bytes]) -> Matched:
        """Return the places of the events that match, with the times that they say.  Raises Unavailable: a schema is
        not to be had."""
        possible = [place for place, event in enumerate(events) if self._prefilter.may_match(event)]
        documents = [self._maker.document(events[place]) for place in possible]
        found = places(BatchIndex(documents, self._wanted).match(self._query))
        partly = sum(bool(document.problem) for document in documents)
        return Matched([possible[at] for at in found], partly, [documents[at].time_ms for at in found])


__all__ = ["QueryMatcher"]
