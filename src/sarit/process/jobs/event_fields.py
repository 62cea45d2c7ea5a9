"""The fields of events of streams, for indexers (`search/indexer.py`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sarit.search.documents import Document
from sarit.search.mapping import Mapping
from sarit.search.query import ALL_TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

_WORDS: Final = re.compile(r"[^\W_]+")


class EventFields:
    """The words of events."""

    def __repr__(self) -> str:
        return "<EventFields>"

    def maker(self, mapping: Mapping) -> EventFields:
        """Return what makes documents with the fields of a mapping."""
        return self

    def infer(self, events: Sequence[bytes]) -> Mapping:
        """Return the fields of some events."""
        return Mapping()

    def document(self, event: bytes) -> Document:
        """Return the document of an event."""
        return Document({ALL_TEXT: [_WORDS.findall(event.decode(errors="replace").lower())]})
