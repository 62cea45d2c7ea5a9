"""The fields of the events of streams, for indexers (`search/indexer.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.search.document_maker import DocumentMaker
from sarit.search.mapping_inference import infer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.search.document_maker import Decode
    from sarit.search.mapping import Mapping


class EventFields:
    """Makes documents of events, and finds out which fields they have."""

    def __init__(self, decode: Decode | None = None) -> None:
        """`decode`: makes documents of payloads; None: those that are JSON are documents."""
        self._decode = decode

    def __repr__(self) -> str:
        return f"<EventFields, {self._decode!r}>"

    def maker(self, mapping: Mapping) -> DocumentMaker:
        """Return what makes documents with the fields of a mapping."""
        return DocumentMaker(mapping, self._decode)

    def infer(self, events: Sequence[bytes]) -> Mapping:
        """Return the fields of some events.  Raises Unavailable."""
        return infer(events, self._decode)
