"""What a search looks for: a text, a regular expression, or a field of JSON documents.  Pure.

Matchers run on a thread, over one slice of events at a time, so that they hold no event loop.  What one slice may cost
is bounded, whatever the person has typed and whatever the events contain:

| of | an event costs | so |
|---|---|---|
| a text | its length | |
| a pattern | its length times that of the pattern, repetitions written out | a longer event is matched in part |
| a field | its length | a longer document than SEARCH_JSON_BYTES is not parsed |

Regular expressions are those of RE2, which has no way to take exponential time: no look-around, no back-references.
They are matched against bytes: `.` is one byte.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final, Protocol

from sarit.client.limits import SEARCH_JSON_BYTES, SEARCH_PATTERN_CHARS, SEARCH_REGEX_COST
from sarit.core.bounded_json import parse_json
from sarit.core.envelope import Envelope
from sarit.core.errors import Corrupt, Invalid
from sarit.core.extras import require

if TYPE_CHECKING:
    from collections.abc import Sequence

_REPETITION: Final = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")
# A pattern with its repetitions written out; more take seconds for a few kilobytes.
_LONGEST_PATTERN: Final = 2000
# Beginnings of what JSON can be, but for a bare number, word or text: a field is in an object or an array.
_JSON_BEGINS: Final = re.compile(rb"\s*[\[{]")


@dataclass(frozen=True, slots=True)
class Matched:
    """The matching events of a slice, by their places in it; `partly`: how many events were not matched as a whole.

    `times`: of each of the matching events, in milliseconds since 1970, or None; empty: the matcher knows no times."""

    places: Sequence[int]
    partly: int = 0
    times: Sequence[int | None] = ()


class Matcher(Protocol):
    """Says which events of a slice match.  Called on a thread, by one search at a time."""

    def match(self, events: Sequence[bytes]) -> Matched:
        """Return the places of the events that match."""


class TextMatcher:
    """Events whose bytes contain a text; letters of ASCII match in any case.  "" matches every event."""

    def __init__(self, text: str) -> None:
        """Raises Invalid (the text is too long)."""
        self._wanted = _checked("the text", text).lower()

    def __repr__(self) -> str:
        return f"<TextMatcher, {len(self._wanted)} bytes>"

    def match(self, events: Sequence[bytes]) -> Matched:
        """Return the places of the events that match."""
        wanted = self._wanted
        return Matched([place for place, event in enumerate(events) if wanted in event.lower()])


class PatternMatcher:
    """Events in whose bytes a regular expression of RE2 matches somewhere."""

    def __init__(self, pattern: str) -> None:
        """Raises Invalid (no pattern, one that RE2 does not know, one that costs too much), MissingExtra."""
        require("arrow", "a search by regular expression")
        _checked("the pattern", pattern)
        if not pattern:
            raise Invalid("the pattern is empty: give a regular expression")
        cost = len(pattern.encode()) * prod(_repetitions(pattern))
        if cost > _LONGEST_PATTERN:
            raise Invalid(
                f"the pattern has {cost:,} characters with its repetitions written out, of at most "
                f"{_LONGEST_PATTERN:,}: use + or *, or smaller numbers"
            )
        # No event costs more than the bound, and no slice more than its longest event or SEARCH_SLICE_BYTES of them.
        self._matched_bytes = SEARCH_REGEX_COST // cost
        self._pattern = pattern
        try:
            self.match([b""])
        except Invalid:
            raise
        except Exception as error:
            raise Invalid(_reason(error)) from None

    def __repr__(self) -> str:
        return f"<PatternMatcher, the first {self._matched_bytes} bytes of an event>"

    def match(self, events: Sequence[bytes]) -> Matched:
        """Return the places of the events that match."""
        import pyarrow as pa
        import pyarrow.compute as pc

        # Arrow brings RE2, and lets go of the interpreter while it matches.
        most = self._matched_bytes
        array = pa.array([event[:most] for event in events], pa.binary())
        found = pc.match_substring_regex(array, pattern=self._pattern)
        partly = sum(len(event) > most for event in events)
        return Matched([place for place, matches in enumerate(found.to_pylist()) if matches], partly)


class FieldMatcher:
    """JSON documents in which a field has a value.  Of an envelope, its payload is the document.

    `path`: names of fields and places in arrays, separated by dots, as `customer.id` or `items.0.sku`.  `value`: JSON,
    or else a text: `5` matches the number 5 and the text "5"."""

    def __init__(self, path: str, value: str) -> None:
        """Raises Invalid (no path, too long)."""
        self._path = path.strip().split(".")
        _checked("the path", path)
        _checked("the value", value)
        if not all(self._path):
            raise Invalid("the field: give names separated by dots, such as customer.id")
        self._values: list[Any] = [value]
        with suppress(ValueError):  # what is no JSON is a text
            self._values.append(parse_json(value))

    def __repr__(self) -> str:
        return f"<FieldMatcher, {len(self._path)} steps>"

    def match(self, events: Sequence[bytes]) -> Matched:
        """Return the places of the events that match."""
        places, partly = [], 0
        for place, event in enumerate(events):
            document = _payload(event)
            if _JSON_BEGINS.match(document) is None:
                continue
            if len(document) > SEARCH_JSON_BYTES:
                partly += 1
            elif self._matches(document):
                places.append(place)
        return Matched(places, partly)

    def _matches(self, document: bytes) -> bool:
        try:
            found = parse_json(document)
        except ValueError:
            return False
        for step in self._path:
            if isinstance(found, dict) and step in found:
                found = found[step]
            elif isinstance(found, list) and step.isascii() and step.isdigit() and int(step) < len(found):
                found = found[int(step)]
            else:
                return False
        # True == 1 in Python, and not in JSON.
        return any(found == value and isinstance(found, bool) == isinstance(value, bool) for value in self._values)


def _payload(event: bytes) -> bytes:
    if not Envelope.is_envelope(event):
        return event
    try:
        return Envelope.parse(event).payload
    except (Invalid, Corrupt):
        return event


def _checked(what: str, text: str) -> bytes:
    if len(text) > SEARCH_PATTERN_CHARS:
        raise Invalid(f"{what} has {len(text)} characters, of at most {SEARCH_PATTERN_CHARS}")
    return text.encode(errors="replace")


def _repetitions(pattern: str) -> list[int]:
    """Return the highest count of each repetition in braces."""
    return [max(int(low), int(high or 0), 1) for low, high in _REPETITION.findall(pattern)]


def _reason(error: Exception) -> str:
    """Return why RE2 refuses a pattern, without the pattern, which is the caller's own."""
    reason = str(error).removeprefix("Invalid regular expression: ").partition("\n")[0][:200]
    return f"the pattern is no regular expression of RE2: {reason}"


__all__ = ["FieldMatcher", "Matched", "Matcher", "PatternMatcher", "TextMatcher"]
