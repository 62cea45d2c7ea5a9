"""Texts of continuous queries, and events, with the fields of one mapping: parsed, and indexed in memory.  Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sarit.core.errors import Corrupt, Invalid
from sarit.search.batch_index import BatchIndex
from sarit.search.continuous_queries import TimedBatch
from sarit.search.document_maker import DocumentMaker
from sarit.search.mapping import Mapping, from_document, to_document
from sarit.search.query_parser import parse_query

if TYPE_CHECKING:
    from collections.abc import Mapping as Dict
    from collections.abc import Sequence, Set

    from sarit.search.document_maker import Decode
    from sarit.search.query import Query


class EventLanguage:
    """The meaning of queries and events with one mapping."""

    def __init__(self, mapping: Mapping, decode: Decode | None = None) -> None:
        """`decode`: see `DocumentMaker`."""
        self.mapping = mapping
        self._maker = DocumentMaker(mapping, decode)

    def __repr__(self) -> str:
        return f"<EventLanguage of {len(self.mapping.fields)} fields>"

    def query(self, text: str) -> Query:
        """Return the query of a text.  Raises Invalid."""
        return parse_query(text, self.mapping)

    def batch(self, events: Sequence[bytes], wanted: Dict[str, Set[str]]) -> TimedBatch:
        """Return the index of some events.  `wanted`: of each text the tokens that queries ask for."""
        documents = list(map(self._maker.document, events))
        return TimedBatch(BatchIndex(documents, wanted), [document.time_ms for document in documents])


def encode_mapping(mapping: Mapping) -> bytes:
    """Return a mapping as the row of a stream has it: JSON."""
    return json.dumps(to_document(mapping), ensure_ascii=False).encode()


def decode_mapping(data: bytes) -> Mapping:
    """Return the mapping of a row; of no bytes that of no fields.  Raises Corrupt."""
    if not data:
        return Mapping()
    try:
        return from_document(json.loads(data))
    except (ValueError, RecursionError, Invalid) as error:
        raise Corrupt(f"the fields of continuous queries are damaged: {error}") from None


def extended(known: Mapping, more: Mapping) -> Mapping:
    """Return a mapping with the fields of another one, too; those that it knows stay as they are.  Raises Invalid: they
    are too many."""
    paths = {field.path for field in known.fields}
    added = tuple(field for field in more.fields if field.path not in paths)
    return Mapping(known.fields + added, known.time_field or more.time_field).check()
