"""One event in a file: its parts, from which its very bytes can be made again.

An event in an envelope is shown by its parts if they make the same bytes again, and as it is otherwise.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from sarit.cli.envelopes import bytes_field, document, time_of
from sarit.core.envelope import Envelope
from sarit.core.errors import Corrupt, Invalid


@dataclass(frozen=True, slots=True)
class Row:
    """`event`: as it is stored.  `segment`: the packed id of the one it was read from; None: not known.

    `key`: the routing key, where it is known."""

    event: bytes
    segment: int | None
    key: str | None = None

    @property
    def routing_key(self) -> str | None:
        """What keeps events of one key in their order: the key, or the segment that they shared."""
        if self.key is not None or self.segment is None:
            return self.key
        return f"segment {self.segment}"


def envelope_of(event: bytes) -> Envelope | None:
    """The envelope that an event is, exactly; None when it is none, or another form of one."""
    if not Envelope.is_envelope(event):
        return None
    try:
        found = Envelope.parse(event)
    except (Corrupt, Invalid):
        return None
    return found if bytes(found) == event else None


def row_of(event: bytes, segment: int | None) -> Row:
    """An event as it was read."""
    found = envelope_of(event)
    return Row(event, segment, None if found is None else found.key)


def to_json(row: Row) -> bytes:
    """A line, without its end."""
    if envelope_of(row.event) is not None:
        shown = {**document(row.event), "envelope": True}
        if _event_of(shown) != row.event:  # a time that has no text
            shown = bytes_field("event", row.event)
    else:
        shown = bytes_field("event", row.event)
    if row.segment is not None:
        shown["segment"] = row.segment
    return json.dumps(shown, ensure_ascii=False).encode()


def from_json(line: bytes) -> Row:
    """A row of a line.  Raises Invalid."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"it is not a JSON document: {error}") from None
    if not isinstance(found, dict) or ("event" in found) == ("event_base64" in found):
        raise Invalid('it is not a JSON object with either "event" or "event_base64"')
    segment, key = found.get("segment"), found.get("key")
    if not (segment is None or (isinstance(segment, int) and not isinstance(segment, bool))):
        raise Invalid(f'its "segment" is {segment!r}: give a whole number')
    if not (key is None or isinstance(key, str)):
        raise Invalid(f'its "key" is {key!r}: give a text')
    try:
        if key is not None:
            key.encode()
        return Row(_event_of(found), segment, key)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"it cannot be decoded: {error}") from None


def _event_of(found: dict[str, Any]) -> bytes:
    payload = _bytes_of(found, "event")
    if found.get("envelope") is not True:
        return payload
    headers = [(one["name"], _bytes_of(one, "value")) for one in found.get("headers", ())]
    time = found.get("event_time")
    return bytes(
        Envelope(payload, key=found.get("key"), event_time=None if time is None else time_of(time), headers=headers)
    )


def _bytes_of(found: dict[str, Any], name: str) -> bytes:
    text = found[name] if name in found else found[f"{name}_base64"]
    if not isinstance(text, str):
        raise ValueError(f'"{name}" is {text!r}: give a text')
    return text.encode() if name in found else base64.b64decode(text, validate=True)
