"""The envelope: key, event time and headers of an event, inside the event.

The protocol stores bare bytes.  A writer that wants these fields to come back writes an `Envelope`, whose bytes
docs/formats/envelope.md defines.  They begin with a byte that no UTF-8 text has, so plain events and envelopes may
share a stream.  This module handles one event at a time, `envelope_columns.py` whole columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sarit.core.envelope_layout import (
    AT_FLAGS,
    AT_HEADERS_SIZE,
    AT_KEY_SIZE,
    AT_TIME,
    AT_VERSION,
    HAS_KEY,
    HAS_TIME,
    HEAD,
    MAGIC,
    MAX_HEADERS,
    SIZES,
    VERSION,
)
from sarit.core.errors import Corrupt, Invalid
from sarit.core.extras import require
from sarit.core.public import public

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

Headers = tuple[tuple[str, bytes], ...]

_MAX_SIZE: Final = 0xFFFFFFFF
_MAX_INT64: Final = (1 << 63) - 1


@public
@dataclass(frozen=True, slots=True, init=False)
class Envelope:
    """An event with its key, its time and its headers.  `bytes(envelope)` is the event as it is stored.

    `payload`: bytes, or str (stored as UTF-8).  `key`: str or None; the routing key too, unless `write` gets another.
    `event_time`: microseconds since 1970 (UTC), or a datetime with a time zone; None: unknown.  `headers`: pairs of a
    name and bytes, or a mapping; a name may occur more than once.  Raises Invalid.
    """

    payload: bytes
    key: str | None
    event_time: int | None
    headers: tuple[tuple[str, bytes], ...]

    def __init__(
        self, payload: bytes | str, *, key: str | None = None, event_time: Any = None, headers: Any = ()
    ) -> None:
        object.__setattr__(self, "payload", _bytes("payload", payload))
        if key is not None and not isinstance(key, str):
            raise Invalid(f"the key of an envelope is a str, not {type(key).__name__}: convert it")
        _text("key", key or "")
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "event_time", _microseconds(event_time))
        object.__setattr__(self, "headers", _headers(headers))

    def __bytes__(self) -> bytes:
        """Return the event, as docs/formats/envelope.md says."""
        key = b"" if self.key is None else self.key.encode()
        flags = (HAS_KEY if self.key is not None else 0) | (HAS_TIME if self.event_time is not None else 0)
        names = [(name.encode(), value) for name, value in self.headers]
        sizes = [SIZES.pack(len(name), len(value)) for name, value in names]
        headers = b"".join([*sizes, *(part for pair in names for part in pair)])
        head = HEAD.pack(MAGIC, VERSION, len(names), flags, 0, self.event_time or 0, len(key), len(headers))
        return b"".join((head, key, headers, self.payload))

    @staticmethod
    def is_envelope(event: bytes) -> bool:
        """Return whether an event begins like an envelope.  It may still be damaged, or of a newer version."""
        return event[: len(MAGIC)] == MAGIC

    @classmethod
    def parse(cls, event: bytes) -> Envelope:
        """Return the envelope of an event.  Raises Invalid for a plain event or a newer version; Corrupt for a damaged
        one, with the place."""
        key_size, header_count, headers_size, flags, time = _head(event)
        at = HEAD.size + key_size
        made = object.__new__(cls)
        set_field = object.__setattr__
        set_field(made, "key", _decoded(event, HEAD.size, key_size, "the key") if flags & HAS_KEY else None)
        set_field(made, "event_time", time if flags & HAS_TIME else None)
        set_field(made, "headers", tuple(_parsed_headers(event, at, header_count, headers_size)))
        set_field(made, "payload", bytes(event[at + headers_size :]))
        return made

    @staticmethod
    def encode_many(payloads: Any, *, keys: Any = None, event_times: Any = None, headers: Any = None) -> pa.Array:
        """Make events of columns, as an Arrow array for `write_many`.  Each argument is a list or an Arrow array.

        `payloads`: binary or string; `keys`: string; `event_times`: int64 (microseconds) or timestamp; `headers`: lists
        of structs of a name and bytes.  All but payloads may have nulls.  Raises Invalid."""
        require("arrow", "Envelope.encode_many")
        from sarit.core.envelope_columns import encode

        events = encode(payloads, keys, event_times, headers)
        if events.null_count:
            raise Invalid(f"{events.null_count} of {len(events)} payloads are null: drop or fill them first")
        return events

    @staticmethod
    def parse_many(events: Any) -> pa.RecordBatch:
        """Return the columns `key`, `event_time`, `headers` and `payload` of events (an Arrow array, or a list).

        Raises Invalid and Corrupt as `parse` does, for the first event that is no envelope."""
        require("arrow", "Envelope.parse_many")
        from sarit.core.envelope_columns import decode, first_of

        found = decode(events)
        bad = first_of(events, found.bad)
        if bad is not None:
            Envelope.parse(bad)  # raises the error that says what is wrong
            raise AssertionError("the two decoders of the envelope differ")
        return found.batch()


def _bytes(what: str, value: Any) -> bytes:
    if isinstance(value, str):
        return _text(what, value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise Invalid(f"the {what} of an envelope is bytes or str, not {type(value).__name__}: encode it first")


def _text(what: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise Invalid(f"the {what} of an envelope is valid Unicode, which {ascii(value)[:60]} is not") from None


def _microseconds(time: Any) -> int | None:
    if time is None:
        return None
    if hasattr(time, "utcoffset") and hasattr(time, "timestamp"):
        if time.utcoffset() is None:
            raise Invalid(f"event_time {time} has no time zone: give one, as datetime.now(timezone.utc) does")
        # This is exact: a float of whole seconds loses nothing.
        return int(time.replace(microsecond=0).timestamp()) * 1_000_000 + int(time.microsecond)
    if isinstance(time, bool) or not isinstance(time, int):
        raise Invalid(f"event_time={time!r}: give microseconds since 1970 as an int, or a datetime with a time zone")
    if not -_MAX_INT64 - 1 <= time <= _MAX_INT64:
        raise Invalid(f"event_time={time} does not fit into 64 bits: give microseconds since 1970")
    return time


def _headers(headers: Any) -> Headers:
    pairs = headers.items() if hasattr(headers, "items") else headers
    made: list[tuple[str, bytes]] = []
    try:
        for name, value in pairs:
            if not isinstance(name, str):
                raise Invalid(f"the name of a header is a str, not {type(name).__name__}")
            _text("header", name)
            made.append((name, _bytes(f"header {name!r}", value)))
    except Invalid:
        raise
    except (TypeError, ValueError):
        raise Invalid(f"headers={headers!r}: give pairs of a name and bytes, or a mapping"[:200]) from None
    if len(made) > MAX_HEADERS:
        raise Invalid(f"{len(made)} headers: an envelope has at most {MAX_HEADERS}")
    return tuple(made)


# -- parsing --------------------------------------------------------------------------------------


def damaged(at: int, why: str) -> Corrupt:
    """Return the error for an envelope whose bytes are wrong at offset `at` of the event."""
    return Corrupt(f"the envelope of an event is damaged at byte {at}: {why}")


def _head(event: bytes) -> tuple[int, int, int, int, int]:
    """Return (bytes of the key, headers, their bytes, flags, time), checked against the event's length."""
    if not Envelope.is_envelope(event):
        raise Invalid(f"the event has no envelope: it begins with {bytes(event[:8])!r}; it was written as plain bytes")
    if len(event) > AT_VERSION and event[AT_VERSION] != VERSION:
        raise Invalid(f"the event has an envelope of version {event[AT_VERSION]}; this Sarit knows {VERSION}")
    if len(event) < HEAD.size:
        raise damaged(len(event), f"it ends within its head of {HEAD.size} bytes")
    _, _, count, flags, zero, time, key_size, headers_size = HEAD.unpack_from(event)
    if flags > HAS_KEY | HAS_TIME or zero:
        raise damaged(AT_FLAGS, f"flags {flags:#x} {zero:#x} are not known")
    if time and not flags & HAS_TIME:
        raise damaged(AT_TIME, "a time that the flags deny")
    if key_size > len(event) - HEAD.size or (key_size and not flags & HAS_KEY):
        raise damaged(AT_KEY_SIZE, f"a key of {key_size} bytes in an event of {len(event)}")
    if headers_size > len(event) - HEAD.size - key_size or headers_size < SIZES.size * count:
        raise damaged(AT_HEADERS_SIZE, f"{count} headers of {headers_size} bytes in an event of {len(event)}")
    return key_size, count, headers_size, flags, time


def _decoded(event: bytes, at: int, size: int, what: str) -> str:
    try:
        return bytes(event[at : at + size]).decode()
    except UnicodeDecodeError as error:
        raise damaged(at + error.start, f"{what} is not UTF-8") from None


def _parsed_headers(event: bytes, begin: int, count: int, size: int) -> Sequence[tuple[str, bytes]]:
    at, end = begin + SIZES.size * count, begin + size
    found: list[tuple[str, bytes]] = []
    for index in range(count):
        place = begin + SIZES.size * index
        name_size, value_size = SIZES.unpack_from(event, place)
        if name_size + value_size > end - at:
            raise damaged(place, f"header {index} is longer than the headers")
        name = _decoded(event, at, name_size, f"the name of header {index}")
        found.append((name, bytes(event[at + name_size : at + name_size + value_size])))
        at += name_size + value_size
    if at != end:
        raise damaged(at, f"{end - at} bytes after the last header")
    return found
