"""Envelopes for people: the options of `sarit write`, and how `sarit read` shows them."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from sarit.core.envelope import Envelope
from sarit.core.errors import Corrupt, Invalid
from sarit.core.times import parse_event_time
from sarit.env.real import RealClock

if TYPE_CHECKING:
    from collections.abc import Sequence

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS_PER_MILLI: Final = 1000
_MAX_TIME_TEXT: Final = 64
# As microseconds these are in January 1970: seconds of this century, or milliseconds of it.
_LIKELY_COARSER: Final = (range(10**9, 10**10), range(10**12, 10**13))
_FINER: Final = re.compile(r"[.,]\d{6}0*[1-9]")


@dataclass(frozen=True, slots=True)
class EnvelopeParts:
    """The parts that all envelopes of one `sarit write` have: `event_time` in microseconds since 1970."""

    event_time: int | None
    headers: tuple[tuple[str, bytes], ...]


def envelope_parts(envelope: bool, headers: Sequence[str], event_time: str | None) -> EnvelopeParts | None:
    """Return the options --envelope, --header and --event-time; None without --envelope.  Raises UsageError."""
    if not envelope:
        if headers or event_time is not None:
            raise click.UsageError("--header and --event-time are parts of an envelope: give --envelope, too")
        return None
    pairs = []
    for text in headers:
        name, separator, value = text.partition("=")
        if not separator:
            raise click.UsageError(f"--header {text!r}: give NAME=VALUE")
        pairs.append((name, value.encode(errors="surrogateescape")))
    try:
        time = None if event_time is None else time_of(event_time)
        return EnvelopeParts(time, Envelope(b"", headers=pairs).headers)
    except Invalid as error:
        raise click.UsageError(str(error)) from None


def time_of(value: object) -> int:
    """Microseconds since 1970 of a time as people write it, or as `sarit read` shows it.  Raises Invalid."""
    if isinstance(value, int) and not isinstance(value, bool):
        if any(value in coarser for coarser in _LIKELY_COARSER):
            raise Invalid(f"its event_time {value} is a time in January 1970: give microseconds, or text")
        return value
    if not isinstance(value, str) or len(value) > _MAX_TIME_TEXT:
        raise Invalid('its event_time is no time: give "2026-01-31T12:00:00Z", or microseconds since 1970')
    if _FINER.search(value):
        raise Invalid(f"its event_time {value!r} has more digits than microseconds: an envelope cannot keep them")
    try:
        # To the microsecond, which `parse_event_time` cuts off.
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is not None and moment.tzinfo is not None:
        return (moment - _EPOCH) // timedelta(microseconds=1)
    return parse_event_time(value, RealClock().wall_ms()) * _MICROS_PER_MILLI


def text_of_time(time: int) -> str | int:
    """Return a time in microseconds since 1970, as ISO 8601; as it is where that has no form."""
    try:
        return (_EPOCH + timedelta(microseconds=time)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return time


def line(event: bytes) -> bytes:
    """Return an event as one line: key, time, headers and payload, separated by tabs; "-" for what it has not.

    A plain event is a payload alone.  Raises Invalid for a newer version, Corrupt."""
    found = Envelope.parse(event) if Envelope.is_envelope(event) else Envelope(event)
    time = "-" if found.event_time is None else str(text_of_time(found.event_time))
    fields = ("-" if found.key is None else found.key, time, headers_text(found) or "-")
    return b"\t".join([*(one_line(field) for field in fields), found.payload])


def headers_text(envelope: Envelope) -> str:
    """Return the headers of an envelope as NAME=VALUE, with a blank between two."""
    return " ".join(f"{name}={value.decode(errors='backslashreplace')}" for name, value in envelope.headers)


def one_line(text: str) -> bytes:
    """Return text that is one field of one line."""
    return text.replace("\t", "\\t").replace("\n", "\\n").encode()


def document(event: bytes) -> dict[str, Any]:
    """Return an event as a JSON document, from which its very bytes can be made again.  Raises as `line`."""
    if not Envelope.is_envelope(event):
        return {**bytes_field("event", event), "envelope": False}
    found = Envelope.parse(event)
    shown: dict[str, Any] = {**bytes_field("event", found.payload), "envelope": True}
    if found.key is not None:
        shown["key"] = found.key
    if found.event_time is not None:
        shown["event_time"] = text_of_time(found.event_time)
    if found.headers:
        shown["headers"] = [{"name": name, **bytes_field("value", value)} for name, value in found.headers]
    return shown


def bytes_field(name: str, value: bytes) -> dict[str, Any]:
    """Return a field of a JSON document: as text, or as NAME_base64 where it is no UTF-8."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def shown(event: bytes, *, as_json: bool) -> bytes:
    """Return an event as a line of output."""
    try:
        return json.dumps(document(event)).encode() if as_json else line(event)
    except Corrupt as error:
        raise Invalid(f"{error}; without --envelope the bytes are shown as they are") from None
