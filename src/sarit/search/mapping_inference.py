"""The mapping of events for which nobody gave one, from a sample of them.  Pure.

    numbers                         number        texts with spaces in one of them     text
    true, false                     boolean       other texts, and mixed kinds          keyword
    texts that are times (ISO 8601) time

Whole numbers that are times of this century in milliseconds are times in the fields that say when an event happened:
the first of `@timestamp`, `timestamp`, `time` and `ts` that has times, at the top of documents.  Fields are in the
order in which they first appear; of more than MAX_MAPPED_FIELDS the first ones are taken.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid, NotFound
from sarit.search.document_maker import opened, parsed
from sarit.search.field_values import time_of
from sarit.search.limits import (
    MAX_DOCUMENT_BYTES,
    MAX_FIELD_PATH_CHARACTERS,
    MAX_INFERRED_MAPPING_BYTES,
    MAX_MAPPED_FIELDS,
    MAX_SAMPLED_BYTES,
    MAX_SAMPLED_EVENTS,
    MAX_VISITED_VALUES,
)
from sarit.search.mapping import Field, Kind, Mapping

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sarit.search.document_maker import Decode

TIME_FIELDS: Final = ("@timestamp", "timestamp", "time", "ts")

_SPACE: Final = re.compile(r"\s")


class Sample:
    """The first events of a stream, of which its fields are inferred: MAX_SAMPLED_EVENTS at the most, and none after
    MAX_SAMPLED_BYTES."""

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self._size = 0

    def __repr__(self) -> str:
        return f"<Sample of {len(self.events)} events, {self._size} bytes>"

    @property
    def left(self) -> int:
        """The events that it still takes; 0: it is full."""
        return MAX_SAMPLED_EVENTS - len(self.events) if self._size < MAX_SAMPLED_BYTES else 0

    def add(self, events: Iterable[bytes]) -> None:
        """Add events, until it is full."""
        for event in events:
            if not self.left:
                break
            self.events.append(event)
            self._size += len(event)


def infer(events: Iterable[bytes], decode: Decode | None = None) -> Mapping:
    """Return the fields of events, of the first MAX_SAMPLED_EVENTS of them.  `decode`: as of `DocumentMaker`.

    Raises Unavailable: the registry of schemas."""
    kinds: dict[str, Kind] = {}
    left = MAX_INFERRED_MAPPING_BYTES
    for event in islice(events, MAX_SAMPLED_EVENTS):
        for path, value in _values(_document(event, decode)):
            before = kinds.get(path)
            if before is None:
                # What a field takes in JSON, with its kind.
                left -= len(json.dumps(path)) + len(', : "boolean"')
                if left < 0 or len(kinds) == MAX_MAPPED_FIELDS:
                    continue
            kinds[path] = _joined(path, before, _kind(path, value))
    time_field = next((name for name in TIME_FIELDS if kinds.get(name) is Kind.TIME), "")
    return Mapping(tuple(Field(path, kind) for path, kind in kinds.items()), time_field)


def _document(event: bytes, decode: Decode | None) -> Any:
    """Return the document of an event; None: it is a text."""
    payload, _, _ = opened(event)
    if len(payload) > MAX_DOCUMENT_BYTES:
        return None
    if decode is None:
        return parsed(payload)[0]
    try:
        return decode(payload)
    except (Invalid, NotFound):
        return None


def _values(document: Any) -> Iterator[tuple[str, str | int | float]]:
    """Yield the path and the value of each member of a document that a field can have."""
    stack = [("", document)]
    for _ in range(MAX_VISITED_VALUES):
        if not stack:
            return
        path, value = stack.pop()
        if isinstance(value, dict):
            members = [(f"{path}.{name}" if path else name, each) for name, each in value.items()]
            stack.extend(member for member in reversed(members) if len(member[0]) <= MAX_FIELD_PATH_CHARACTERS)
        elif isinstance(value, list | tuple):
            stack.extend((path, each) for each in reversed(value))
        elif isinstance(value, str | int | float) and path and path.isprintable():
            yield path, value


def _kind(path: str, value: str | int | float) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, str):
        if time_of(value) is not None:
            return Kind.TIME
        return Kind.TEXT if _SPACE.search(value) else Kind.KEYWORD
    return Kind.TIME if path in TIME_FIELDS and time_of(value) is not None else Kind.NUMBER


def _joined(path: str, before: Kind | None, kind: Kind) -> Kind:
    """Return the kind of a field that has values of two."""
    if before is None or before is kind:
        return kind
    both = {before, kind}
    if Kind.TEXT in both:
        return Kind.TEXT
    return Kind.TIME if both == {Kind.TIME, Kind.NUMBER} and path in TIME_FIELDS else Kind.KEYWORD


__all__ = ["Sample", "infer"]
