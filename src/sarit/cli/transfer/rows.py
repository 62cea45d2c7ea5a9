"""One event in a file: its parts, from which its very bytes can be made again.

An event in an envelope is shown by its parts if they make the same bytes again, and as it is otherwise.  Whoever reads
such parts keeps all of them, or refuses them: `Document` holds what was given, a line of JSON or a row of Parquet.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sarit.cli.envelopes import bytes_field, document, time_of
from sarit.core.bounded_json import parse_json
from sarit.core.envelope import Envelope
from sarit.core.errors import Corrupt, Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.cli.envelopes import EnvelopeParts

FIELDS: Final = ("event", "key", "event_time", "headers", "envelope", "segment")
_FIELDS_OF_A_LINE: Final = frozenset((*FIELDS, "event_base64"))
_FIELDS_OF_A_HEADER: Final = frozenset(("name", "value", "value_base64"))
_SHOWN: Final = 60
_INT64: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Row:
    """`event`: as it is stored.  `segment`: the packed id of the one it was read from; None: not known.

    `key`: the routing key, where it is known."""

    event: bytes
    segment: int | None
    key: str | None = None

    @property
    def routing_key(self) -> str | None:
        """The value that keeps events of one key in their order: the key, or the segment that they shared."""
        if self.key is not None or self.segment is None:
            return self.key
        return f"segment {self.segment}"


@dataclass(frozen=True, slots=True)
class Document:
    """One event as a file describes it.  `envelope`: whether the event is one; None: the file does not say."""

    payload: bytes
    key: str | None = None
    event_time: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    envelope: bool | None = None
    segment: int | None = None

    def row(self, parts: EnvelopeParts | None = None) -> Row:
        """Return the event, and where it belongs.  `parts`: make an envelope also where the file does not say.

        Raises Invalid for parts that the event cannot hold."""
        if self.envelope or (parts is not None and self.envelope is None):
            if self.envelope is None and Envelope.is_envelope(self.payload):
                raise Invalid("its event is an envelope already: leave --envelope away to write it as it is")
            time, headers = self.event_time, self.headers
            if parts is not None:
                time, headers = parts.event_time if time is None else time, headers or parts.headers
            made = bytes(Envelope(self.payload, key=self.key, event_time=time, headers=headers))
            return Row(made, self.segment, self.key)
        if self.event_time is not None or self.headers:
            what = "event_time" if self.event_time is not None else "headers"
            raise Invalid(f'its "{what}" is of an envelope, and "envelope" is not true: set that, or leave it out')
        return Row(self.payload, self.segment, self.key)


def envelope_of(event: bytes) -> Envelope | None:
    """Return the envelope that an event is, exactly; None when it is none, or another form of one."""
    if not Envelope.is_envelope(event):
        return None
    try:
        found = Envelope.parse(event)
    except (Corrupt, Invalid):
        return None
    return found if bytes(found) == event else None


def row_of(event: bytes, segment: int | None) -> Row:
    """Return an event as it was read."""
    found = envelope_of(event)
    return Row(event, segment, None if found is None else found.key)


def to_json(row: Row) -> bytes:
    """Return a line, without its end."""
    plain = Envelope.is_envelope(row.event) and envelope_of(row.event) is None  # begins like one, and is none
    shown = {**bytes_field("event", row.event), "envelope": False} if plain else document(row.event)
    if row.segment is not None:
        shown["segment"] = row.segment
    return json.dumps(shown, ensure_ascii=False).encode()


def from_json(line: bytes, *, drop_unknown: bool = False, key: str | None = None) -> Document:
    """Return the event that a line of JSON describes.  `drop_unknown`: leave out fields that an event cannot have;
    `key`: of lines without one.

    Raises Invalid."""
    try:
        found = parse_json(line, object_pairs_hook=_object)
    except ValueError as error:
        raise Invalid(f"it is not a JSON document: {error}") from None
    if not isinstance(found, dict) or ("event" in found) == ("event_base64" in found):
        raise Invalid('it is not a JSON object with either "event" or "event_base64"')
    if not drop_unknown:
        check_known(found, _FIELDS_OF_A_LINE)
    time = found.get("event_time")
    return Document(
        _bytes_of(found, "event"),
        key_of(found.get("key", key)),
        None if time is None else time_of(time),
        _headers_of(found.get("headers"), drop_unknown=drop_unknown),
        flag_of(found.get("envelope")),
        segment_of(found.get("segment")),
    )


def check_known(names: Iterable[str], known: Iterable[str]) -> None:
    """Raises Invalid for names that mean nothing here: what they hold would be lost without a word."""
    if unknown := sorted(set(names) - set(known)):
        raise Invalid(
            f"an event has no {', '.join(map(shown, unknown[:3]))}: known are {', '.join(FIELDS)}; "
            "--drop-unknown leaves others out"
        )


def key_of(found: object) -> str | None:
    """Return a routing key.  Raises Invalid."""
    if found is None:
        return None
    if not isinstance(found, str):
        raise Invalid(f'its "key" is {shown(found)}: give a text')
    _encoded(found, "key")
    return found


def segment_of(found: object) -> int | None:
    """Return the number of a segment.  Raises Invalid."""
    if found is None or (isinstance(found, int) and not isinstance(found, bool) and 0 <= found < _INT64):
        return found
    raise Invalid(f'its "segment" is {shown(found)}: give a whole number')


def flag_of(found: object) -> bool | None:
    """Return whether an event is an envelope.  Raises Invalid."""
    if found is None or isinstance(found, bool):
        return found
    raise Invalid(f'its "envelope" is {shown(found)}: give true or false')


def shown(value: object) -> str:
    """Return a value in a message, cut."""
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{shown(max(names, key=names.count))} is in it twice")
    return found


def _headers_of(found: object, *, drop_unknown: bool) -> tuple[tuple[str, bytes], ...]:
    if found is None:
        return ()
    if not isinstance(found, list):
        raise Invalid('its headers are no list: give [{"name": "n", "value": "v"}]')
    made = []
    for one in found:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str) or ("value" in one) == (
            "value_base64" in one
        ):  # fmt: skip
            raise Invalid('a header is no object with "name" and either "value" or "value_base64"')
        if not drop_unknown and not one.keys() <= _FIELDS_OF_A_HEADER:
            raise Invalid('a header has more than "name" and "value" or "value_base64"; --drop-unknown leaves it out')
        made.append((one["name"], _bytes_of(one, "value")))
    return tuple(made)


def _bytes_of(found: dict[str, Any], name: str) -> bytes:
    text = found[name] if name in found else found[f"{name}_base64"]
    if not isinstance(text, str):
        raise Invalid(f'its "{name}" is {shown(text)}: give a text')
    if name in found:
        return _encoded(text, name)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Invalid(f'its "{name}_base64" cannot be decoded: {error}') from None


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Invalid(f'its "{name}" cannot be decoded: it has half a character') from None
