"""The settings of a stream's index: what its user chose, as the job of the indexer keeps it.

A document in JSON, at most MAX_SEARCH_SETTINGS_BYTES; docs/formats/search.md has an example.  A field that is missing
has its default, so that settings of an older version stay valid.  A field that is unknown is refused: a newer version
wrote it, and means something by it.  Pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Invalid
from sarit.core.nearest_names import nearest
from sarit.search.limits import (
    DEFAULT_INDEX_INTERVAL_SECONDS,
    MAX_INDEX_INTERVAL_SECONDS,
    MAX_SEARCH_SETTINGS_BYTES,
    MIN_INDEX_INTERVAL_SECONDS,
)
from sarit.search.mapping import Mapping, from_document, to_document

# The job of a stream's index (`controller/jobs.py`).
SEARCH_KIND: Final = "search"
SEARCH_JOB: Final = "index"
STARTS: Final = ("head", "tail")

_KNOWN: Final = ("mapping", "start", "interval_seconds")
_SHOWN_CHARACTERS: Final = 80


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """The choices of a user for the index of a stream.

    `mapping`: the fields; None: they are inferred from the first events.  `start`: "head" or "tail" of the stream.
    `interval_seconds`: events can be found so long after they were written, about."""

    mapping: Mapping | None = None
    start: str = "head"
    interval_seconds: int = DEFAULT_INDEX_INTERVAL_SECONDS

    def check(self) -> SearchSettings:
        """Return these settings if they are well formed.  Raises Invalid with the reason."""
        if self.mapping is not None:
            self.mapping.check()
        if self.start not in STARTS:
            raise Invalid(f"an index cannot start at {self.start[:_SHOWN_CHARACTERS]!a}: {', '.join(STARTS)}")
        if not MIN_INDEX_INTERVAL_SECONDS <= self.interval_seconds <= MAX_INDEX_INTERVAL_SECONDS:
            raise Invalid(
                f"the interval of an index cannot be {self.interval_seconds} seconds: choose "
                f"{MIN_INDEX_INTERVAL_SECONDS} to {MAX_INDEX_INTERVAL_SECONDS}"
            )
        return self

    def encode(self) -> bytes:
        """Return the settings as a document.  Raises Invalid: they are not well formed, or too long."""
        self.check()
        chosen: dict[str, object] = {"start": self.start, "interval_seconds": self.interval_seconds}
        if self.mapping is not None:
            chosen["mapping"] = to_document(self.mapping)
        return _bounded(json.dumps(chosen).encode())


def decode_settings(document: bytes) -> SearchSettings:
    """Return the settings that a document has; of no bytes: the defaults.  Raises Invalid with the reason."""
    if not document:
        return SearchSettings()
    try:
        found = parse_json(_bounded(document))
    except ValueError as error:  # bytes that are no text, too
        raise Invalid(f"the settings of an index are not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Invalid("the settings of an index are not a JSON object")
    for name in found:
        if name not in _KNOWN:
            shown = name[:_SHOWN_CHARACTERS]
            raise Invalid(
                f"the settings of an index have an unknown field {shown!a}: {nearest(shown, _KNOWN)}, or a newer "
                "version of Sarit wrote them"
            )
    start, interval = found.get("start", "head"), found.get("interval_seconds", DEFAULT_INDEX_INTERVAL_SECONDS)
    if type(start) is not str or type(interval) is not int:
        raise Invalid("in the settings of an index, `start` has to be a string and `interval_seconds` a whole number")
    mapping = from_document(found["mapping"]) if found.get("mapping") is not None else None
    return SearchSettings(mapping, start, interval).check()


def _bounded(document: bytes) -> bytes:
    if len(document) > MAX_SEARCH_SETTINGS_BYTES:
        raise Invalid(f"the settings of an index have {len(document)} bytes: at most {MAX_SEARCH_SETTINGS_BYTES}")
    return document
