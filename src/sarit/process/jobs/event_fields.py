"""The fields of the events of streams, for indexers (`search/indexer.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.search.document_maker import DocumentMaker
from sarit.search.mapping import Mapping

if TYPE_CHECKING:
    from collections.abc import Sequence


class EventFields:
    """Makes documents of events, and finds out which fields they have."""

    def __repr__(self) -> str:
        return "<EventFields>"

    def maker(self, mapping: Mapping) -> DocumentMaker:
        """Return what makes documents with the fields of a mapping."""
        return DocumentMaker(mapping)

    def infer(self, events: Sequence[bytes]) -> Mapping:
        """Return the fields of some events."""
        return Mapping()
