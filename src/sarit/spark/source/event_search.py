"""Option `search`: of a batch read, the events that a query finds.

The tasks look into each event that they read, as `sarit search --scan` does; no index is needed, and no more is read.
What is searched is the event, whatever the columns are, so that option `format` makes no difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Invalid
from sarit.spark.limits import SPARK_SEARCH_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.client.blocking.client import Client
    from sarit.search.mapping import Mapping
    from sarit.search.query import Query
    from sarit.search.query_parser import ParsedQuery
    from sarit.spark.source.access import StreamAccess
    from sarit.spark.source.ranges import Range

_SHOWN_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class EventSearch:
    """A query for the fields of one stream.  Made on the driver, and pickled for the tasks."""

    query: Query
    mapping: Mapping

    def found(self, events: pa.Array, offsets: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the events that match, with their offsets."""
        from sarit.search.batch_index import BatchIndex, places, wanted_tokens
        from sarit.search.document_maker import DocumentMaker

        maker, wanted = DocumentMaker(self.mapping), wanted_tokens([self.query])
        matching: list[int] = []
        for begin in range(0, len(events), SPARK_SEARCH_EVENTS):
            documents = [maker.document(event) for event in events[begin : begin + SPARK_SEARCH_EVENTS].to_pylist()]
            matching += [begin + place for place in places(BatchIndex(documents, wanted).match(self.query))]
        if len(matching) == len(events):
            return events, offsets
        chosen = pa.array(matching, pa.int64())
        return events.take(chosen), offsets.take(chosen)


@dataclass(frozen=True, slots=True)
class SearchOption:
    """The query that a read asks for, and the mapping of its streams; None: each stream's own."""

    text: str
    mapping: Mapping | None = None

    def parsed(self) -> ParsedQuery:
        """Return the query before it is bound to fields.  Raises Invalid, with the place of the mistake."""
        from sarit.search.query_parser import parse

        try:
            return parse(self.text)
        except Invalid as error:
            raise Invalid(f"option search: {error}") from None

    def of_stream(self, client: Client, access: StreamAccess, ranges: Iterable[Range]) -> EventSearch:
        """Return the query for a stream: for the fields of its index if it has given ones, or of its first events.

        Raises Invalid (no such field), NotFound, Truncated."""
        from sarit.search.query_parser import bind

        mapping = self.mapping or _given(client, access) or _inferred(access, ranges)
        try:
            return EventSearch(bind(self.parsed(), mapping), mapping)
        except Invalid as error:
            raise Invalid(f"option search, for stream {access.stream}: {error}") from None


def parse_search(text: str | None, mapping: str | None) -> SearchOption | None:
    """Return what the options `search` and `searchMapping` ask for.  Raises Invalid."""
    if text is None:
        if mapping is not None:
            raise Invalid("option searchMapping belongs to option search")
        return None
    option = SearchOption(text, None if mapping is None else _parsed_mapping(mapping))
    option.parsed()
    return option


def _parsed_mapping(text: str) -> Mapping:
    from sarit.search.mapping import from_document

    try:
        return from_document(parse_json(text))
    except Invalid as error:
        raise Invalid(f"option searchMapping: {error}") from None
    except ValueError as error:
        raise Invalid(f"option searchMapping is not JSON: {str(error)[:_SHOWN_CHARACTERS]}") from None


def _given(client: Client, access: StreamAccess) -> Mapping | None:
    from sarit.client.streams.search_index import index_of

    found = index_of(client.stream(access.stream).jobs())
    return None if found is None else found.settings.mapping


def _inferred(access: StreamAccess, ranges: Iterable[Range]) -> Mapping:
    from sarit.search.mapping_inference import Sample, infer

    sample = Sample()
    for part in ranges:
        for events, _ in access.batches(part.segment, part.start, part.end):
            sample.add(events.slice(0, sample.left).to_pylist())
            break  # the first events of each segment are enough
        if not sample.left:
            break
    return infer(sample.events)
